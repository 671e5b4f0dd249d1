"""PyTorch's control flow as `coreai.if` and `coreai.while`.

The functions here have the signatures of PyTorch's higher-order operators. In place of a nested graph, they take a
function that imports the graph at the insertion point, called with the values of its placeholders. So a graph may use
values from outside (captured parameters are operands of the operator anyway), and may nest to any depth.

`scan`, `map` and `associative_scan` are loops that carry a counter, the carried values and the stacked results; each
iteration writes one row. PyTorch exports `dim=` and `reverse=` as permutations around the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from patcomp.ir import aten, coreai
from patcomp.ir.builder import Builder
from patcomp.ir.infer import InferenceError
from patcomp.ir.types import element_name, element_type, tensor
from patcomp.ir.value import Value

Graph = Callable[..., list[Any]]
"""Imports a nested graph, given the values or Python numbers of its placeholders; returns its results."""

Zeros = Sequence[Callable[[], Value]]
"""For each result of an operator, a function that builds zeros of its type and sizes at the insertion point."""


def cond(results: Zeros, predicate: Any, then: Graph, otherwise: Graph, operands: Sequence[Any]) -> list[Any]:
    """`torch.cond`: one of two graphs; only the chosen one is imported if export knows the predicate.

    Raises:
        TypeError: the results of the graphs have different types.
    """
    if not isinstance(predicate, Value):
        return _values((then if predicate else otherwise)(*operands))
    flag = _boolean(predicate)
    try:
        return coreai.if_(flag, lambda: _values(then(*operands)), lambda: _values(otherwise(*operands)))
    except InferenceError as error:
        raise TypeError(f"{error}; give the results of both branches the same sizes, for example by padding") from error


def while_loop(
    results: Zeros, condition: Graph, body: Graph, carried: Sequence[Any], additional: Sequence[Any]
) -> list[Value]:
    """`while_loop`: carried integers are 0-d values.

    Raises:
        TypeError: a carried value is a Python bool, or its type changes.
    """
    if any(isinstance(value, bool) for value in carried):
        raise TypeError("a loop that carries a Python bool cannot be converted; carry a tensor, torch.tensor(True)")
    return _while(
        _values(carried),
        lambda *values: _boolean(_values(condition(*values, *additional))[0]),
        lambda *values: _values(body(*values, *additional)),
    )


def scan(
    results: Zeros, combine: Graph, init: Sequence[Any], xs: Sequence[Value], additional: Sequence[Any]
) -> list[Value]:
    """`scan`: `combine(*carried, *rows, *additional)` returns the next carried values and a row of each result."""
    carried = _values(init)
    stacked = [zeros() for zeros in results[len(carried) :]]
    return _loop(0, carried, stacked, xs, lambda state, rows: combine(*state, *rows, *additional))


def map_(results: Zeros, body: Graph, xs: Sequence[Value], additional: Sequence[Any]) -> list[Value]:
    """`map`: `body(*rows, *additional)` returns a row of each result."""
    return scan(results, body, (), xs, additional)


def associative_scan(results: Zeros, combine: Graph, xs: Sequence[Value], additional: Sequence[Any]) -> list[Value]:
    """`associative_scan`, row by row: the first row stays, and each later row is combined with the result before it."""

    def step(before: list[Value], rows: list[Value]) -> list[Any]:
        after = combine(*before, *rows, *additional)
        return [*after, *after]

    first = [_row(x, _position(0)) for x in xs]
    return _loop(1, first, xs, xs, step)[len(xs) :]


CONTROL_FLOW: dict[Any, Callable[..., list[Any]]] = {
    torch.ops.higher_order.cond: cond,
    torch.ops.higher_order.while_loop: while_loop,
    torch.ops.higher_order.scan: scan,
    torch.ops.higher_order.map_impl: map_,
    torch.ops.higher_order.associative_scan: associative_scan,
}
"""The function for each higher-order operator; it takes `Zeros`, then the operator's arguments."""


def _while(carried: Sequence[Value], condition: Callable[..., Value], body: Callable[..., list[Value]]) -> list[Value]:
    """`coreai.while`.

    Raises:
        TypeError: the types of the body's results differ from the types of its arguments.
    """
    try:
        return coreai.while_(carried, condition, body)
    except InferenceError as error:
        raise TypeError(f"{error}; carry values whose sizes and element types stay the same") from error


def _loop(
    start: int,
    carried: Sequence[Value],
    stacked: Sequence[Value],
    xs: Sequence[Value],
    step: Callable[[list[Value], list[Value]], list[Any]],
) -> list[Value]:
    """`step(carried, rows)` for each row of `xs` from `start` on; the carried values and the filled results.

    The counter has 32 bits, so that the option `int64=` does not apply to it.
    """
    if any(element_name(value.element_type).startswith("complex") for value in (*stacked, *xs)):
        raise TypeError(
            "a loop over rows of complex numbers cannot be converted; loop over their parts, torch.view_as_real(x)"
        )
    counter, flag, count = tensor((), "si32"), tensor((), "i1"), len(carried)
    length = _length(xs[0])

    def body(position: Value, *values: Value) -> list[Value]:
        results = _values(step(list(values[:count]), [_row(x, position) for x in xs]))
        filled = [_with_row(old, position, row) for old, row in zip(values[count:], results[count:], strict=True)]
        return [aten.build("aten.add.Scalar", counter, self=position, other=1), *results[:count], *filled]

    def condition(position: Value, *values: Value) -> Value:
        return aten.build("aten.lt.Tensor", flag, self=position, other=length)  # type: ignore[no-any-return]

    return _while([_position(start), *carried, *stacked], condition, body)[1:]


def _position(number: int) -> Value:
    return Builder.current().constant(np.array(number, np.int32), element_type("si32"))


def _length(x: Value) -> Value:
    """The number of rows of a tensor."""
    if (known := x.shape[0]) is not None:
        return _position(known)
    size = aten.build("aten.sym_size.int", tensor((), "si64"), self=x, dim=0)
    return aten.build(  # type: ignore[no-any-return]
        "aten._to_copy", tensor((), "si32"), self=size, dtype=element_type("si32")
    )


def _row(x: Value, position: Value) -> Value:
    type_ = tensor(x.shape[1:], x.element_type)
    return aten.build("aten.index.Tensor", type_, self=x, indices=[position])  # type: ignore[no-any-return]


def _with_row(x: Value, position: Value, row: Value) -> Value:
    return aten.build("aten.index_put", x.type, self=x, indices=[position], values=row)  # type: ignore[no-any-return]


def _values(items: Sequence[Any]) -> list[Value]:
    """Values and numbers as values; a bool becomes a 0-d `i1`, an int a 0-d `si64`."""
    return [item if isinstance(item, Value) else _constant(item) for item in items]


def _constant(number: Any) -> Value:
    if not isinstance(number, bool | int):
        raise TypeError(f"{number!r} cannot be an operand or a result of control flow; only tensors and integers can")
    element = "i1" if isinstance(number, bool) else "si64"
    return Builder.current().constant(np.array(number), element_type(element))


def _boolean(value: Value) -> Value:
    """A tensor of one element as a 0-d `i1`, the type of conditions."""
    if value.rank:
        value = aten.build("aten.view", tensor((), value.element_type), self=value, size=[])
    if value.dtype != "i1":
        value = aten.build("aten.ne.Scalar", tensor((), "i1"), self=value, other=0)
    return value

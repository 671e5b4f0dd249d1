"""Numbers that a model computes from numbers, as constants."""

from __future__ import annotations

import math
from typing import Any

from patcomp.authoring import Aten, AtenSource, AtenTarget, aten, coreai
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import is_float, is_integer
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import (
    Attr,
    Capture,
    Const,
    Rewrite,
    any_of,
    build,
    check,
    condition,
    example,
    formula,
    rule,
    tag,
)
from patterns_catalog.numbers import exact_fill

_FLOATS = ("f32", "f16", "bf16", "f64")


@condition("{number} is a number, and {result} has one element of numbers")
def _is_number(number: Any, result: ValueType) -> bool:
    element = result.element_type
    return not result.rank and isinstance(number, bool | int | float) and (is_float(element) or is_integer(element))


@formula("normalize", "aten.full", name="normalize scalar", examples=[example([], 2.5, dtype="f32")],
         where=lambda fill_value, result: [_is_number(fill_value, result)],
         ignored={"size": "there are no dimensions", "dtype": "the result type has it"})  # fmt: skip
def scalar(aten: Aten, fill_value: Any, result: ValueType) -> Value:
    "a tensor without dimensions as a constant, for instance the number that fills masked places"
    return coreai.constant(exact_fill(fill_value, result.element_type), result.element_type)


@formula("normalize", "aten.scalar_tensor", examples=[example(2, dtype="f32")],
         where=lambda s, result: [_is_number(s, result)], ignored={"dtype": "the result type has it"})  # fmt: skip
def scalar_tensor(aten: Aten, s: Any, result: ValueType) -> Value:
    "a tensor of one number as a constant"
    return coreai.constant(exact_fill(s, result.element_type), result.element_type)


def _multiplied(x: Value, y: Value) -> Value:
    """The product of two constants, as a constant."""
    assert x.constant is not None
    assert y.constant is not None
    return coreai.constant(float(x.constant) * float(y.constant), x.element_type)


@rule(stage="normalize", into=aten_namespace, example={"x": 8.0, "y": 3.0})
def product_of_numbers(a: AtenSource, c: AtenTarget, x: Const, y: Const) -> Rewrite:
    "8. * 3. is 24., as in `scores / torch.sqrt(torch.tensor(8.) * 3)` (DeBERTa-v2)"
    return Rewrite(
        x * y,
        to=build(_multiplied, x, y),
        where=[x.rank == 0, y.rank == 0, x.dtype.is_in(*_FLOATS), y.dtype == x.dtype],
    )


def _root(x: Value) -> Value:
    """The square root of a constant, as a constant."""
    assert x.constant is not None
    return coreai.constant(math.sqrt(float(x.constant)), x.element_type)


@rule(stage="normalize", into=aten_namespace, example={"x": 64.0})
def root_of_number(a: AtenSource, c: AtenTarget, x: Const) -> Rewrite:
    "sqrt(64.) is 8., as in `scores / torch.sqrt(torch.tensor(64.))` (DeBERTa-v2)"
    return Rewrite(a.sqrt(x), to=build(_root, x), where=[x.rank == 0, x.dtype.is_in(*_FLOATS), x.value >= 0])


def _converted(x: Value, result: Value) -> Value:
    """A constant in another float type."""
    assert x.constant is not None
    return coreai.constant(float(x.constant), result.element_type)


@rule(stage="normalize", into=aten_namespace, example={"x": 64.0, "dtype": "f16"})
def cast_of_number(a: AtenSource, c: AtenTarget, x: Const, dtype: Attr) -> Rewrite:
    "64. of float32 in float16 is 64., as in `x / torch.sqrt(torch.tensor(64.)).to(x.dtype)` (DeBERTa-v2)"
    y = a._to_copy(x, dtype=dtype)
    floats = [x.dtype.is_in(*_FLOATS), y.dtype.is_in(*_FLOATS)]
    return Rewrite(y, to=build(_converted, x, y), where=[x.rank == 0, *floats, y.dtype != x.dtype])


# ---- one element with axes ---------------------------------------------------------------------------


def _without_axes(result: Value, x: Value, number: Value, name: str) -> Value:
    """The op, with the number as a constant of rank 0."""
    assert number.constant is not None
    element = coreai.constant(number.constant.reshape(()), number.element_type)
    return aten.build(f"aten.{name}.Tensor", result.type, self=x, other=element)  # type: ignore[no-any-return]


def _with_buffers(torch: Any, x: Any) -> Any:
    return ((x - torch.tensor([0.5])) * torch.tensor([[2.0]]) + torch.tensor([1e-5])) / torch.tensor([3.0])


@rule(stage="normalize", into=aten_namespace, examples=[example("2x3xf32", program=_with_buffers)])
def number_with_axes(a: AtenSource, c: AtenTarget, x: Capture, number: Const) -> Rewrite:
    "x + [eps] is x + eps, as an epsilon in a buffer of one element or in a file of other exporters"
    ways = {"add": x + number, "sub": x - number, "mul": x * number, "div": x / number}
    result = any_of(*ways.values(), tag="op", tags=tuple(ways))
    # its shape says so: the numbers of other weights are not read
    is_one = check("the constant has one element", lambda match: math.prod(match["number"].shape) == 1)
    return Rewrite(
        result,
        to=build(_without_axes, result, x, number, tag("op")),
        where=[number.rank > 0, is_one, number.rank <= x.rank, number.dtype == x.dtype],
    )

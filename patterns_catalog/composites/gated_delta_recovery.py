"""The gated delta rule of linear attention, found where a model loops over the sequence and export unrolls it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.ir import aten, coreai
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import ANY, Attr, Const, OpView, any_of, check, fragment, op_rule
from patcomp.patterns.match import Match
from patterns_catalog.composites.gated_delta import L2_EPSILON, gated_delta_update
from patterns_catalog.lowering.shapes import slice_axis

# ---- parts of the formulas -------------------------------------------------------------------------


def _reshaped(a: Any, x: Any) -> Any:
    """x with dimensions of size 1 added; a condition on the shape says where."""
    once = a.unsqueeze(x, dim=ANY)
    return any_of(a.unsqueeze(once, dim=ANY), once, a.view(x, size=ANY))


def _sum_over_keys(a: Any, x: Any) -> Any:
    return a.op("sum.dim_IntList", x, dim=[2], keepdim=False, dtype=None)


Sizes = tuple[int, int, int, int]


def _shapes(state: Any, parts: dict[Any, Callable[[Sizes], tuple[int, ...]]]) -> Any:
    """Whether the state is [batch, heads, key size, value size] in float32, and parts have shapes made of those."""

    def hold(match: Match) -> bool:
        whole = match[state]
        if whole.rank != 4 or not whole.is_static or whole.dtype != "f32":
            return False
        return all(match[part].shape == shape(whole.shape) for part, shape in parts.items())

    return check("shapes follow from the state's", hold)


def _per_head(s: Sizes) -> tuple[int, ...]:
    return s[:2]


def _per_key(s: Sizes) -> tuple[int, ...]:
    return s[:3]


def _per_value(s: Sizes) -> tuple[int, ...]:
    return (*s[:2], s[3])


def _column(s: Sizes) -> tuple[int, ...]:
    return (*s[:3], 1)


@fragment
def _step(a: Any, state: Any, decay: Any, key: Any, again: Any, value: Any, beta: Any) -> Any:
    "decay * state + key ⊗ beta * (value - key @ (decay * state))"
    fading, strength = _reshaped(a, decay), _reshaped(a, beta)
    asking, writing = _reshaped(a, key), _reshaped(a, again)
    faded = state * fading
    remembered = _sum_over_keys(a, faded * asking)
    delta = (value - remembered) * strength
    row = _reshaped(a, delta)
    return faded + writing * row, [
        check("the key is one and the same", lambda match: _element(match["key"]) == _element(match["again"])),
        _shapes(
            state,
            {
                decay: _per_head, fading: lambda s: (*s[:2], 1, 1),
                key: _per_key, again: _per_key, asking: _column, writing: _column,
                value: _per_value, beta: _per_head, strength: lambda s: (*s[:2], 1),
                delta: _per_value, row: lambda s: (*s[:2], 1, s[3]),
            },
        ),
    ]  # fmt: skip


@fragment
def _read(a: Any, state: Any, query: Any) -> Any:
    "query @ state"
    column = _reshaped(a, query)
    return _sum_over_keys(a, state * column), [_shapes(state, {query: _per_key, column: _column})]


@fragment
def _exponential(a: Any, x: Any) -> Any:
    "exp(x)"
    return a.exp(x), []


@fragment
def _normalized(a: Any, x: Any, eps: Const, axis: Attr) -> Any:
    "x * rsqrt(sum(x ** 2, -1) + eps)"
    square = a.op("sum.dim_IntList", any_of(x * x, a.pow(x, 2.0)), dim=[axis], keepdim=True, dtype=None)
    close = check("eps is the composite's", lambda match: math.isclose(match["eps"].constant, L2_EPSILON, rel_tol=1e-6))
    return x * a.rsqrt(square + eps), [eps.rank == 0, close, axis == x.rank - 1, x.dtype == "f32"]


@fragment
def _scaled(a: Any, x: Any, factor: Const, divisor: Const) -> Any:
    "x / sqrt(key size)"

    def is_root(match: Match) -> bool:
        size = match["x"].shape[-1]
        given = match["factor"].constant if match["factor"] is not None else 1 / match["divisor"].constant
        return bool(math.isclose(given, size**-0.5, rel_tol=1e-6))

    return any_of(x * factor, x / divisor), [
        (factor.rank == 0) | (divisor.rank == 0),
        check("the factor is 1 / sqrt(key size)", is_root),
    ]


@fragment
def _written(a: Any, before: Any, part: Any, index: Const, count: Attr, sizes: Attr, dim: Attr) -> Any:
    "before, with part at an index of a dimension: what PyTorch makes of `before[:, :, index] = part`"
    positions = a.view(a.op("arange.start_step", 0, count, 1, dtype=ANY), size=sizes)
    copied = any_of(a.copy(a.op("select.int", before, dim=ANY, index=ANY), part), part)
    single = a.unsqueeze(copied, dim=dim)
    put = any_of(a.expand(single, size=ANY, implicit=ANY), single)
    result = a.where(a.eq(positions, index), put, before)

    def along_dim(match: Match) -> bool:
        axis, shape = match["dim"], match["before"].shape
        wanted = [1] * len(shape)
        wanted[axis] = match["count"]
        return (
            shape[axis] == match["count"]
            and [1] * (len(shape) - len(match["sizes"])) + list(match["sizes"]) == wanted
            and match["part"].type == tensor((*shape[:axis], *shape[axis + 1 :]), match["before"].element_type)
        )

    return result, [
        index.rank == 0,
        dim >= 0,
        result.shape == before.shape,
        check("it is written along one dimension", along_dim),
    ]


# ---- elements of sequences -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Element:
    """One element of a sequence: `source[:, ..., index]`, or a value of its own."""

    source: Value
    dim: int | None = None
    index: int = 0

    @property
    def before_last(self) -> bool:
        """Whether the source has the sequence in a dimension before the last one."""
        return self.dim is not None and self.dim < self.source.rank - 1


def _element(value: Value) -> _Element:
    op = value.ssa.owner
    if not isinstance(op, Operation) or op.name != "aten.select.int":
        return _Element(value)
    arguments = op.arguments_by_name()  # type: ignore[attr-defined]
    source, dim, index = arguments["self"], arguments["dim"], arguments["index"]
    dim %= source.rank
    if not isinstance(index, int) or source.shape[dim] is None:
        return _Element(value)
    return _Element(source, dim, index % source.shape[dim])


def _from(element: _Element, source: Value) -> _Element:
    return _Element(source, element.dim, element.index)


def _logarithm(element: _Element, op: OpView) -> _Element:
    """What an element is the exponential of, itself or as part of its sequence."""
    match = _exponential.match(element.source)
    if match is None:
        op.reject("a decay that is no exponential")
    inner = match["x"]
    return _element(inner) if element.dim is None else _from(element, inner)


def _sequence(elements: Sequence[_Element]) -> Value:
    """A sequence `[batch, heads, sequence, ...]` of elements `[batch, heads, ...]`."""
    first, length = elements[0], len(elements)
    if first.dim is None or any(
        element != _Element(first.source, first.dim, first.index + step) for step, element in enumerate(elements)
    ):
        return coreai.concat(2, [coreai.expand_dims(_value(element), [2]) for element in elements])
    x, dim = first.source, first.dim
    if length < x.static_shape[dim]:
        x = slice_axis(coreai, x, dim, first.index, first.index + length)
    order = [axis for axis in range(x.rank) if axis != dim]
    order.insert(2, dim)
    return x if order == sorted(order) else coreai.transpose(x, order)


def _value(element: _Element) -> Value:
    return element.source if element.dim is None else _selected(element.source, element.dim, element.index)


def _selected(x: Value, dim: int, index: int) -> Value:
    shape = x.static_shape
    type_ = tensor((*shape[:dim], *shape[dim + 1 :]), x.element_type)
    value: Value = aten.build("aten.select.int", type_, self=x, dim=dim, index=index)
    return value


# ---- the unrolled loop -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """One step of the loop: the update of the state, and the only product of a query with the new state."""

    update: Match
    read: Match

    @property
    def output(self) -> Value:
        return Value(self.read.root.results[0])


def _users(value: Value) -> list[Operation]:
    return list(dict.fromkeys(use.operation for use in value.ssa.uses))


def _found(state: Value, following: _Found | None) -> _Found | None:
    """The step that makes a state, which only one query reads and, unless it is the last one, the next step."""
    update = _step.match(state)
    if update is None:
        return None
    products = [user for user in _users(state) if user.name == "aten.mul.Tensor"]
    sums = dict.fromkeys(user for product in products for user in _users(Value(product.results[0])))
    matches = [_read.match(Value(user.results[0])) for user in sums if user.name == "aten.sum.dim_IntList"]
    reads = [match for match in matches if match is not None and match["state"] == state]
    if len(reads) != 1:
        return None
    inside = {*reads[0].ops, *(following.update.ops if following else ())}
    return None if following and any(user not in inside for user in _users(state)) else _Found(update, reads[0])


def _loop(last: _Found) -> list[_Found]:
    """The steps of the loop that ends with one."""
    steps = [last]
    while (previous := _found(steps[-1].update["state"], steps[-1])) is not None:
        steps.append(previous)
    return steps[::-1]


def _queries_and_keys(steps: Sequence[_Found]) -> tuple[list[_Element], list[_Element], bool, bool]:
    """The queries without their factor, the keys, whether there was a factor, and whether both are taken before they
    are normalized."""
    queries = [_element(step.read["query"]) for step in steps]
    keys = [_element(step.update["key"]) for step in steps]
    if not all(element.before_last for element in (*queries, *keys)):
        return queries, keys, False, False
    scaled = [_scaled.match(element.source) for element in queries]
    divided = all(match is not None for match in scaled)
    if divided:
        queries = [_from(element, match["x"]) for element, match in zip(queries, scaled, strict=True) if match]
    normal = [_normalized.match(element.source) for element in (*queries, *keys)]
    if not divided or not all(match is not None for match in normal):
        return queries, keys, divided, False
    both = [_from(element, match["x"]) for element, match in zip((*queries, *keys), normal, strict=True) if match]
    return both[: len(steps)], both[len(steps) :], True, True


def _collected(steps: Sequence[_Found]) -> tuple[Value, int, list[Operation]] | None:
    """The value in which a model writes the outputs of all steps one after another, the dimension of the sequence in
    it, and the ops that write."""
    whole: Value | None = None
    axis: int | None = None
    ops: list[Operation] = []
    for position, step in enumerate(steps):
        writes = [
            match
            for user in _reached(step.output)
            if (match := _written.match(Value(user.results[0]))) is not None
            and match["part"] == step.output
            and match["index"].constant == position
            and match["count"] == len(steps)
            and (whole is None or match["before"] == whole)
            and axis in (None, match["dim"])
        ]
        if len(writes) != 1 or len(_users(step.output)) != 1:
            return None
        if whole is not None and any(user not in writes[0].ops for user in _users(whole)):
            return None
        whole, axis = Value(writes[0].root.results[0]), writes[0]["dim"]
        ops += writes[0].ops
    assert whole is not None
    assert axis is not None
    return whole, axis, ops


def _reached(value: Value) -> list[Operation]:
    """The selections that write a value somewhere: `where(..., expand(unsqueeze(copy(_, value))), _)`."""
    found, pending = [], _users(value)
    while pending:
        user = pending.pop()
        if user.name == "aten.where.self":
            found.append(user)
        elif user.name in ("aten.copy", "aten.unsqueeze", "aten.expand"):
            pending += _users(Value(user.results[0]))
    return found


@op_rule("recover", "aten.add.Tensor", name="gated_delta_update", size=10)
def recovered_gated_delta_update(op: OpView, c: Any) -> Value | None:
    """S = exp(g) S; S = S + k ⊗ beta (v - k S); output = q S, for each element of the sequence, unrolled (Qwen3-Next)

    The op is the last update of the state. Everything is float32, as the composite computes. A state that something
    else reads as well ends a loop, and the next step begins another one.
    """
    op.ignore(*op.arguments, because="the pattern of a step reads them")
    state = Value(op.operation.results[0])
    last = _found(state, None)
    if last is None:
        return None
    steps = _loop(last)
    queries, keys, divided, normalized = _queries_and_keys(steps)
    decays = [_logarithm(_element(step.update["decay"]), op) for step in steps]
    collected = _collected(steps)
    covered = [inner for step in steps for inner in (*step.update.ops, *step.read.ops)]
    op.cover(*covered, *(collected[2] if collected else ()))
    query = _sequence(queries)
    if not divided:
        query = c.broadcasting_mul(query, query.static_shape[-1] ** 0.5)
    outputs, after = gated_delta_update(
        query,
        _sequence(keys),
        _sequence([_element(step.update["value"]) for step in steps]),
        _sequence(decays),
        _sequence([_element(step.update["beta"]) for step in steps]),
        steps[0].update["state"],
        use_qk_l2_norm=normalized,
    )
    if collected is not None:
        whole, axis, _ = collected
        order = [0, 2, 3]  # of [batch, sequence, heads, value size]
        order.insert(axis, 1)
        op.replace(whole, c.transpose(outputs, order) if axis != 1 else outputs)
    else:
        for position, step in enumerate(steps):
            op.replace(step.output, _selected(outputs, 1, position))
    return after  # type: ignore[no-any-return]

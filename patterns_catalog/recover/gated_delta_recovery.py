"""The gated delta rule of linear attention, recovered from a loop over the sequence that export has unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from patcomp.authoring import Coreai, coreai
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, example, op_rule
from patcomp.patterns.match import Match
from patterns_catalog.recover import gated_delta_formulas as formulas
from patterns_catalog.recover.chunks import NOT_FINITE
from patterns_catalog.recover.gated_delta import gated_delta_update
from patterns_catalog.recover.unrolled import Element, element_at, joined, selected
from patterns_catalog.slices import slice_axis
from patterns_catalog.views import arguments_of, permuted

# ---- elements of sequences -------------------------------------------------------------------------


def _logarithm(element: Element, op: OpView) -> Element:
    """The element whose exponential an element is; the exponential may be of the whole sequence."""
    exponential = arguments_of(element.source, "exp")
    if exponential is None:
        op.reject("the decay is not an exponential")
    inner = exponential["self"]
    return element_at(inner) if element.dim is None else replace(element, source=inner)


def _sequence(elements: Sequence[Element]) -> Value:
    """A sequence `[batch, heads, sequence, ...]` of elements `[batch, heads, ...]`."""
    first, length = elements[0], len(elements)
    if first.dim is None or any(
        element != Element(first.source, first.dim, first.index + step) for step, element in enumerate(elements)
    ):
        return coreai.concat(2, [coreai.expand_dims(_value(element), [2]) for element in elements])
    x, dim = first.source, first.dim
    if length < x.static_shape[dim]:
        x = slice_axis(coreai, x, dim, first.index, first.index + length)
    order = [axis for axis in range(x.rank) if axis != dim]
    order.insert(2, dim)
    return x if order == sorted(order) else coreai.transpose(x, order)


def _value(element: Element) -> Value:
    return element.source if element.dim is None else selected(element.source, element.dim, element.index)


# ---- the unrolled loop -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """One step of the loop: the update of the state, and the only product of a query with the new state."""

    update: Match
    read: Match

    @property
    def output(self) -> Value:
        return Value(self.read.root.results[0])


_PRODUCTS = ("mul.Tensor", "sum.dim_IntList", "matmul", "bmm", "view", "permute", "squeeze.dims")
"""Ops that may compute the product of a query and a state."""


def _products(value: Value) -> list[Operation]:
    """The ops of `_PRODUCTS` that depend on a value through at most four other ops, all of these names."""
    found: dict[Operation, None] = {}
    last = [value]
    for _ in range(5):
        ops = [user for value in last for user in value.users if user.name.removeprefix("aten.") in _PRODUCTS]
        found.update(dict.fromkeys(ops))
        last = [Value(op.results[0]) for op in ops]
    return list(found)


def _found(state: Value, following: _Found | None) -> _Found | None:
    """The step that computes a state; None if anything but one query and the following step reads the state."""
    update = formulas.step.match(state)
    if update is None:
        return None
    matches = [formulas.read.match(Value(user.results[0])) for user in _products(state)]
    reads = [match for match in matches if match is not None and match["state"] == state]
    if len(reads) != 1:
        return None
    inside = {*reads[0].ops, *(following.update.ops if following else ())}
    return None if following and any(user not in inside for user in state.users) else _Found(update, reads[0])


def _loop(last: _Found) -> list[_Found]:
    """The steps of the loop whose last step is given."""
    steps = [last]
    while (previous := _found(steps[-1].update["state"], steps[-1])) is not None:
        steps.append(previous)
    return steps[::-1]


def _queries_and_keys(steps: Sequence[_Found]) -> tuple[list[Element], list[Element], bool, bool]:
    """The queries without their factor, the keys, whether there was a factor, and whether queries and keys are those
    from before their normalization."""
    queries = [element_at(step.read["query"]) for step in steps]
    keys = [element_at(step.update["key"]) for step in steps]
    if not all(element.before_last for element in (*queries, *keys)):
        return queries, keys, False, False
    scaled = [formulas.scaled.match(element.source) for element in queries]
    divided = all(match is not None for match in scaled)
    if divided:
        queries = [replace(element, source=match["x"]) for element, match in zip(queries, scaled, strict=True) if match]
    normal = [formulas.normalized.match(element.source) for element in (*queries, *keys)]
    if not divided or not all(match is not None for match in normal):
        return queries, keys, divided, False
    both = [
        replace(element, source=match["x"]) for element, match in zip((*queries, *keys), normal, strict=True) if match
    ]
    return both[: len(steps)], both[len(steps) :], True, True


def _two_steps(torch: Any, query: Any, key: Any, value: Any, g: Any, beta: Any, state: Any) -> tuple[Any, ...]:
    outputs = []
    for t in range(2):
        state = state * g[:, :, t].exp()[..., None, None]
        error = (value[:, :, t] - (state * key[:, :, t].unsqueeze(-1)).sum(-2)) * beta[:, :, t].unsqueeze(-1)
        state = state + key[:, :, t].unsqueeze(-1) * error.unsqueeze(-2)
        outputs.append((state * query[:, :, t].unsqueeze(-1)).sum(-2))
    return (*outputs, state)


@op_rule("recover", "aten.add.Tensor", name="gated_delta_update", size=10, pattern=formulas.step,
         unspecified=NOT_FINITE, examples=[
    example("1x2x2x4xf32", "1x2x2x4xf32", "1x2x2x5xf32", "1x2x2xf32[-1,0]", "1x2x2xf32[0,1]", "1x2x4x5xf32",
            program=_two_steps),
])  # fmt: skip
def recovered_gated_delta_update(op: OpView, c: Coreai) -> Value | None:
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
    decays = [_logarithm(element_at(step.update["decay"]), op) for step in steps]
    op.cover(*(inner for step in steps for inner in (*step.update.ops, *step.read.ops)))
    query = _sequence(queries)
    if not divided:
        query = c.broadcasting_mul(query, query.static_shape[-1] ** 0.5)
    outputs, after = gated_delta_update(
        query,
        _sequence(keys),
        _sequence([element_at(step.update["value"]) for step in steps]),
        _sequence(decays),
        _sequence([element_at(step.update["beta"]) for step in steps]),
        steps[0].update["state"],
        use_qk_l2_norm=normalized,
    )
    each = [step.output for step in steps]
    if (together := joined(each)) is not None:
        whole, axis = together
        order = [0, 2, 3]  # of [batch, sequence, heads, value size]
        order.insert(axis, 1)
        op.replace(whole, permuted(outputs, order))
    else:
        for position, output in enumerate(each):
            op.replace(output, selected(outputs, 1, position))
    return after  # type: ignore[no-any-return]

"""Mixture-of-Experts layers written as a loop over the experts, where each expert computes all tokens.

    out = sum_e weight_e * expert_e(x)        where weight_e = sum_k w_k * (index_k == e)
        = sum_k w_k * expert_(index_k)(x)

The indices are those of `topk` over as many scores as there are experts, so that every index has its expert. Experts
differ only in their weights, which are constants or parts of one tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from patcomp.authoring import AtenSource, Coreai
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import ANY, Attr, Capture, Const, OpView, any_of, check, example, op_rule, pattern
from patcomp.patterns.match import Match
from patterns_catalog.recover.gathered_experts import GatheredExperts, Routing
from patterns_catalog.views import arguments_of, without_views

# ---- the weight of an expert -----------------------------------------------------------------------


def _last(match: Match) -> bool:
    axis, rank = match["axis"], match["indices"].rank
    return rank > 0 and bool(axis % rank == rank - 1)


@pattern
def _masked(a: AtenSource, indices: Capture, weights: Capture, expert: Const, axis: Attr) -> Any:
    "sum(weights * (indices == expert), -1)"
    chosen = a.eq(indices, expert)
    part = any_of(weights * a._to_copy(chosen, dtype=ANY), a.where(chosen, weights, 0.0))
    return a.op("sum.dim_IntList", part, dim=[axis], keepdim=ANY, dtype=None), [
        expert.rank == 0,
        weights.shape == indices.shape,
        part.shape == indices.shape,
        check("over the last axis", _last),
    ]


@pattern
def _scattered(a: AtenSource, zeros: Capture, indices: Capture, weights: Capture, axis: Attr) -> Any:
    "zeros.scatter(-1, indices, weights): the weights of all experts"
    return a.op("scatter.src", zeros, dim=axis, index=indices, src=weights), [
        check("nothing is there before", lambda match: _is_zero(match["zeros"])),
        weights.shape == indices.shape,
        check("over the last axis", _last),
    ]


@pattern
def _one_hot(a: AtenSource, indices: Capture, weights: Capture, count: Attr, axis: Attr) -> Any:
    "sum(one_hot(indices) * weights): the weights of all experts"
    experts = a.op("arange.start_step", 0, count, 1, dtype=ANY)
    places = a.unsqueeze(indices, dim=ANY)
    chosen = a._to_copy(a.eq(places, experts), dtype=ANY)
    column = any_of(a.unsqueeze(weights, dim=ANY), a.view(weights, size=ANY))
    part = any_of(a._to_copy(chosen, dtype=ANY), chosen) * column
    return a.op("sum.dim_IntList", part, dim=[axis], keepdim=False, dtype=None), [
        weights.shape == indices.shape,
        places.shape[-1] == 1,
        places.shape[:-1] == indices.shape,
        column.shape == places.shape,
        check("over the axis of the indices", _last),
    ]


@pattern
def _column(a: AtenSource, table: Capture, axis: Attr, start: Attr, end: Attr) -> Any:
    "table[..., e : e + 1]"
    return a.op("slice.Tensor", table, dim=axis, start=start, end=end, step=1), [end == start + 1, start >= 0]


def _is_zero(value: Value) -> bool:
    if (filled := arguments_of(value, "full", "full_like")) is not None:
        return bool(filled["fill_value"] == 0)
    return bool(value.uniform == 0)


def _weight(value: Value) -> tuple[Routing, int] | None:
    """The routing and the expert that a value is the weight of; None if it is not a weight."""
    total = without_views(value)
    masked = _masked.match(total)
    if masked is not None:
        return Routing(masked["indices"], masked["weights"]), int(masked["expert"].constant)
    column = _column.match(total)
    selected = arguments_of(total, "select.int")
    if column is not None:
        table, axis, expert = column["table"], column["axis"], column["start"]
    elif selected is not None and isinstance(selected["index"], int):
        table, axis, expert = selected["self"], selected["dim"], selected["index"]
    else:
        return None
    match = _scattered.match(table) or _one_hot.match(table)
    if match is None or axis % table.rank != table.rank - 1 or not table.shape[-1]:
        return None
    return Routing(match["indices"], match["weights"]), expert % table.shape[-1]


def _chosen_among(indices: Value) -> int | None:
    """The number of scores that `topk` or `argmax` chose indices from; None if the indices come from another op.

    Such indices are less than this number, and distinct for each token.
    """
    while (arguments := arguments_of(indices, "view", "_to_copy")) is not None:
        if arguments["self"].shape[-1:] != indices.shape[-1:] or indices.dtype not in ("si64", "si32"):
            return None
        indices = arguments["self"]
    arguments = arguments_of(indices, "topk", "argmax")
    if arguments is None or arguments["dim"] is None or not indices.rank:
        return None
    if arguments["dim"] % indices.rank != indices.rank - 1:
        return None
    scores: Value = arguments["self"]
    return scores.shape[-1] if scores.rank == indices.rank else None


# ---- the sum over experts --------------------------------------------------------------------------


def _terms(root: Operation) -> tuple[list[Value], list[Operation]]:
    """The terms of a sum, and the additions that compute it."""
    terms: list[Value] = []
    additions: list[Operation] = []

    def visit(op: Operation) -> None:
        additions.append(op)
        arguments = op.arguments_by_name()  # type: ignore[attr-defined]
        for part in (arguments["self"], arguments["other"]):
            inner = arguments_of(part, "add.Tensor")
            whole = part.shape == Value(op.results[0]).shape
            if whole and inner is not None and inner["alpha"] == 1 and part.is_read_once:
                visit(part.maker)
            else:
                terms.append(part)

    visit(root)
    return terms, additions


@dataclass(frozen=True)
class _Experts:
    """The terms of a sum over experts."""

    routing: Routing
    outputs: tuple[Value, ...]
    """The result of each expert, in order."""
    others: list[Value]
    """Terms that no weight of an expert multiplies."""


def _experts(root: Operation, op: OpView) -> _Experts:
    terms, _ = _terms(root)
    routings: dict[Routing, None] = {}
    outputs: dict[int, Value] = {}
    others: list[Value] = []
    for term in terms:
        product = arguments_of(term, "mul.Tensor")
        pairs = [] if product is None else [(product["self"], product["other"]), (product["other"], product["self"])]
        found = [(weight, output) for factor, output in pairs if (weight := _weight_of(factor, output)) is not None]
        if len(found) != 1:
            if not _is_zero(term):
                others.append(term)
            continue
        (routing, expert), output = found[0]
        op.expect(expert not in outputs, "an expert is added twice")
        routings[routing] = None
        outputs[expert] = output
    op.expect(len(routings) == 1 and len(outputs) > 1, "the terms are not experts with weights of one routing")
    (routing,) = routings
    op.expect(sorted(outputs) == list(range(len(outputs))), "the sum leaves out some experts")
    op.expect(
        _chosen_among(routing.indices) == len(outputs), "the indices are not those of the largest scores of all experts"
    )
    return _Experts(routing, tuple(outputs[expert] for expert in range(len(outputs))), others)


def _weight_of(factor: Value, output: Value) -> tuple[Routing, int] | None:
    """The routing and the expert of a factor, if it is one weight for each token of an expert's output."""
    if not output.is_static or factor.shape != (*output.shape[:-1], 1):
        return None
    found = _weight(factor)
    if found is None or not found[0].indices.is_static:
        return None
    tokens = math.prod(found[0].indices.static_shape[:-1])
    return found if tokens == math.prod(output.static_shape[:-1]) else None


@pattern
def _last_term(a: AtenSource, total: Capture, weight: Capture, output: Capture, first: Capture, second: Capture) -> Any:
    "total + weight * output, and up to two more terms: a residual, a shared expert"
    term = total + weight * output
    return any_of(term + first + second, term + first, term), []


def _two_of_three(torch: Any, x: Any, scores: Any, experts: Any) -> Any:
    weights, chosen = scores.topk(2, -1)
    total = 0.0
    for index in range(3):
        total = total + (weights * (chosen == index)).sum(-1, keepdim=True) * (x @ experts[index])
    return total


_NOT_CHOSEN = "the loop multiplies the outputs of experts that are not chosen by 0, which makes NaN of an infinity"


@op_rule("recover", "aten.add.Tensor", name="gather_mm of a loop over experts", size=12, pattern=_last_term,
         unspecified=dict.fromkeys(("infinities and zeros", "NaN"), _NOT_CHOSEN), examples=[
    example("5x4xf32", "5x3xf32", "3x4x6xf32", program=_two_of_three),
])  # fmt: skip
def recovered_loop(op: OpView, c: Coreai) -> Value | None:
    """sum_e weight_e * expert_e(x) as sum_k w_k * expert_(index_k)(x), where the weights are those of topk

    The op is the last addition. Terms without an expert's weight (a residual, a shared expert) are added afterwards.
    """
    root = op.operation
    if op["alpha"] != 1 or op.result.rank < 2:
        return None
    op.ignore("self", "other", because="the terms of the sum are read")
    experts = _experts(root, op)
    routing, first = experts.routing, experts.outputs[0]
    op.expect(
        first.dtype in ("f32", "f16", "bf16") and routing.weights.dtype == first.dtype,
        "the experts and their weights must have one floating-point type",
    )
    op.expect(first.shape == op.result.shape, "an expert broadcasts its result")
    op.cover(*_terms(root)[1])
    gathered = GatheredExperts(op, routing)
    rows = gathered.rows(experts.outputs)
    tokens, k, size = gathered.tokens, gathered.k, rows.static_shape[-1]
    weighted = c.broadcasting_mul(c.reshape(rows, [tokens, k, size]), c.reshape(routing.weights, [tokens, k, 1]))
    total = c.reshape(c.reduce_sum(weighted, [1]), list(first.static_shape))
    for other in experts.others:
        total = c.broadcasting_add(other, total)
    return total  # type: ignore[no-any-return]

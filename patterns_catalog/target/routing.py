"""The choice of experts as a softmax of the chosen scores, which is computed on few numbers.

    p = softmax(x);  v, i = topk(p);  v / sum(v)   ->   v, i = topk(x);  softmax(v)

Both are exp(x_i) over their sum among the chosen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, example, op_rule

_NOT_NUMBERS = dict.fromkeys(
    ("infinities and zeros", "NaN", "large numbers"), "a softmax of such rows is NaN, or 0 in most places"
)
_BROADCASTING = "coreai.decomposable.broadcasting_"


def _routed(torch: Any, x: Any, count: int) -> Any:
    weights, experts = torch.softmax(x, -1).topk(count, -1)
    return weights / weights.sum(-1, keepdim=True), experts


@op_rule("target", f"{_BROADCASTING}divide", name="softmax of the chosen",
         targets=("gpu",), unspecified=_NOT_NUMBERS, examples=[
    example("6x8xf32", program=lambda torch, x: _routed(torch, x, 2)),
    example("2x3x16xf32", program=lambda torch, x: _routed(torch, x, 4)),
])  # fmt: skip
def softmax_of_chosen(op: OpView, c: Coreai) -> Value:
    "v = softmax(x) at i, v / sum(v) -> softmax(x at i), if the i are chosen by the order of the softmax"
    chosen, last = op.input, op.input.rank - 1
    total = op.other.made_by("coreai.reduce_sum")
    if total is None or total.operands[0] is not chosen.ssa or _axes(total.operands[1], chosen.rank) != [last]:
        op.reject("the division is not by the sum of the rows")
    op.expect(set(chosen.users) == {total, op.operation}, "the chosen probabilities have other users")
    gather = chosen.made_by("coreai.gather_along_axis")
    if gather is None:
        op.reject("the rows are not chosen from other rows")
    probabilities, positions, axis = map(Value, gather.operands)
    softmax = probabilities.made_by("coreai.softmax")
    if softmax is None:
        op.reject("the rows are not chosen from a softmax")
    over_last = all(_axes(operand, chosen.rank) == [last] for operand in (axis.ssa, softmax.operands[1]))
    op.expect(over_last, "the softmax or the choice is not along the last axis")
    others = set(probabilities.users) - {gather}
    op.expect(bool(others) and all(_reads_order(user) for user in others), "the softmax has other users")
    op.cover(total, gather)
    return c.softmax(c.gather_along_axis(Value(softmax.operands[0]), positions, last), last)


@op_rule("target", "coreai.softmax", name="order of a softmax",
         targets=("gpu",), unspecified=_NOT_NUMBERS, examples=[
    example("6x8xf32", program=lambda torch, x: torch.softmax(x, -1).topk(3, -1)[1]),
    example("2x9x3xf32", program=lambda torch, x: torch.softmax(x, 1).argsort(1)),
])  # fmt: skip
def order_of_softmax(op: OpView, c: Coreai) -> Value:
    """softmax(x) -> x, if only its order is read

    Numbers that the softmax rounds to equal ones are told apart, and so are those of rows that have a NaN.
    """
    users, axes = Value(op.operation.results[0]).users, _axes(op.axis.ssa, op.input.rank)
    op.expect(
        bool(users) and all(_reads_order(user, axes) for user in users),
        "a user reads more than the order of the softmax",
    )
    return op.input  # type: ignore[no-any-return]


def _axes(constant: Any, rank: int) -> list[int] | None:
    axes = constant_integers(constant)
    return None if axes is None else [axis % rank for axis in axes]


def _reads_order(op: Operation, axes: list[int] | None = None) -> bool:
    """Whether an op serves to order its operand along an axis, NaN first or last, and for nothing else."""
    if op.name == "coreai.argsort":
        return axes is None or _axes(op.operands[1], Value(op.operands[0]).rank) == axes
    if op.name == f"{_BROADCASTING}not_equal":  # where it is NaN
        wheres = {each for each in Value(op.results[0]).users if each.name == f"{_BROADCASTING}where"}
        return op.operands[0] is op.operands[1] and bool(wheres) and _is_sorted(op, but=wheres)
    if op.name != f"{_BROADCASTING}where":
        return False
    missing, infinity = Value(op.operands[0]).made_by(f"{_BROADCASTING}not_equal"), Value(op.operands[1]).constant
    return (
        missing is not None and missing.operands[0] is op.operands[2]
        and infinity is not None and bool(np.isposinf(infinity).all())
        and all(_reads_order(user, axes) for user in Value(op.results[0]).users)
    )  # fmt: skip


def _is_sorted(op: Operation, but: set[Operation]) -> bool:
    """Whether the result of an op is only sorted after casts and gathers, but for some users."""
    for user in set(Value(op.results[0]).users) - but:
        moved = user.name in ("coreai.cast", "coreai.gather_along_axis") and user.operands[0] is op.results[0]
        if user.name != "coreai.argsort" and not (moved and _is_sorted(user, but=set())):
            return False
    return True

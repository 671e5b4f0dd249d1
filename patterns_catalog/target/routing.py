"""The choice of experts as a softmax of the chosen scores, which is computed on few numbers.

    p = softmax(x);  v, i = topk(p);  v / sum(v)   ->   v, i = topk(x);  softmax(v)

Both are exp(x_i) over their sum among the chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from patcomp.authoring import CoreaiSource, CoreaiTarget, coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import Capture, Example, Rewrite, Rule, build, condition, example, rule

_NOT_NUMBERS = dict.fromkeys(
    ("infinities and zeros", "NaN", "large numbers"), "a softmax of such rows is NaN, or 0 in most places"
)
_BROADCASTING = "coreai.decomposable.broadcasting_"


def _routed(torch: Any, x: Any, count: int) -> Any:
    weights, experts = torch.softmax(x, -1).topk(count, -1)
    return weights / weights.sum(-1, keepdim=True), experts


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


@condition("{operand} names the axis {axis} of {rank}")
def _is_axis(operand: Value, axis: int, rank: int) -> bool:
    return _axes(operand.ssa, rank) == [axis]


@condition("only the order of {y} along {axis} is read")
def _is_only_ordered(y: Value, axis: Value) -> bool:
    return bool(y.users) and all(_reads_order(user, _axes(axis.ssa, y.rank)) for user in y.users)


@condition("only the order of {y} is read beside the choice {chosen}")
def _is_else_only_ordered(y: Value, chosen: Value) -> bool:
    others = set(y.users) - {chosen.maker}
    return bool(others) and all(_reads_order(user) for user in others)


def _target(name: str, examples: Sequence[Example]) -> Callable[[Callable[..., Rewrite]], Rule]:
    return rule(
        stage="target", source=coreai_namespace, into=coreai_namespace, name=name, targets=("gpu",), examples=examples,
        unspecified=_NOT_NUMBERS,
    )  # fmt: skip


def _softmax_at(x: Value, positions: Value) -> Value:
    return coreai.softmax(coreai.gather_along_axis(x, positions, x.rank - 1), x.rank - 1)


@_target("softmax of the chosen", [
    example("6x8xf32", program=lambda torch, x: _routed(torch, x, 2)),
    example("2x3x16xf32", program=lambda torch, x: _routed(torch, x, 4)),
])  # fmt: skip
def softmax_of_chosen(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, positions: Capture, along: Capture, axis: Capture, axes: Capture
) -> Rewrite:
    "v = softmax(x) at i, v / sum(v) -> softmax(x at i), if the i are chosen by the order of the softmax"
    softmax = a.seen(a.softmax(x, along))
    chosen = a.gather_along_axis(softmax, positions, axis)
    return Rewrite(
        chosen / a.reduce_sum(chosen, axes),
        to=build(_softmax_at, x, positions),
        where=[
            *(_is_axis(operand, x.rank - 1, x.rank) for operand in (along, axis, axes)),
            _is_else_only_ordered(softmax, chosen),
        ],
    )


@_target("order of a softmax", [
    example("6x8xf32", program=lambda torch, x: torch.softmax(x, -1).topk(3, -1)[1]),
    example("2x9x3xf32", program=lambda torch, x: torch.softmax(x, 1).argsort(1)),
])  # fmt: skip
def order_of_softmax(a: CoreaiSource, c: CoreaiTarget, x: Capture, axis: Capture) -> Rewrite:
    """softmax(x) -> x, if only its order is read

    Numbers that the softmax rounds to equal ones are told apart, and so are those of rows that have a NaN.
    """
    y = a.softmax(x, axis)
    return Rewrite(y, to=x, where=[_is_only_ordered(y, axis)])

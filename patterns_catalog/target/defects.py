"""Ops that devices have computed wrongly, in forms that do not depend on them."""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.authoring import Coreai, CoreaiSource, CoreaiTarget, coreai
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Operation
from patcomp.patterns import Capture, Rewrite, build, condition, example, formula, rule
from patcomp.patterns.aspects import SPECIAL
from patcomp.patterns.conditions import is_constant, is_floating
from patterns_catalog.sizes import plus, positions, size_of

_BROADCASTING = "coreai.decomposable.broadcasting_"


def _is_test(user: Operation, x: Value) -> bool:
    """Whether an op that uses `round(x)` compares it with `x` for equality."""
    return user.name in (f"{_BROADCASTING}equal", f"{_BROADCASTING}not_equal") and x.ssa in user.operands


def _is_corrected(user: Operation, x: Value) -> bool:
    """Whether an op that uses `round(x)` is the `where(..., 2x - round(x), round(x))` of this rule."""
    if user.name != f"{_BROADCASTING}where":
        return False
    other = Value(user.operands[1]).made_by(f"{_BROADCASTING}sub")
    if other is None or other.operands[1] is not user.operands[2]:
        return False
    doubled = Value(other.operands[0]).made_by(f"{_BROADCASTING}mul")
    return doubled is not None and x.ssa in doubled.operands


def _is_floor(users: Sequence[Operation], x: Value) -> bool:
    """Whether `round(x)` is used as in `where(round(x) > x, round(x) - 1, round(x))` alone."""
    by_name = {user.name: user for user in users}
    greater, less = by_name.get(f"{_BROADCASTING}greater"), by_name.get(f"{_BROADCASTING}sub")
    where = by_name.get(f"{_BROADCASTING}where")
    if len(users) != 3 or greater is None or less is None or where is None or greater.operands[1] is not x.ssa:
        return False
    return where.operands[0] is greater.results[0] and where.operands[1] is less.results[0]


@condition("{y} is only used to test whether {x} is whole")
def _is_only_tested(y: Value, x: Value) -> bool:
    return all(_is_test(user, x) for user in y.users)


@condition("{y} is part of a floor of {x}, which is right for either neighbour")
def _is_of_floor(y: Value, x: Value) -> bool:
    return _is_floor([use.operation for use in y.ssa.uses], x)


@condition("a user of {y} corrects halves to even numbers")
def _is_corrected_by_user(y: Value, x: Value) -> bool:
    return any(_is_corrected(user, x) for user in y.users)


def _even_at_halves(x: Value) -> Value:
    c = coreai
    whole, doubled = c.round_(x), c.broadcasting_mul(x, 2.0)
    halved = c.broadcasting_mul(whole, 0.5)
    is_half = c.broadcasting_and(c.broadcasting_equal(c.round_(doubled), doubled), c.broadcasting_not_equal(whole, x))
    is_odd = c.broadcasting_not_equal(c.round_(halved), halved)
    even = c.broadcasting_where(c.broadcasting_and(is_half, is_odd), c.broadcasting_sub(doubled, whole), whole)
    return c.broadcasting_where(c.broadcasting_equal(even, 0.0), c.broadcasting_mul(x, 0.0), even)  # -0.5 gives -0


@rule(
    stage="target", source=coreai_namespace, into=coreai_namespace, name="halves to even numbers", targets=("gpu",),
    examples=[
        example("2x9xf32[-4,4]", program=lambda torch, x: torch.round(x)),
        example("2x9xsi32[-9,9]", program=lambda torch, x: torch.round(x.float() / 2)),
    ],
)  # fmt: skip
def halves_to_even(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    """round(x) -> the other neighbour, 2x - round(x), where round(x) is odd and half away

    Exact, whichever neighbour of a half the device's `round` gives.
    """
    y = a.round(x)
    used = [~_is_only_tested(y, x), ~_is_of_floor(y, x), ~_is_corrected_by_user(y, x)]
    return Rewrite(y, to=build(_even_at_halves, x), where=[is_floating(x), *used])


@formula("target", "coreai.argmax", name="argmax by comparison", targets=("gpu", "neural_engine"), examples=[
    example("2x5xf32", program=lambda torch, x: x.argmax(1)),
    example("3x2x9xsi32[0,3]", program=lambda torch, x: x.argmax(-1, keepdim=True)),
    example("3x7xf32", program=lambda torch, x: x.max(0)),
], unspecified=dict.fromkeys(SPECIAL, "of NaN alone there is no position"),
   where=lambda axis: [is_constant(axis).says("the axis of argmax is not a constant")])  # fmt: skip
def argmax_by_comparison(c: Coreai, input: Value, axis: Value, result: ValueType) -> Value:
    "argmax(x) -> the least position whose value equals the maximum; exact"
    assert axis.constant is not None
    along = int(axis.constant) % input.rank
    size = size_of(c, input, along)
    place = c.reshape(positions(c, size), [*[1] * along, -1, *[1] * (input.rank - along - 1)])
    last = plus(c, size, -1)
    best = c.broadcasting_where(c.broadcasting_equal(input, c.reduce_max(input, [along])), place, last)
    return c.cast(c.reduce_min(best, [along]), result.element_type)

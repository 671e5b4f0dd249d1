"""Uses of `coreai.round` whose result does not depend on the neighbour that it gives for a half."""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation

_BROADCASTING = "coreai.decomposable.broadcasting_"


def _is_test(user: Operation, x: Value) -> bool:
    """Whether an op that uses `round(x)` compares it with `x` for equality."""
    return user.name in (f"{_BROADCASTING}equal", f"{_BROADCASTING}not_equal") and x.ssa in user.operands


def _is_corrected(user: Operation, x: Value) -> bool:
    """Whether an op that uses `round(x)` is `where(..., 2x - round(x), round(x))`, which corrects halves."""
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


def is_only_tested(y: Value, x: Value) -> bool:
    """Whether `y = round(x)` is only used to test whether `x` is whole."""
    return all(_is_test(user, x) for user in y.users)


def is_of_floor(y: Value, x: Value) -> bool:
    """Whether `y = round(x)` is part of a floor of `x`, which is right for either neighbour."""
    return _is_floor([use.operation for use in y.ssa.uses], x)


def is_corrected(y: Value, x: Value) -> bool:
    """Whether a user of `y = round(x)` corrects halves to even numbers."""
    return any(_is_corrected(user, x) for user in y.users)

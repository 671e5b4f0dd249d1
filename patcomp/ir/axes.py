"""Which axis of a value an axis of another order or rank was."""

from __future__ import annotations

from patcomp.ir.constants import constant_integers
from patcomp.ir.traits import Reshape
from patcomp.ir.types import shape_of
from patcomp.ir.xdsl import Operation


def axes_before(op: Operation) -> dict[int, int] | None:
    """For axes of the result, the axis of the operand, of a transpose or an op that only adds axes of size 1; else
    None."""
    if op.name == "coreai.transpose":
        order = constant_integers(op.operands[1])
        return None if order is None else dict(enumerate(order))
    if not op.has_trait(Reshape):
        return None
    before, after = (shape_of(value.type) for value in (op.operands[0], op.results[0]))
    axes: dict[int, int] = {}
    for axis, size in enumerate(after):
        if len(axes) < len(before) and size == before[len(axes)]:
            axes[axis] = len(axes)
        elif size != 1:
            return None
    return axes if len(axes) == len(before) else None

"""Scatters in branches on which the runtime ends the process: a hazard.

If two scatters of a branch write into tensors of dynamic size, and the branch computes the second one's values after
the first scatter, the runtime puts these values into the memory of the first one's values, and does not find that
memory. Observed with coreai-core 1.0.0b3.
"""

from __future__ import annotations

from itertools import combinations

from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.merged_branches import is_open
from patcomp.ir.traits import Elementwise
from patcomp.ir.xdsl import Block, Operation, maker_of

_SCATTERS = {"coreai.scatter_along_axis", "coreai.scatter_nd"}


def open_scatters(branch: Block) -> list[Operation]:
    """The scatters of a branch into tensors of dynamic size, in order."""
    return [op for op in branch.ops if op.name in _SCATTERS and is_open(op.results[0].type)]


def reuses_lost_memory(branch: Block) -> bool:
    """Whether a branch computes the values of a scatter after an earlier scatter, whose values nothing reads later."""
    scatters = open_scatters(branch)
    if len(scatters) < 2:
        return False
    places = {op: place for place, op in enumerate(branch.ops)}
    for first, second in combinations(scatters, 2):
        written, next_written = (_computed(op, branch) for op in (first, second))
        if written is None or next_written is None or second.operands[0] is first.results[0]:
            continue
        last_read = max(places.get(use.operation, len(places)) for use in written.results[0].uses)
        if last_read < places[next_written] and places[first] < places[next_written]:
            return True
    return False


def _computed(scatter: Operation, branch: Block) -> Operation | None:
    """The elementwise op of the branch that computes a scatter's updates; None for values from outside and for
    views."""
    assert isinstance(scatter, CoreaiOp)
    maker = maker_of(scatter.arguments_by_name()["updates"].ssa)
    return maker if maker is not None and maker.parent is branch and maker.has_trait(Elementwise) else None

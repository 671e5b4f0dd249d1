"""In a branch, compute the values of all scatters before the first scatter.

In a branch of a `coreai.if`, the runtime reuses the memory of the values of one scatter into a tensor of dynamic size
for the values of a later scatter. It does not find this memory and ends the process. Observed with coreai-core 1.0.0b3.
"""

from __future__ import annotations

from patcomp.ir.cleanup import is_removable
from patcomp.ir.module import IRModule
from patcomp.ir.scatters import open_scatters
from patcomp.ir.xdsl import Block, Operation, ops_inside
from patcomp.patterns.statistics import Statistics


def scatter_last(module: IRModule, statistics: Statistics) -> None:
    """Move what needs no scatter of its branch in front of the branch's first scatter."""
    for op in ops_inside(module.op):
        for branch in op.regions if op.name == "coreai.if" else ():
            if _settle(branch.block):
                statistics.record("computed before scatters", True, 0.0)


def _settle(branch: Block) -> int:
    scatters = open_scatters(branch)
    if len(scatters) < 2:
        return 0
    first, moved, stays = scatters[0], 0, set[Operation]()
    op: Operation | None = first
    while op is not None:
        following = op.next_op
        needs_scatter = any(operand.owner in stays for operand in op.operands)
        if op in scatters or needs_scatter or op.regions or not is_removable(op):
            stays.add(op)
        else:
            op.detach()
            branch.insert_op_before(op, first)
            moved += 1
        op = following
    return moved

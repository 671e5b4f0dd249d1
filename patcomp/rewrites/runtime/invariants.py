"""Compute before a loop what its steps would compute again and again from values outside.

The toolchain does so, too. But if the loop is in a branch, and a later op of the branch computes the same from a
dynamic size, the runtime aborts: it finds no tensor. (Observed with coreai-core 1.0.0b3.) Here, ops are moved before
equal ops are merged, so the program is right on every runtime.
"""

from __future__ import annotations

from collections.abc import Container

from patcomp.ir.cleanup import called_graphs, can_go, merge_equal_ops, pure_graphs
from patcomp.ir.constants import is_constant
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Operation, is_inside, ops_inside
from patcomp.patterns.statistics import Statistics


def compute_before_loops(module: IRModule, statistics: Statistics) -> None:
    """Move the ops whose results do not change in a loop in front of the loop, and merge equal ops there."""
    loops = {
        graph: [op for op in reversed(ops_inside(graph)) if op.name == "coreai.while"]  # inner loops first
        for graph in module.graphs
    }
    if not any(loops.values()):
        return  # most programs have none, and pure graphs take a walk through all ops
    pure = pure_graphs(module, called_graphs(module))
    for graph, inside in loops.items():
        if sum(_moved(loop, pure) for loop in inside):
            statistics.record("computed before a loop", True, 0.0)
            merge_equal_ops(graph, pure)


def _moved(loop: Operation, pure: Container[str]) -> int:
    """Move the ops of a loop's blocks whose operands are from outside; return how many there are."""
    count = 0
    for region in loop.regions:
        for op in list(region.block.ops):
            if can_go(op, pure) and not op.regions and _is_unchanged(op, loop):
                constants = [operand.owner for operand in op.operands if is_inside(operand, loop)]
                for moved in (*dict.fromkeys(constants), op):
                    assert loop.parent is not None
                    assert isinstance(moved, Operation)
                    moved.detach()
                    loop.parent.insert_op_before(moved, loop)
                count += 1
    return count


def _is_unchanged(op: Operation, loop: Operation) -> bool:
    """Whether an op computes the same in each step, from a value that is no constant."""
    given = [operand for operand in op.operands if not is_constant(operand)]
    return bool(given) and not any(is_inside(operand, loop) for operand in given)

"""What the steps of a loop compute again and again from values outside: it is computed before the loop.

The toolchain does so, too. But if the loop is in a branch, and a later op of the branch computes the same from a
dynamic size, the runtime aborts: it finds no tensor. Here, ops are moved before
equal ops are merged, so the program is right on every runtime.
"""

from __future__ import annotations

from collections.abc import Container

from patcomp.defects.defect import Defect, Probe
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


DEFECT = Defect(
    name="repeated_in_loops",
    says="The runtime aborts if a loop in a branch, and an op behind it, compute the same from a dynamic size.",
    mend=compute_before_loops,
    ops=("coreai.while",),
    after=("empty_tensors",),  # free
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<?xf32> {coreai.name = "x"}, %c: tensor<i1> {coreai.name = "c"})
    -> (tensor<?xf32> {coreai.name = "y"}) {
  %y = coreai.if %c {
    %zero = coreai.constant dense<0> : tensor<si32>
    %start = coreai.add %zero, %zero : (tensor<si32>, tensor<si32>) -> tensor<si32>
    %init = coreai.add %x, %x : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
    %steps, %looped = coreai.while %start, %init {
    ^bb0(%i: tensor<si32>, %a: tensor<?xf32>):
      %two = coreai.constant dense<2> : tensor<si32>
      %more = coreai.greater %two, %i : (tensor<si32>, tensor<si32>) -> tensor<i1>
      coreai.condition %more, %i, %a : (tensor<i1>, tensor<si32>, tensor<?xf32>)
    } do {
    ^bb0(%i: tensor<si32>, %a: tensor<?xf32>):
      %one = coreai.constant dense<1> : tensor<si32>
      %next = coreai.add %i, %one : (tensor<si32>, tensor<si32>) -> tensor<si32>
      %square = coreai.mul %x, %x : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      %sum = coreai.add %a, %square : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      coreai.yield %next, %sum : tensor<si32>, tensor<?xf32>
    } : (tensor<si32>, tensor<?xf32>) -> (tensor<si32>, tensor<?xf32>)
    %again = coreai.mul %x, %x : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
    %half = coreai.relu %again : (tensor<?xf32>) -> tensor<?xf32>
    %rest = coreai.sub %looped, %half : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
    coreai.yield %rest : tensor<?xf32>
  } else {
    coreai.yield %x : tensor<?xf32>
  } : tensor<i1> -> tensor<?xf32>
  coreai.output %y : tensor<?xf32>
}
""",
            inputs={"x": [1, 2], "c": True},
            gives={"y": [3, 8]},
            symptom="dies",
        ),
    ),
)

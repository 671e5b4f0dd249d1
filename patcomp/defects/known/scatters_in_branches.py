"""Scatters in a branch: the values of all of them are computed before the first.

If two scatters of a branch write into tensors of dynamic size, and the branch computes the second one's values after
the first scatter, the runtime puts these values into the memory of the first one's values. It does not find that
memory, and ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from patcomp.defects.defect import Defect, Probe
from patcomp.ir.cleanup import is_removable
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.traits import Elementwise
from patcomp.ir.types import is_open
from patcomp.ir.xdsl import Block, Operation, maker_of, ops_inside
from patcomp.patterns.statistics import Statistics

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
    """The op of the branch that computes what a scatter writes; None for values from outside and for views."""
    assert isinstance(scatter, CoreaiOp)
    maker = maker_of(scatter.arguments_by_name()["updates"].ssa)
    return maker if maker is not None and maker.parent is branch and maker.has_trait(Elementwise) else None


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


def _detect(branches: CoreaiOp, module: IRModule) -> Iterator[str]:
    if any(reuses_lost_memory(region.block) for region in branches.regions if region.blocks):
        yield (
            "a branch computes the values of a scatter after another scatter into a tensor of dynamic size, on which "
            "the runtime ends the process; compute the values before the first scatter"
        )


DEFECT = Defect(
    name="scatters_in_branches",
    says="The runtime loses the memory of what one of two scatters of a branch writes, and ends the process.",
    detect={"coreai.if": _detect},
    mend=scatter_last,
    ops=("coreai.if",),
    after=("merged_branches",),  # free
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<?x4xf32> {coreai.name = "x"}, %c: tensor<i1> {coreai.name = "c"})
    -> (tensor<?x4xf32> {coreai.name = "y"}) {
  %y = coreai.if %c {
    coreai.yield %x : tensor<?x4xf32>
  } else {
    %start = coreai.constant dense<0> : tensor<2xsi32>
    %end = coreai.constant dense<[1, 4]> : tensor<2xsi32>
    %step = coreai.constant dense<1> : tensor<2xsi32>
    %row = coreai.slice %x, %start, %end, %step
        : (tensor<?x4xf32>, tensor<2xsi32>, tensor<2xsi32>, tensor<2xsi32>) -> tensor<1x4xf32>
    %rows = coreai.constant dense<1> : tensor<1x4xsi32>
    %axis = coreai.constant dense<0> : tensor<si32>
    %a = coreai.add %row, %row : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
    %first = coreai.scatter_along_axis %x, %rows, %a, %axis scatter_mode = <add>
        : (tensor<?x4xf32>, tensor<1x4xsi32>, tensor<1x4xf32>, tensor<si32>) -> tensor<?x4xf32>
    %b = coreai.mul %row, %row : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
    %second = coreai.scatter_along_axis %x, %rows, %b, %axis scatter_mode = <add>
        : (tensor<?x4xf32>, tensor<1x4xsi32>, tensor<1x4xf32>, tensor<si32>) -> tensor<?x4xf32>
    %sum = coreai.add %first, %second : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    coreai.yield %sum : tensor<?x4xf32>
  } : tensor<i1> -> tensor<?x4xf32>
  coreai.output %y : tensor<?x4xf32>
}
""",
            inputs={"x": [[1, 1, 1, 1], [2, 2, 2, 2]], "c": False},
            gives={"y": [[2, 2, 2, 2], [7, 7, 7, 7]]},
            symptom="dies",
        ),
    ),
)

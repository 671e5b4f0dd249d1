"""Branches that only pass on values from outside: one of them yields a copy.

The runtime cannot choose between two values that a `coreai.if` only passes on. The toolchain folds ops on constants and
moves the result out of the branch. It would fold a copy, too, so the choice between two constants is computed by ops.
"""

from __future__ import annotations

from patcomp.defects.copies import copy_of, is_made
from patcomp.defects.defect import Defect, Probe
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import is_constant
from patcomp.ir.module import IRModule
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, SSAValue, TensorType, ops_inside
from patcomp.patterns.statistics import Statistics


def own_branch_results(module: IRModule, statistics: Statistics) -> None:
    """Insert a copy wherever both branches of a `coreai.if` yield values from outside or from constants."""
    for op in ops_inside(module.op):
        if op.name == "coreai.if":
            _copy(op, module, statistics)


def _copy(branches: Operation, module: IRModule, statistics: Statistics) -> None:
    first, second = (region.block.last_op for region in branches.regions)
    assert first is not None
    assert second is not None
    for index, (one, other) in enumerate(zip(first.operands, second.operands, strict=True)):
        folded = [_is_folded(value) for value in (one, other)]
        outside = [not is_made(value, holder) for value, holder in ((one, first), (other, second))]
        if isinstance(one.type, TensorType) and (folded[0] or outside[0]) and (folded[1] or outside[1]):
            if not folded[0]:
                first.operands[index] = copy_of(one, first, module)
            elif not folded[1]:
                second.operands[index] = copy_of(other, second, module)
            else:
                first.operands[index] = _chosen(branches.operands[0], one, first, module)
            statistics.record("own branch result", True, 0.0)


def _is_folded(value: SSAValue) -> bool:
    """Whether a value is a constant, or computed from constants only."""
    op = value.owner
    if is_constant(value):
        return True
    return isinstance(op, Operation) and not op.regions and bool(op.operands) and all(map(_is_folded, op.operands))


def _chosen(condition: SSAValue, constant: SSAValue, holder: Operation, module: IRModule) -> SSAValue:
    """A constant where the condition holds, as it does at the end of the first branch; else zero."""
    assert holder.parent is not None
    with Builder(holder.parent, before=holder, blobs=module.blobs, location=holder.location):
        zero = coreai.constant(0, Value(constant).element_type)
        return coreai.broadcasting_where(Value(condition), Value(constant), zero).ssa  # type: ignore[no-any-return]


DEFECT = Defect(
    name="choices_of_outside_values",
    says="The runtime cannot choose between two values that the branches of an `if` only pass on.",
    mend=own_branch_results,
    ops=("coreai.if",),
    after=("nested_results",),  # free; after `moved_copies`, which leaves fewer choices
    probes=(
        Probe(
            program="""
coreai.graph @main(%x: tensor<2xf32> {coreai.name = "x"}, %z: tensor<2xf32> {coreai.name = "z"},
    %c: tensor<i1> {coreai.name = "c"})
    -> (tensor<2xf32> {coreai.name = "y"}) {
  %y = coreai.if %c {
    coreai.yield %x : tensor<2xf32>
  } else {
    coreai.yield %z : tensor<2xf32>
  } : tensor<i1> -> tensor<2xf32>
  coreai.output %y : tensor<2xf32>
}
""",
            inputs={"x": [1, 2], "z": [3, 4], "c": False},
            gives={"y": [3, 4]},
            symptom="is refused",
        ),
    ),
)

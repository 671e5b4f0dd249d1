"""Branches that only pass on values from outside, of known sizes: `where` chooses, without a branch.

The runtime cannot choose between such values (`choices_of_outside_values`). If it can move a copy of one out of the
branch, it does not load the program. A choice between a value and itself is the value.
"""

from __future__ import annotations

from patcomp.defects.defect import Defect
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.types import is_static
from patcomp.ir.value import Value, replace_op
from patcomp.ir.xdsl import Operation, SSAValue, TensorType, is_inside, maker_of, ops_inside
from patcomp.patterns.statistics import Statistics


def choose_outside_values(module: IRModule, statistics: Statistics) -> None:
    """Compute the results of branches that are values from outside by `where`, and drop these results."""
    for op in reversed(ops_inside(module.op)):  # inner branches first
        if isinstance(op, CoreaiOp) and op.name == "coreai.if":
            _choose(op, module, statistics)


def _choose(branches: CoreaiOp, module: IRModule, statistics: Statistics) -> None:
    first, second = (region.block.last_op for region in branches.regions)
    assert first is not None
    assert second is not None
    pairs = list(zip(first.operands, second.operands, strict=True))
    chosen = [
        (one is other or _is_static(one)) and all(_is_outside(value, branches) for value in (one, other))
        for one, other in pairs
    ]
    if not any(chosen):
        return
    assert branches.parent is not None
    with Builder(branches.parent, before=branches, blobs=module.blobs, location=branches.location):
        results = {
            index: _chosen(branches.operands[0], *(_taken_out(value, branches) for value in pairs[index]))
            for index, is_chosen in enumerate(chosen)
            if is_chosen
        }
    statistics.record("choice between values from outside", True, 0.0)
    kept = [index for index, is_chosen in enumerate(chosen) if not is_chosen]
    if kept:
        for terminator in (first, second):
            terminator.operands = [terminator.operands[index] for index in kept]
        made = type(branches).create(
            operands=branches.operands,
            result_types=[branches.results[index].type for index in kept],
            regions=[branches.detach_region(region) for region in list(branches.regions)],
            location=branches.location,
        )
        branches.parent.insert_op_before(made, branches)
        results |= dict(zip(kept, made.results, strict=True))
    replace_op(branches, [results[index] for index in range(len(pairs))])


def _chosen(condition: SSAValue, one: SSAValue, other: SSAValue) -> SSAValue:
    """One of two values; of a value and itself, the value."""
    return one if one is other else coreai.broadcasting_where(Value(condition), Value(one), Value(other)).ssa


def _is_static(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and is_static(value.type)


def _is_outside(value: SSAValue, branches: Operation) -> bool:
    """Whether a value is there before some branches, or is a constant."""
    return not is_inside(value, branches) or is_constant(value)


def _taken_out(value: SSAValue, branches: Operation) -> SSAValue:
    """The value outside the branches; a constant inside them is moved out first."""
    maker = maker_of(value)
    if maker is not None and branches.is_ancestor(maker):
        assert branches.parent is not None
        maker.detach()
        branches.parent.insert_op_before(maker, branches)
    return value


DEFECT = Defect(
    name="moved_copies",
    says="The toolchain moves a copy of a value from outside out of its branch, and then does not load the program.",
    mend=choose_outside_values,
    ops=("coreai.if",),
    after=("conditions_in_place",),  # free
    probes="only a long program shows it: nested choices between a value and itself in a loop",
)

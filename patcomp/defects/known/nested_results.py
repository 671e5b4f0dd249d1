"""What a nested block yields to an outer branch: the branch yields a copy.

The runtime may end the process otherwise.
"""

from __future__ import annotations

from patcomp.defects.copies import NESTING, copy_of, is_made
from patcomp.defects.defect import Defect
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import OpResult, TensorType, ops_inside
from patcomp.patterns.statistics import Statistics


def own_nested_results(module: IRModule, statistics: Statistics) -> None:
    """Copy the results of branches and loops that an outer branch yields."""
    for branches in ops_inside(module.op):
        for region in branches.regions if branches.name == "coreai.if" else ():
            holder = region.block.last_op
            assert holder is not None
            for index, value in enumerate(holder.operands):
                nested = isinstance(value, OpResult) and value.op.name in NESTING and is_made(value, holder)
                if nested and isinstance(value.type, TensorType):
                    holder.operands[index] = copy_of(value, holder, module)
                    statistics.record("own branch result", True, 0.0)


DEFECT = Defect(
    name="nested_results",
    says="The runtime may end the process if a branch yields the result of a nested branch or loop.",
    mend=own_nested_results,
    ops=("coreai.if",),
    after=("carried_values_in_place",),  # free
    probes="no small program shows it: programs of nested blocks over sizes that are not known died",
)

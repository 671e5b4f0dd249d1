"""Numbers computed from sizes that the ops of a called graph take as data: elements of ranges stand for them.

The runtime fails with "Expected operands to be tensors" for two dependent calls if both graphs compute a number from a
dynamic size (`n - 1`), use it as data, and use the size for a shape as well: it handles such numbers separately from
tensors, and loses them between the calls. The element of a one-element range is a tensor, so it avoids this.
"""

from __future__ import annotations

from patcomp.defects.defect import Defect
from patcomp.ir import aten, coreai
from patcomp.ir.builder import Builder
from patcomp.ir.locations import fused
from patcomp.ir.module import IRModule
from patcomp.ir.region import RegionOp
from patcomp.ir.types import is_integer, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, ops_inside, set_name
from patcomp.patterns.statistics import Statistics


def sizes_as_data(module: IRModule, statistics: Statistics) -> None:
    """Replace the numbers that regions compute from sizes and use as data by elements of ranges."""
    for region in ops_inside(module.op):
        if type(region) is not RegionOp or region.graph is not None:
            continue
        numbers: set[Value] = set()
        for op in list(region.body.block.ops):
            if op.name == "aten.sym_size.int":
                numbers.add(Value(op.results[0]))
            elif isinstance(op, aten.AtenOp) and any(Value(operand) in numbers for operand in op.operands):
                result = Value(op.results[0])
                if result.rank == 0 and is_integer(result.element_type):
                    numbers.add(result)
                    _make_data(op, result, module)


def _make_data(op: Operation, number: Value, module: IRModule) -> None:
    """Where a number is used as data, use the only element of a range that starts with the number instead."""
    uses = [use for use in number.ssa.uses if _is_data(use.operation, number)]
    if not uses:
        return
    block, element = op.parent, number.element_type
    assert block is not None
    with Builder(block, before=op.next_op, blobs=module.blobs, location=fused("a size as data", [op])):
        following = aten.build("aten.add.Tensor", number.type, self=number, other=coreai.constant(1, element))
        single = aten.build("aten.arange.start_step", tensor((1,), element), start=number, end=following, step=1)
        made = aten.build("aten.view", number.type, self=single, size=[])
    set_name(made.ssa, number.ssa.name_hint)
    for use in uses:
        use.operation.operands[use.index] = made.ssa


def _is_data(user: Operation, number: Value) -> bool:
    """Whether an op takes a number as a tensor of data, not as a size or to compute another size."""
    if not isinstance(user, aten.AtenOp) or not any(value == number for value in user.arguments_by_name().values()):
        return not isinstance(user, aten.AtenOp)
    result = Value(user.results[0])
    is_size = result.rank == 0 and is_integer(result.element_type)
    return not is_size and user.name not in ("aten.arange.start_step", "aten.slice.Tensor", "aten.select.int")


DEFECT = Defect(
    name="sizes_as_data",
    says="The runtime loses a number between two calls that compute it from a dynamic size and use it as data.",
    mend=sizes_as_data,
    ops=("aten.sym_size.int",),
    stage="recover",
    probes="only a long program shows it: chained calls of attention",
)

"""Decide at the end of an iteration whether a loop goes on, unless its condition is one comparison of numbers.

The runtime computes conditions in the memory of the carried values, which the loop returns afterwards. Even a remainder
of the step may be written to the first element of another value. The condition is therefore computed before the loop
and again at the end of its body, and its result is carried.
"""

from __future__ import annotations

from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.in_place import is_unsafe_condition
from patcomp.ir.module import IRModule
from patcomp.ir.value import replace_op
from patcomp.ir.xdsl import InsertPoint, Operation, Region, Rewriter, SSAValue, ops_inside
from patcomp.patterns.statistics import Statistics


def carry_conditions(module: IRModule, statistics: Statistics) -> None:
    """Give each loop with an unsafe condition one more value: whether it goes on."""
    for op in reversed(ops_inside(module.op)):  # inner loops first
        if isinstance(op, CoreaiOp) and op.name == "coreai.while" and is_unsafe_condition(op):
            _carry_condition(op)
            statistics.record("carried condition", True, 0.0)


def _carry_condition(loop: CoreaiOp) -> None:
    condition, body = loop.regions
    assert body.block.last_op is not None
    first = _computed(condition, loop, tuple(loop.operands))
    later = _computed(condition, body.block.last_op, tuple(body.block.last_op.operands))
    body.block.last_op.operands = (*body.block.last_op.operands, later)
    flag = condition.block.insert_arg(first.type, len(condition.block.args))
    body.block.insert_arg(first.type, len(body.block.args))
    assert condition.block.last_op is not None
    condition.block.last_op.operands = (flag, *condition.block.last_op.operands[1:], flag)
    for op in reversed(list(condition.block.ops)[:-1]):
        condition.block.erase_op(op)
    made = type(loop).create(
        operands=(*loop.operands, first),
        result_types=(*(result.type for result in loop.results), first.type),
        properties=dict(loop.properties),
        regions=[loop.detach_region(region) for region in list(loop.regions)],
        location=loop.location,
    )
    assert loop.parent is not None
    loop.parent.insert_op_before(made, loop)
    replace_op(loop, made.results[:-1])


def _computed(condition: Region, before: Operation, values: tuple[SSAValue, ...]) -> SSAValue:
    """Whether a loop goes on with some values, computed before an op."""
    copy = condition.clone().block
    terminator = copy.last_op
    assert terminator is not None
    Rewriter.inline_block(copy, InsertPoint.before(before), values)
    flag = terminator.operands[0]
    assert terminator.parent is not None
    terminator.parent.erase_op(terminator)
    return flag

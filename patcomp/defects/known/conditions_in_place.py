"""Conditions of loops that are more than one comparison of numbers: the body computes whether the loop goes on.

The runtime computes conditions in the memory of the carried values, which the loop returns afterwards. Even a remainder
of the step may be written to the first element of another value. The condition is therefore computed before the loop
and again at the end of its body, and its result is carried.
"""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.defects.defect import Defect
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.module import IRModule
from patcomp.ir.traits import Elementwise
from patcomp.ir.value import replace_op
from patcomp.ir.xdsl import InsertPoint, Operation, Region, Rewriter, SSAValue, ops_inside
from patcomp.patterns.statistics import Statistics


def is_unsafe_condition(loop: Operation) -> bool:
    """Whether a loop's condition computes more than one comparison of single numbers.

    The runtime may store intermediate values of a condition in the memory of any value that the loop returns.
    A condition is left alone where it passes on other values than it was given.
    """
    block = loop.regions[0].block
    assert block.last_op is not None
    if tuple(block.last_op.operands[1:]) != tuple(block.args):
        return False
    computed = [op for op in block.ops if op is not block.last_op and op.name != "coreai.constant"]
    return len(computed) > 1 or not all(op.has_trait(Elementwise) for op in computed)


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


def _detect(loop: CoreaiOp, module: IRModule) -> Iterator[str]:
    if is_unsafe_condition(loop):
        yield "its condition computes in the memory of carried values; compute it in the body and carry the result"


DEFECT = Defect(
    name="conditions_in_place",
    says="The runtime computes the condition of a loop in the memory of the values that the loop carries.",
    detect={"coreai.while": _detect},
    mend=carry_conditions,
    ops=("coreai.while",),
    probes="only drawn programs of many ops show it",
)

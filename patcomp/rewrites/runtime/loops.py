"""Copy loop-carried values and branch results that share memory with other values.

The runtime carries values by reference and computes in place: the initial value of a loop may change while the loop
runs (even a constant, which other loops may share), and the result of a nested `if` or `while` is the same memory in
every iteration. So each initial value of a `coreai.while`, and each value that its body yields, must be the result of
an op with no other use. All others are copied. So are carried values that the body reads unsafely
(`patcomp.ir.in_place`).

States that nested blocks read are copied, too. (The runtime aborts if a handle is written while a nested block still
refers to its content.)
"""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import is_constant
from patcomp.ir.in_place import read_unsafely
from patcomp.ir.merged_branches import are_merged, count_ops, has_open_result, is_open
from patcomp.ir.module import IRModule, callee
from patcomp.ir.traits import View
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, OpResult, SSAValue, TensorType, is_inside, ops_inside
from patcomp.patterns.statistics import Statistics

_NESTING = ("coreai.if", "coreai.while")


def own_values(module: IRModule, statistics: Statistics) -> None:
    """Insert the copies that the runtime needs in every graph of a module."""
    for op in ops_inside(module.op):
        if op.name == "coreai.invoke":
            if any(map(_is_state, op.operands)) and _has_blocks(op, module):
                _own_captured_states(op, [op], module, statistics)
        elif op.name in _NESTING:
            _own_captured_states(op, ops_inside(op), module, statistics)
            (_own_branch_results if op.name == "coreai.if" else _own_carried_values)(op, module, statistics)


def _own_carried_values(loop: Operation, module: IRModule, statistics: Statistics) -> None:
    """Copy the initial and yielded values of a loop that have other uses, and carried values that are read unsafely."""
    body = loop.regions[1].block
    assert body.first_op is not None
    assert body.last_op is not None
    for holder in (loop, body.last_op):
        for index, operand in enumerate(holder.operands):
            if not _is_own(operand, holder) and isinstance(operand.type, TensorType):
                holder.operands[index] = copied(operand, holder, module)
                statistics.record("own carried value", True, 0.0)
    first = body.first_op
    for carried in list(read_unsafely(body)):
        uses = list(carried.uses)
        copy = copied(carried, first, module)
        for use in uses:
            use.operation.operands[use.index] = copy
        statistics.record("own carried value", True, 0.0)


def _own_branch_results(branches: Operation, module: IRModule, statistics: Statistics) -> None:
    """Insert a copy if both branches yield a value from outside, because the runtime cannot choose between these. Also
    copy what a nested block yields to an outer block, because the runtime may end the process otherwise.

    The toolchain folds ops on constants and moves the result out of the branch. It would fold a copy,
    too, so the choice between two constants is computed by ops.
    """
    first, second = (region.block.last_op for region in branches.regions)
    assert first is not None
    assert second is not None
    for holder in (first, second):
        for index, value in enumerate(holder.operands):
            if _is_made(value, holder) and value.owner.name in _NESTING and isinstance(value.type, TensorType):  # type: ignore[union-attr]
                holder.operands[index] = copied(value, holder, module)
                statistics.record("own branch result", True, 0.0)
    for index, (one, other) in enumerate(zip(first.operands, second.operands, strict=True)):
        folded = [_is_folded(value) for value in (one, other)]
        outside = [not _is_made(value, holder) for value, holder in ((one, first), (other, second))]
        if isinstance(one.type, TensorType) and (folded[0] or outside[0]) and (folded[1] or outside[1]):
            if not folded[0]:
                first.operands[index] = copied(one, first, module)
            elif not folded[1]:
                second.operands[index] = copied(other, second, module)
            else:
                first.operands[index] = _chosen(branches.operands[0], one, first, module)
            statistics.record("own branch result", True, 0.0)
    _tell_branches_apart(branches, module, statistics)


def _tell_branches_apart(branches: Operation, module: IRModule, statistics: Statistics) -> None:
    """Insert a copy of a result at the end of one branch if the toolchain might merge both
    (`patcomp.ir.merged_branches`).

    The branch of more ops gets the copy: the other one may end in such an op itself, `relu(x)` beside `x`.
    """
    if not has_open_result(branches):
        return
    last = max(branches.regions, key=count_ops).block.last_op
    assert last is not None
    index, value = next((index, value) for index, value in enumerate(last.operands) if is_open(value.type))
    if _is_copy(value, last) and not are_merged(branches):
        return  # the program was optimized before
    last.operands[index] = copied(value, last, module)
    statistics.record("own branch result", True, 0.0)


def _own_captured_states(op: Operation, users: Sequence[Operation], module: IRModule, statistics: Statistics) -> None:
    """Insert copies before an op of the outside states that its nested blocks, or a called graph, read."""
    copies: dict[SSAValue, SSAValue] = {}
    for user in users:
        for index, operand in enumerate(user.operands):
            if _is_state(operand) and not is_inside(operand, op):
                if operand not in copies:
                    copies[operand] = copied(operand, op, module)
                    statistics.record("own captured state", True, 0.0)
                user.operands[index] = copies[operand]


def _has_blocks(invoke: Operation, module: IRModule) -> bool:
    """Whether a called graph, or one that it calls, has branches or loops."""
    called = module.graph(callee(invoke))
    return any(
        op.name in _NESTING or (op.name == "coreai.invoke" and _has_blocks(op, module)) for op in ops_inside(called)
    )  # fmt: skip


def _is_state(value: SSAValue) -> bool:
    """Whether a value is the memory of a handle, or a view of it."""
    op = value.owner
    if not isinstance(op, Operation):
        return False
    return op.name == "coreai.read_handle" or (op.has_trait(View) and _is_state(op.operands[0]))


def _is_made(value: SSAValue, holder: Operation) -> bool:
    """Whether an op in the holder's block computed a value."""
    return isinstance(value, OpResult) and value.op.parent is holder.parent and not _is_shared(value.op)


def _is_own(value: SSAValue, holder: Operation) -> bool:
    """Whether an op in the holder's block computed a value that has no other use."""
    if not isinstance(value, OpResult) or not _is_made(value, holder):
        return False
    return value.op.name not in _NESTING and len(list(value.uses)) == 1


_COPIES = {"coreai.decomposable.broadcasting_maximum", "coreai.decomposable.broadcasting_or"}


def _is_shared(op: Operation) -> bool:
    """Whether the results of an op may share memory with other values."""
    return op.name in ("coreai.constant", "coreai.read_handle") or op.has_trait(View)


def _is_copy(value: SSAValue, holder: Operation) -> bool:
    """Whether a value is a copy that was made in the holder's block."""
    if not isinstance(value, OpResult) or not _is_made(value, holder):
        return False
    return value.op.name in _COPIES and value.op.operands[0] is value.op.operands[1]


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


def copied(value: SSAValue, holder: Operation, module: IRModule) -> SSAValue:
    """A copy of a value before an op: the larger of the value and itself, which the toolchain does not drop."""
    assert holder.parent is not None
    assert isinstance(value.type, TensorType)
    given = Value(value)
    larger = coreai.broadcasting_or if given.dtype == "i1" else coreai.broadcasting_maximum
    with Builder(holder.parent, before=holder, blobs=module.blobs, location=holder.location):
        return larger(given, given, result_type=value.type).ssa  # type: ignore[no-any-return]

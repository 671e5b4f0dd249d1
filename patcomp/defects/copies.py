"""Copies that the toolchain does not drop, and whether a value has memory of its own."""

from __future__ import annotations

from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule
from patcomp.ir.traits import View
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, OpResult, SSAValue, TensorType

NESTING = ("coreai.if", "coreai.while")
"""Ops with nested blocks."""

_COPIES = {"coreai.decomposable.broadcasting_maximum", "coreai.decomposable.broadcasting_or"}


def copy_of(value: SSAValue, holder: Operation, module: IRModule) -> SSAValue:
    """A copy of a value before an op: the larger of the value and itself, which the toolchain does not drop."""
    assert holder.parent is not None
    assert isinstance(value.type, TensorType)
    given = Value(value)
    larger = coreai.broadcasting_or if given.dtype == "i1" else coreai.broadcasting_maximum
    with Builder(holder.parent, before=holder, blobs=module.blobs, location=holder.location):
        return larger(given, given, result_type=value.type).ssa  # type: ignore[no-any-return]


def is_made(value: SSAValue, holder: Operation) -> bool:
    """Whether an op in the holder's block computed a value."""
    return isinstance(value, OpResult) and value.op.parent is holder.parent and not _is_shared(value.op)


def is_copy(value: SSAValue, holder: Operation) -> bool:
    """Whether a value is a copy that was made in the holder's block."""
    if not isinstance(value, OpResult) or not is_made(value, holder):
        return False
    return value.op.name in _COPIES and value.op.operands[0] is value.op.operands[1]


def _is_shared(op: Operation) -> bool:
    """Whether the results of an op may share memory with other values."""
    return op.name in ("coreai.constant", "coreai.read_handle") or op.has_trait(View)

"""Result types of `coreai` ops from operand types and constant operands, one function a kind of op.

A dimension that depends on values of the run is None. A function raises `InferenceError` if the operands do not fit
each other. The native verifier accepts many of these shapes, and then the runtime computes wrong numbers or aborts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patcomp.ir.infer import elementwise, indexing, reductions, shapes, sources, windows  # noqa: F401  (they register)
from patcomp.ir.infer.common import (
    INFERENCES,
    InferenceError,
    InferredOp,
    RuntimeRefusalError,
    UndeterminedError,
    broadcast_shapes,
    compatible,
    merge,
    normalize_axis,
)
from patcomp.ir.rows import Row
from patcomp.ir.xdsl import Attribute, SSAValue

__all__ = [
    "INFERENCES",
    "InferenceError",
    "RuntimeRefusalError",
    "UndeterminedError",
    "broadcast_shapes",
    "compatible",
    "infer_types",
    "merge",
    "normalize_axis",
]


def infer_types(row: Row, operands: Sequence[SSAValue], properties: Mapping[str, Attribute]) -> list[Attribute] | None:
    """The result types of an op, None if the row does not say how to infer them.

    Raises:
        InferenceError: the operands do not fit each other.
    """
    return INFERENCES[row.infer](InferredOp(row, operands, properties)) if row.infer else None

"""Result types of `coreai` ops from operand types and constant operands, one function a kind of op.

A dimension that depends on run-time values is None. Every function gets the op's row, the operands
and the properties, and raises `InferenceError` for operands that no result type fits: the native
verifier is lenient on shapes, and the runtime then cuts, garbles or aborts.
"""

from __future__ import annotations

from patcomp.ir.infer import elementwise, indexing, reductions, shapes, sources, windows  # noqa: F401  (they register)
from patcomp.ir.infer.common import (
    INFERENCES,
    InferenceError,
    Operands,
    Properties,
    RuntimeRefusalError,
    UndeterminedError,
    broadcast_shapes,
    compatible,
    merge,
    normalize_axis,
)
from patcomp.ir.rows import Row
from patcomp.ir.xdsl import Attribute

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


def infer_types(row: Row, operands: Operands, properties: Properties) -> list[Attribute] | None:
    """The result types of an op, None where the op's results are not determined by its operands.

    Raises:
        InferenceError: the operands do not fit each other.
    """
    return INFERENCES[row.infer](row, operands, properties) if row.infer else None

"""State buffers: handles are read and written in program order, so tokens carry nothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from patcomp.evaluate.machine import TOKEN_VALUE, Handle
from patcomp.evaluate.registry import EvaluatedOp, implements


@implements("coreai.create_token", "coreai.join_token")
def token(op: EvaluatedOp, *tokens: Any) -> Any:
    return TOKEN_VALUE


@implements("coreai.read_handle")
def read_handle(op: EvaluatedOp, handle: Handle, in_token: Any) -> list[Any]:
    return [handle.tensor, TOKEN_VALUE]


@implements("coreai.write_handle")
def write_handle(op: EvaluatedOp, handle: Handle, data: Tensor, in_token: Any) -> Any:
    if problem := op.machine.mismatch(data, op.operation.operands[0].type.tensor_type):  # type: ignore[attr-defined]
        raise op.error(f"what is written to {handle.name!r} {problem}")
    handle.tensor = data
    return TOKEN_VALUE

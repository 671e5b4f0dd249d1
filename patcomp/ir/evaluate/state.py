"""State buffers: handles are read and written in program order, so tokens carry nothing."""

from __future__ import annotations

from typing import Any

import torch

from patcomp.ir.evaluate.machine import TOKEN, Handle, check_value
from patcomp.ir.evaluate.registry import Call, implements


@implements("coreai.create_token", "coreai.join_token")
def token(call: Call, *tokens: Any) -> Any:
    return TOKEN


@implements("coreai.read_handle")
def read_handle(call: Call, handle: Handle, in_token: Any) -> list[Any]:
    return [handle.tensor, TOKEN]


@implements("coreai.write_handle")
def write_handle(call: Call, handle: Handle, data: torch.Tensor, in_token: Any) -> Any:
    check_value(data, call.op.operands[0].type.tensor_type, f"what is written to {handle.name!r}")  # type: ignore[attr-defined]
    handle.tensor = data
    return TOKEN

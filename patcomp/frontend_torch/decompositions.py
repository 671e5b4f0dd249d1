"""Which ATen ops PyTorch takes apart before import, and which stay whole for the catalog to recognise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

PRESERVED = (
    "aten::hardsigmoid",
    "aten::hardswish",
    "aten::instance_norm",
    "aten::pixel_shuffle",
    "aten::reflection_pad1d",
    "aten::reflection_pad2d",
    "aten::reflection_pad3d",
    "aten::replication_pad1d",
    "aten::replication_pad2d",
    "aten::replication_pad3d",
    "aten::scaled_dot_product_attention",
    "aten::silu",
    "aten::upsample_bicubic2d.vec",  # PyTorch's decomposition of it rounds bytes other than eager
)
"""Ops that `get_decomp_table` leaves out of PyTorch's default table."""


def get_decomp_table() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """PyTorch's default decompositions minus the ops that patcomp converts whole, fresh on every call.

    Use it as `exported.run_decompositions(get_decomp_table())`.
    """
    table = torch.export.default_decompositions()
    for op in [op for op in table if op.name().removesuffix(".default") in PRESERVED]:
        del table[op]
    return table  # type: ignore[return-value]

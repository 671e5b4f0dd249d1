"""The ATen ops that PyTorch decomposes before the import; others stay whole for the catalog to recognise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from patcomp.pytorch import OpOverload, statically_known_true, sym_eq

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
    "aten::select_scatter",  # PyTorch's decomposition compares and copies the whole tensor
    "aten::silu",
    "aten::upsample_bicubic2d.vec",  # PyTorch's decomposition rounds bytes differently than eager
)
"""Ops that `get_decomp_table` leaves out of PyTorch's default table."""


def get_decomp_table() -> dict[OpOverload, Callable[..., Any]]:
    """PyTorch's default decompositions minus the ops that patcomp converts whole, fresh on every call.

    Use it as `exported.run_decompositions(get_decomp_table())`. It adds a decomposition of `aten.copy`, because PyTorch
    loses the element type and shape of a buffer when a value of another type or shape is copied into it.
    """
    table = torch.export.default_decompositions()
    for op in [op for op in table if op.name().removesuffix(".default") in PRESERVED]:
        del table[op]
    table[torch.ops.aten.copy.default] = _copy
    return table  # type: ignore[return-value]


def _copy(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """`aten.copy` if it converts its source; `run_decompositions` would replace the op by the source itself."""
    if self.dtype == src.dtype and statically_known_true(sym_eq(self.shape, src.shape)):
        return NotImplemented
    return src.to(self.dtype).expand(self.shape).clone(memory_format=torch.contiguous_format)

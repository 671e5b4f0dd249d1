"""HQQ, as `save_to_safetensors` writes it: integers in rows of a group, scales, and zero points that are floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.formats.base import PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import TABLES, PackedWeight
from patcomp_models.errors import LanguageModelError


@dataclass(frozen=True)
class HQQ(PartsFormat):
    """Source: `hqq.core.bitpack`; `scale * (data - zero)`, the weight cut into rows of a group. The first rows are in
    the highest bits of a byte; for 3 bits, of an int32 that has ten."""

    name = "HQQ"
    mark = "W_q"
    parts = (
        "W_q", "scale", "zero", "shape", "axis", "nbits", "group_size", "channel_wise", "compute_dtype", "optimize",
        "encoded_state_dict", "offload_meta", "packing", "quant_scale", "quant_zero", "round_zero",
        "stores_quant_config", "unpack_view_dtype", "view_as_float",
    )  # fmt: skip

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        return None if described_as(config, "hqq") is None else cls()

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        outputs, inputs = (int(size) for size in tensors["shape"])
        bits, axis = int(tensors["nbits"]), int(tensors["axis"])
        if axis != 1:
            raise LanguageModelError(
                f"{path} has groups along the outputs of the reshaped weight (axis={axis}), which are no blocks; "
                "quantise with axis=1"
            )
        if any(bool(tensors.get(part, 0)) for part in ("quant_scale", "quant_zero")):
            raise LanguageModelError(
                f"{path} has scales or zero points that are quantised themselves; they are not read"
            )
        scale, zero = tensors["scale"].float(), tensors["zero"].float()
        rows = scale.numel()
        data = _unpacked(tensors["W_q"], bits)[:rows].reshape(outputs, inputs)
        scale, zero = (each.reshape(outputs, -1) for each in (scale, zero))
        table = torch.arange(float(TABLES[bits])) if bits in TABLES else None
        return PackedWeight(data, bits, scale, offset=-(zero * scale), table=table)


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """The rows of words or bytes, one part of the rows behind the other."""
    words = packed.numpy().view(np.uint32) if packed.dtype == torch.int32 else packed.numpy()
    count = 10 if bits == 3 else 8 // bits
    top = bits * (count - 1)
    parts = [(words >> (top - bits * place)) & ((1 << bits) - 1) for place in range(count)]
    return torch.from_numpy(np.concatenate(parts).astype(np.uint8))

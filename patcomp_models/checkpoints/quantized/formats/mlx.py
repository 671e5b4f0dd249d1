"""MLX, as mlx-lm writes it: integers of 2 to 8 bits with scales and offsets of groups, and floats of 4 and 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.bits import from_stream, nibbles
from patcomp_models.checkpoints.quantized.floats import e2m1_table, powers_of_two
from patcomp_models.checkpoints.quantized.formats.base import PartsFormat
from patcomp_models.checkpoints.quantized.weight import PackedWeight
from patcomp_models.errors import LanguageModelError


@dataclass(frozen=True)
class MLX(PartsFormat):
    """Source: `mlx.nn.QuantizedLinear` and `mlx_lm.utils.quantize_model`; embeddings and head are stored so, too, and
    all experts of a layer in one tensor."""

    entries: Mapping[str, Any]
    """`quantization` of `config.json`: `group_size`, `bits`, `mode`, and entries by the path of a module."""

    name = "MLX"
    mark = "scales"
    parts = ("weight", "scales", "biases", "qbiases")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        for key, method in (("quantization", None), ("quantization_config", "metal")):  # transformers calls it metal
            found = config.get(key)
            if isinstance(found, Mapping) and "group_size" in found and found.get("quant_method") == method:
                return cls(found)
        return None

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        own = self.entries.get(path)
        chosen = {**self.entries, **(own if isinstance(own, Mapping) else {})}
        mode, group = chosen.get("mode", "affine"), int(chosen["group_size"])
        weight, scales = tensors["weight"], tensors["scales"]
        inputs = scales.shape[-1] * group
        bits, rest = divmod(weight.shape[-1] * 32, inputs)
        if rest or not 2 <= bits <= 8:
            raise LanguageModelError(
                f"{path}.weight has {weight.shape[-1]} words a row, which are not {inputs} integers of 2 to 8 bits; "
                "the file is damaged, or config.json has another group_size"
            )
        if mode == "affine":
            offsets = tensors["qbiases" if "qbiases" in tensors else "biases"]
            return PackedWeight(from_stream(weight, bits, inputs), bits, scales, offset=offsets)
        raw = weight.contiguous().view(torch.uint8)
        if mode == "mxfp4":
            return PackedWeight(nibbles(raw), 4, powers_of_two(scales), table=e2m1_table())
        if mode == "nvfp4":
            return PackedWeight(nibbles(raw), 4, scales.view(torch.float8_e4m3fn).float(), table=e2m1_table())
        if mode == "mxfp8":
            return PackedWeight(raw.view(torch.float8_e4m3fn), 8, powers_of_two(scales))
        raise LanguageModelError(f"{path} has weights in MLX's mode {mode!r}; affine, mxfp4, nvfp4 and mxfp8 are read")

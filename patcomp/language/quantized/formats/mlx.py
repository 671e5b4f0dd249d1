"""MLX, as mlx-lm writes it: integers of 2 to 8 bits with scales and offsets of groups, embeddings too; mxfp4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp.language.errors import LanguageModelError
from patcomp.language.quantized.bits import from_stream, nibbles
from patcomp.language.quantized.floats import e2m1_table, powers_of_two
from patcomp.language.quantized.formats.base import Format
from patcomp.language.quantized.weight import StoredWeight


@dataclass(frozen=True)
class MLX(Format):
    """Source: `mlx.nn.QuantizedLinear` and `mlx_lm.utils.quantize_model`."""

    entries: Mapping[str, Any]
    """`quantization` of `config.json`: `group_size`, `bits`, `mode`, and entries by the path of a module."""

    name = "MLX"
    mark = "scales"
    parts = ("weight", "scales", "biases")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        found = config.get("quantization")
        if not isinstance(found, Mapping) or "group_size" not in found or "quant_method" in found:
            return None
        return cls(found)

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> StoredWeight:
        own = self.entries.get(path)
        chosen = {**self.entries, **(own if isinstance(own, Mapping) else {})}
        mode, group = chosen.get("mode", "affine"), int(chosen["group_size"])
        weight, scales = tensors["weight"], tensors["scales"]
        if weight.dim() != 2:
            raise LanguageModelError(f"{path} has weights of {weight.dim()} dimensions; MLX experts are not read yet")
        inputs = scales.shape[-1] * group
        bits, rest = divmod(weight.shape[-1] * 32, inputs)
        if rest or not 2 <= bits <= 8:
            raise LanguageModelError(
                f"{path}.weight has {weight.shape[-1]} words a row, which are not {inputs} integers of 2 to 8 bits; "
                "the file is damaged, or config.json has another group_size"
            )
        if mode == "affine":
            return StoredWeight(from_stream(weight, bits, inputs), bits, scales, offset=tensors["biases"])
        if mode == "mxfp4":
            return StoredWeight(
                nibbles(weight.contiguous().view(torch.uint8)), 4, powers_of_two(scales), table=e2m1_table()
            )
        raise LanguageModelError(f"{path} has weights in MLX's mode {mode!r}; affine and mxfp4 are read")

"""compressed-tensors, as llm-compressor writes it: packed integers, bytes, and floats of 4 and 8 bits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.bits import from_stream, nibbles, signed_integers
from patcomp_models.checkpoints.quantized.floats import e2m1_table, in_blocks, powers_of_two
from patcomp_models.checkpoints.quantized.formats.base import CACHE_NOTE, PartsFormat, described_as
from patcomp_models.checkpoints.quantized.weight import PackedWeight, from_integers
from patcomp_models.errors import LanguageModelError

_FORMS = (
    "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
    "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision",
)  # fmt: skip


@dataclass(frozen=True)
class CompressedTensors(PartsFormat):
    """Source: `compressed_tensors.compressors`."""

    block: tuple[int, int] = (128, 128)
    notes: tuple[str, ...] = ()
    groups: frozenset[int] = frozenset()
    """The sizes of groups; none if some weights are in blocks."""

    @property
    def group_sizes(self) -> Collection[int]:
        return self.groups

    name = "compressed-tensors"
    mark = "weight_scale"
    parts = ("weight", "weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx",
             "weight_global_scale", "input_scale", "input_zero_point", "input_global_scale")  # fmt: skip

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if (found := described_as(config, "compressed-tensors")) is None:
            return None
        groups = [group for group in found.get("config_groups", {}).values() if isinstance(group, Mapping)]
        for form in {found.get("format"), *(group.get("format") for group in groups)} - {None}:
            if form not in _FORMS:
                raise LanguageModelError(
                    f"the checkpoint has compressed-tensors' format {form!r}; {', '.join(_FORMS)} are read"
                )
        if (found.get("sparsity_config") or {}).get("format", "dense") != "dense":
            raise LanguageModelError(
                f"the checkpoint has sparse weights ({found['sparsity_config']['format']}), which are not read"
            )
        blocks = [group["weights"].get("block_structure") for group in groups if group.get("weights")]
        block = next((tuple(each) for each in blocks if each), (128, 128))
        bits = [group["input_activations"].get("num_bits") for group in groups if group.get("input_activations")]
        notes = tuple(
            f"the weights are those of the checkpoint; its rounding of activations to {each} bits is left out"
            for each in sorted(set(bits), key=str)
        )
        notes = (*notes, CACHE_NOTE) if found.get("kv_cache_scheme") else notes
        sizes = {int(group["weights"].get("group_size") or 0) for group in groups if group.get("weights")}
        declared = frozenset() if any(blocks) else frozenset(size for size in sizes if size > 0)
        return cls((int(block[0]), int(block[1])), notes, declared)

    def read(self, path: str, tensors: Mapping[str, Tensor]) -> PackedWeight:
        scale, zeros = tensors["weight_scale"], tensors.get("weight_zero_point")
        if "weight_global_scale" in tensors:
            whole = 1 / tensors["weight_global_scale"].float().reshape(1, 1)
            return PackedWeight(nibbles(tensors["weight_packed"]), 4, PackedWeight(scale, 8, whole), table=e2m1_table())
        if "weight" in tensors:
            data = tensors["weight"]
            if scale.dtype == torch.uint8:  # powers of two for blocks of 32
                return PackedWeight(data, 8, powers_of_two(scale))
            scale = _for_blocks(data, scale, self.block)
            return from_integers(data, 8, scale, None if zeros is None else zeros.reshape(scale.shape)) if (
                not data.is_floating_point()) else PackedWeight(data, 8, scale)  # fmt: skip
        packed = tensors["weight_packed"]
        if packed.dtype == torch.uint8:
            return PackedWeight(nibbles(packed), 4, powers_of_two(scale), table=e2m1_table())
        outputs, inputs = (int(size) for size in tensors["weight_shape"])
        bits = packed.shape[1] * 32 // inputs
        data = signed_integers(from_stream(packed, bits, inputs), bits)
        scale = _for_blocks(data, scale, self.block)
        if zeros is not None:
            unpacked = (
                zeros if zeros.dtype != torch.int32 else signed_integers(from_stream(zeros.T, bits, outputs).T, bits)
            )
            zeros = unpacked.reshape(scale.shape)
        order, groups = None, tensors.get("weight_g_idx")
        if groups is not None and bool((groups.diff() < 0).any()):
            order = groups.argsort(stable=True)
            data = data[:, order]
        return from_integers(data, bits, scale, zeros, order)


def _for_blocks(data: Tensor, scale: Tensor, block: tuple[int, int]) -> Tensor:
    """Scales for the whole weight, rows, groups of a row, or blocks."""
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    return scale.reshape(scale.shape[0], -1) if scale.shape[0] == data.shape[0] else in_blocks(data, scale, block)

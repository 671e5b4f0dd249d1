"""GGUF: blocks of 32 or 256 numbers, a type for each tensor (`patcomp_models.checkpoints.gguf`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from patcomp_models.checkpoints.gguf.blocks import KEPT, reshaped_blocks
from patcomp_models.checkpoints.gguf.header import BLOCKS, StoredTensor, read_header
from patcomp_models.checkpoints.gguf.models import ROTARY, Architecture, architecture_of, transformers_name
from patcomp_models.checkpoints.quantized.formats.base import Format, Weights, described_as
from patcomp_models.checkpoints.quantized.joining import taken
from patcomp_models.checkpoints.quantized.weight import WeightPart
from patcomp_models.errors import LanguageModelError

_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class GGUF(Format):
    """Source: llama.cpp. Rows of queries and keys come back from the order of its rotary embeddings."""

    heads: int
    key_heads: int
    expands: bool = False
    """Whether types whose bits are not kept become floats."""

    name = "GGUF"

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        if described_as(config, "gguf") is None:
            return None
        heads, key_heads = config.get("num_attention_heads"), config.get("num_key_value_heads")
        if not isinstance(heads, int) or not isinstance(key_heads, int) or min(heads, key_heads) < 1:
            return None  # no folder that was made for a file
        return cls(heads, key_heads)

    def weights(self, files: Sequence[Path]) -> Weights:
        header = read_header(files[0])
        found, made = architecture_of(header), dict[str, Callable[[], WeightPart]]()
        for name, tensor in header.tensors.items():
            if name.removesuffix(".weight") not in ROTARY:
                made[transformers_name(found, name) or name] = partial(self._read, found, name, tensor)
        return made

    def _read(self, architecture: Architecture, name: str, tensor: StoredTensor) -> WeightPart:
        made = self._part(name, tensor)
        if architecture.adds_one and name.endswith("norm.weight"):
            assert isinstance(made, Tensor)
            return made.float() - 1
        which = name.split(".")[2] if name.startswith("blk.") else ""
        if architecture.permutes and which in ("attn_q", "attn_k"):
            heads = self.heads if which == "attn_q" else self.key_heads
            if made.shape[0] % (2 * heads):
                raise LanguageModelError(f"{name} has {made.shape[0]} rows, which are no pairs for {heads} heads")
            order = torch.arange(made.shape[0]).reshape(heads, -1, 2).transpose(1, 2).reshape(-1)
            return taken(made, 0, order)
        return made

    def _part(self, name: str, tensor: StoredTensor) -> WeightPart:
        if tensor.kind in _FLOATS:
            return torch.from_numpy(np.array(tensor.data)).view(_FLOATS[tensor.kind]).reshape(tensor.shape)
        if tensor.kind in KEPT:
            _, _, size = BLOCKS[tensor.number]
            blocks = tensor.data.reshape(tensor.data.shape[0], -1, size)
            return reshaped_blocks(KEPT[tensor.kind](blocks), tensor.shape)
        if not self.expands:
            raise LanguageModelError(
                f"{name} is of GGUF's type {tensor.kind}, whose numbers are vectors of a table that Core AI's tables "
                f"cannot hold; expand=True (--expand) makes floats of it, {', '.join(KEPT)} stay as they are"
            )
        return _expanded(name, tensor)

    def expanding(self) -> Self:
        return replace(self, expands=True)

    def notes_on(self, files: Sequence[Path]) -> tuple[str, ...]:
        kinds = [tensor.kind for tensor in read_header(files[0]).tensors.values()]
        expanded = [kind for kind in kinds if kind not in KEPT and kind not in _FLOATS]
        if not expanded or not self.expands:
            return self.notes
        return (*self.notes, f"{len(expanded)} weights of {', '.join(sorted(set(expanded)))} are expanded to floats")

    def finish(self, model: Any, files: Sequence[Path]) -> None:
        factors = read_header(files[0]).floats("rope_freqs.weight")
        if factors is not None:  # Llama 3.1 and later: what each frequency is divided by
            rotary = model.get_decoder().rotary_emb
            if len(factors) != len(rotary.inv_freq):
                raise LanguageModelError(f"rope_freqs.weight has {len(factors)} factors for {len(rotary.inv_freq)}")
            divided = rotary.inv_freq / torch.from_numpy(factors)
            rotary.inv_freq = rotary.original_inv_freq = divided


def _expanded(name: str, tensor: StoredTensor) -> Tensor:
    from transformers.integrations.gguf.dequant import GGML_BLOCK, dequantize

    if tensor.number not in GGML_BLOCK:
        raise LanguageModelError(f"{name} is of GGUF's type {tensor.kind}, which transformers cannot expand either")
    made: Tensor = dequantize(torch.from_numpy(np.array(tensor.data)), tensor.number)
    return made.reshape(tensor.shape)

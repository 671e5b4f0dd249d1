"""The tables of embeddings outside of the Neural Engine's functions, and the functions that read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.errors import LanguageModelError

_TRIED = 8
"""How many rows show what a module does with its table."""


@dataclass(frozen=True)
class Embeddings:
    """The table of embeddings outside of the functions."""

    table: Tensor
    """V x 1 x hidden, of int8 or of the model's type; a function may take it with further rows."""
    scale: float
    """The factor of the table's entries."""
    factor: float = 1.0
    """By which the model multiplies the embeddings of tokens, and the head does not multiply."""

    @classmethod
    def of(cls, weight: Tensor, *, quantized: bool, factor: float = 1.0) -> Embeddings:
        """The table of a V x hidden weight; int8 has one scale for all and no zero point."""
        if not quantized:
            return cls(weight.detach()[:, None], 1.0, factor)
        values = weight.detach().float()
        scale = float(values.abs().max().half() / 127) or 1.0
        return cls((values / scale).round().clamp(-127, 127).to(torch.int8)[:, None], scale, factor)

    @classmethod
    def of_module(cls, module: Any, *, quantized: bool) -> Embeddings:
        """The table of a module that may scale what it looks up.

        Raises:
            LanguageModelError: the module does more with its rows than to scale them.
        """
        factor, few = float(getattr(module, "embed_scale", 1.0)), torch.arange(min(_TRIED, len(module.weight)))
        with torch.no_grad():
            found, wanted = module(few), module.weight[few] * torch.tensor(factor).to(module.weight.dtype)
        if not torch.equal(found, wanted):
            raise LanguageModelError(
                f"{type(module).__name__} does more with its rows than to scale them, and the Neural Engine's form has "
                "its table outside of the functions"
            )
        return cls.of(module.weight, quantized=quantized, factor=factor)

    def in_rows_of(self, count: int) -> Embeddings:
        """The table with rows of zeros behind its own, up to a multiple of `count`; no token reads them."""
        further = self.table.new_zeros(-len(self.table) % count, *self.table.shape[1:])
        return replace(self, table=torch.cat([self.table, further])) if len(further) else self

    def values(self, entries: Tensor, dtype: torch.dtype) -> Tensor:
        """The embeddings that entries of the table stand for."""
        return entries if entries.dtype == dtype else entries.to(dtype) * self.scale

    def scaled(self, entries: Tensor, dtype: torch.dtype) -> Tensor:
        """The embeddings that entries of the table stand for, as the model looks them up."""
        found = self.values(entries, dtype)
        return found if self.factor == 1 else found * torch.tensor(self.factor).to(dtype)


class LoadEmbeddings(nn.Module):
    """Gives the table of embeddings."""

    def __init__(self, embeddings: Embeddings):
        super().__init__()
        self.table = nn.Buffer(embeddings.table)

    def forward(self) -> Tensor:
        return self.table.clone()


class Gathered(nn.Module):
    """The composite `fused_interleaved_embedding_gather_dequant_reshape`."""

    def __init__(self, embeddings: Embeddings, dtype: torch.dtype):
        super().__init__()
        self.embeddings, self.dtype = embeddings, dtype

    def forward(self, token_ids: Tensor, embedding_table: Tensor) -> Tensor:
        return self.embeddings.scaled(embedding_table[token_ids], self.dtype)


class GatherEmbeddings(nn.Module):
    """Gives the embeddings of q tokens, 1 x q x 1 x hidden."""

    def __init__(self, embeddings: Embeddings, dtype: torch.dtype):
        super().__init__()
        self.gather = Gathered(embeddings, dtype)

    def forward(self, in_new_token_ids: Tensor, embedding_table: Tensor) -> Tensor:
        made: Tensor = self.gather(in_new_token_ids, embedding_table)
        return made

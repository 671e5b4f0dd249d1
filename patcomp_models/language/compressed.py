"""Attention to compressed keys (DeepSeek-V4), for any number of tokens.

The model's cache keeps an entry for each window of tokens, and the tokens behind the last window. Here a state keeps
what the entries are made of for each token, and each call makes them: an entry is the same in all calls.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

COMPRESSOR, INDEXER = "compressor", "indexer"
"""What a layer keeps of each token."""


def heavily(
    self: Any, hidden_states: Tensor, q_residual: Tensor, position_ids: Tensor, cache: Any, layer_idx: int
) -> tuple[Tensor, Tensor]:
    """The entries of heavily compressed attention, (1, 1, entries, width), and what is added to the scores of each
    query, (1, 1, q, entries): 0, or -inf for an entry that ends behind it.

    Args:
        self: transformers' module.
        hidden_states: (1, q, hidden).
        q_residual: (1, q, rank).
        position_ids: (1, q).
        cache: of transformers, or None.
        layer_idx: in the cache.
    """
    made = _entries(self, COMPRESSOR, hidden_states, cache, layer_idx, overlap=False)
    seen = torch.arange(made.shape[1]) < _ended(self, position_ids)
    return made.unsqueeze(1), _added(seen, made.dtype)


def sparsely(
    self: Any, hidden_states: Tensor, q_residual: Tensor, position_ids: Tensor, cache: Any, layer_idx: int
) -> tuple[Tensor, Tensor]:
    """As `heavily`, for compressed sparse attention, whose indexer chooses entries. Arguments and results are the
    same."""
    made = _entries(self, COMPRESSOR, hidden_states, cache, layer_idx, overlap=True)
    chosen = self.indexer(hidden_states, q_residual, position_ids, cache, layer_idx)
    count = made.shape[1]
    seen = torch.zeros(1, chosen.shape[1], count + 1, dtype=torch.int32)
    seen = seen.scatter(2, torch.where(chosen >= 0, chosen, count), 1).narrow(2, 0, count)
    return made.unsqueeze(1), _added(seen > 0, made.dtype)


def chosen_entries(
    self: Any, hidden_states: Tensor, q_residual: Tensor, position_ids: Tensor, cache: Any, layer_idx: int
) -> Tensor:
    """The entries that each query attends to, (1, q, number), with -1 where there are fewer. Arguments as for
    `heavily`."""
    keys = _entries(self, INDEXER, hidden_states, cache, layer_idx, overlap=True)
    queries = self.q_b_proj(q_residual).unflatten(2, (-1, self.head_dim)).transpose(1, 2)
    queries = _rotated(self, queries, position_ids).transpose(1, 2)
    ended = _ended(self, position_ids)
    scores = self.scorer(queries, keys, hidden_states)
    scores = scores.masked_fill(torch.arange(keys.shape[1]) >= ended, -torch.inf)
    # padded, so that there are as many as are asked for
    best = functional.pad(scores, (0, self.index_topk), value=-torch.inf).topk(self.index_topk, -1).indices
    return torch.where(best < ended, best, -1)


def _entries(self: Any, name: str, hidden_states: Tensor, cache: Any, layer: int, *, overlap: bool) -> Tensor:
    """The entries of all tokens, (1, tokens // window + 2, width); the last ones have tokens that are not there yet.

    An entry is the mean of its tokens with a softmax of gates as weights. With `overlap`, each token has two vectors:
    the second is for the entry of its window, and the first for the next one.
    """
    own = torch.cat([self.kv_proj(hidden_states), self.gate_proj(hidden_states)], -1)
    own = own if cache is None else cache.layers[layer].kept(name, own)
    size, total = self.compress_rate, own.shape[1]
    count = total // size + 2  # one would be a special case
    places = torch.arange(count)[:, None] * size + torch.arange(size)

    def of(places: Tensor) -> tuple[Tensor, Tensor]:
        values, gates = own[:, places.clamp(0, total - 1)].chunk(2, -1)
        return values, gates + self.position_bias

    values, gates = of(places)
    if overlap:
        width = self.head_dim
        earlier, earlier_gates = (each[..., :width] for each in of(places - size))
        earlier_gates = earlier_gates.masked_fill((places < size)[..., None], -torch.inf)
        values = torch.cat([earlier, values[..., width:]], 2)
        gates = torch.cat([earlier_gates, gates[..., width:]], 2)
    weights = gates.softmax(2, dtype=torch.float32).to(values.dtype)
    made = self.kv_norm((values * weights).sum(2))
    return _rotated(self, made.unsqueeze(1), places[None, :, 0]).squeeze(1)


def _rotated(self: Any, x: Tensor, positions: Tensor) -> Tensor:
    """Vectors, (1, heads, n, width), with the rotary embedding of their positions, (1, n)."""
    cos, sin = self.rotary_emb(x, position_ids=positions, layer_type=self.rope_layer_type)
    made: Tensor = vars(sys.modules[type(self).__module__])["apply_rotary_pos_emb"](x, cos, sin)
    return made


def _ended(self: Any, positions: Tensor) -> Tensor:
    """How many entries end at each query or before, (1, q, 1)."""
    return ((positions + 1) // self.compress_rate).unsqueeze(-1)


def _added(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 for what is seen, (1, q, n), and -inf for all else, (1, 1, q, n)."""
    return torch.zeros(1, dtype=dtype).masked_fill(~seen, -torch.inf).unsqueeze(1)

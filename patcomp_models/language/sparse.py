"""Sparse attention, whose layers choose the tokens that they attend to, for any number of tokens."""

from __future__ import annotations

import inspect
import math
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from patcomp_models.language.conventions import CACHE


def chosen_tokens(indexer: Any, *given: Any, **options: Any) -> Tensor:
    """The tokens that each query attends to, (1, q, number); some may be there more than once.

    The model chooses `index_topk` tokens, or all if there are fewer, which is another shape. Here further tokens that
    no query sees are behind the others. They are chosen only where all others are, and the first token, which each
    query sees, takes their place.

    Args:
        indexer: the module, whose `forward` this function takes the place of.
        given, options: its arguments; `attention_mask` is (1, q, n), true for the tokens that a query sees, or 0 for
            them, and one is the cache, by its name in transformers.
    """
    own: Any = type(indexer).forward.__wrapped__  # type: ignore[attr-defined]
    call = inspect.signature(own).bind(indexer, *given, **options)
    mask, cache = call.arguments["attention_mask"], call.arguments.get(CACHE)
    further, total = indexer.index_topk, mask.shape[-1]
    hidden = False if mask.dtype == torch.bool else float("-inf")
    call.arguments["attention_mask"] = functional.pad(mask, (0, further), value=hidden)
    call.arguments[CACHE] = cache and _Padded(cache, further)
    chosen = own(*call.args, **call.kwargs)
    return torch.where(chosen < total, chosen, 0)


def indexers_of(model: nn.Module) -> set[str]:
    """The functions of a model that choose tokens as DeepSeek-V3.2 or Mistral Large 4 do, `Class.forward`: by the best
    of one rotated key for each token."""
    owners = {
        next(each for each in type(part).__mro__ if "forward" in vars(each))
        for part in model.modules()
        if hasattr(part, "index_topk") and _is_by_token(type(part))
    }
    return {f"{owner.__name__}.forward" for owner in owners}


def _is_by_token(kind: type[nn.Module]) -> bool:
    own: Any = inspect.unwrap(kind.forward)
    return "update_indexer" in own.__code__.co_names and "position_embeddings" in inspect.signature(own).parameters


class _Padded:
    """A cache that gives further keys of an index behind its own."""

    def __init__(self, cache: Any, further: int):
        self.cache, self.further = cache, further

    def update_indexer(self, keys: Tensor, layer: int) -> Tensor:
        return functional.pad(self.cache.update_indexer(keys, layer), (0, 0, 0, self.further))


def chosen_blocks(
    self: Any, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], attention_mask: Tensor, cache: Any
) -> Tensor:
    """The tokens that each query of Qwen4's sparse attention attends to, true in (1, 1, q, n).

    The n tokens are in blocks of `compress_ratio`. A query attends to those blocks whose mean key is best, out of all
    that end at it or before, and to the tokens behind the last of these blocks.

    Args:
        self: transformers' module.
        hidden_states: (1, q, width).
        position_embeddings: cosines and sines of all tokens, (1, n, rotated width) each.
        attention_mask: (1, 1, q, n), that of a text without padding.
        cache: of transformers, or None.
    """
    rotated = vars(sys.modules[type(self).__module__])["apply_rotary_pos_emb"]
    size, count, total = self.compress_ratio, hidden_states.shape[1], attention_mask.shape[-1]
    widths = [self.index_n_heads * self.index_head_dim, self.index_kv_heads * self.index_head_dim]
    queries, keys = self.index_qk_proj(hidden_states).split(widths, -1)
    queries = self.q_layernorm(queries.unflatten(2, (self.index_n_heads, self.index_head_dim)))
    cos, sin = (each.narrow(1, total - count, count) for each in position_embeddings)
    queries = rotated(queries, cos=cos, sin=sin, unsqueeze_dim=2)
    keys = keys if cache is None else cache.update_indexer(keys, self.layer_idx)

    # padded to two blocks at least, of which the last has tokens that are not there yet: one would be a special case
    padded = functional.pad(keys.float().transpose(1, 2), (0, 2 * size))
    means = functional.avg_pool1d(padded, size).transpose(1, 2)
    blocks = means.shape[1]
    means = self.k_layernorm(means.to(keys.dtype))
    starts = (torch.arange(blocks) * size).clamp(max=total - 1)
    cos, sin = (each.index_select(1, starts) for each in position_embeddings)
    means = rotated(means.unsqueeze(1), cos=cos, sin=sin).squeeze(1)
    scores = queries.float() @ means.float().transpose(1, 2).unsqueeze(1)
    scores = functional.relu(scores).sum(2) / math.sqrt(self.index_head_dim)

    ended = (torch.arange(count) + total - count + 1) // size  # how many blocks a query may choose from
    is_open = torch.arange(blocks + self.block_topk) < ended[:, None]
    scores = functional.pad(scores, (0, self.block_topk)).masked_fill(~is_open, -torch.inf)
    best, places = scores.topk(self.block_topk, -1)
    chosen = torch.zeros_like(scores).scatter(2, places, torch.isfinite(best).to(scores.dtype)) > 0
    tokens = torch.arange(total)
    seen = chosen.index_select(2, tokens // size) | (tokens >= (ended * size)[:, None])
    return seen.unsqueeze(1)

"""Sparse attention, whose layers choose the tokens that they attend to, for any number of tokens."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from patcomp_models.language.conventions import CACHE


def chosen_tokens(
    indexer: Any, hidden_states: Tensor, q_resid: Tensor, position_embeddings: Any,
    attention_mask: Tensor, position_ids: Tensor | None = None, **options: Any,
) -> Tensor:  # fmt: skip
    """The tokens that each query attends to, (1, q, number); some may be there more than once.

    The model chooses `index_topk` tokens, or all if there are fewer, which is another shape. Here further tokens that
    no query sees are behind the others. They are chosen only where all others are, and the first token, which each
    query sees, takes their place.

    Args:
        indexer: the module, whose `forward` this function takes the place of.
        attention_mask: (1, q, n), true for the tokens that a query sees, or 0 for them.
        options: the cache, by its name in transformers.
    """
    further, total = indexer.index_topk, attention_mask.shape[-1]
    hidden = False if attention_mask.dtype == torch.bool else float("-inf")
    mask = functional.pad(attention_mask, (0, further), value=hidden)
    cache = options.get(CACHE) and _Padded(options[CACHE], further)
    own: Any = type(indexer).forward
    chosen = own.__wrapped__(indexer, hidden_states, q_resid, position_embeddings, mask, position_ids, **{CACHE: cache})
    return torch.where(chosen < total, chosen, 0)


def indexers_of(model: nn.Module) -> set[str]:
    """The functions of a model that choose tokens as DeepSeek-V3.2 does, `Class.forward`."""
    owners = {
        next(each for each in type(part).__mro__ if "forward" in vars(each))
        for part in model.modules()
        if hasattr(part, "index_topk") and "q_resid" in inspect.signature(type(part).forward).parameters
    }
    return {f"{owner.__name__}.forward" for owner in owners}


class _Padded:
    """A cache that gives further keys of an index behind its own."""

    def __init__(self, cache: Any, further: int):
        self.cache, self.further = cache, further

    def update_indexer(self, keys: Tensor, layer: int) -> Tensor:
        return functional.pad(self.cache.update_indexer(keys, layer), (0, 0, 0, self.further))

"""Sparse attention, whose layers choose the tokens that they attend to, for any number of tokens."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from patcomp_models.language.conventions import CACHE

_WITHOUT_LATENT = "MistralLarge4TextIndexer"
"""An index whose queries are made of hidden states, so that it has no argument `q_resid`."""


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
    """The functions of a model that choose tokens as DeepSeek-V3.2 or Mistral Large 4 do, `Class.forward`."""
    parts = [type(part) for part in model.modules() if hasattr(part, "index_topk")]
    owners = {
        next(each for each in part.__mro__ if "forward" in vars(each))
        for part in parts
        if part.__name__ == _WITHOUT_LATENT or "q_resid" in inspect.signature(part.forward).parameters
    }
    return {f"{owner.__name__}.forward" for owner in owners}


class _Padded:
    """A cache that gives further keys of an index behind its own."""

    def __init__(self, cache: Any, further: int):
        self.cache, self.further = cache, further

    def update_indexer(self, keys: Tensor, layer: int) -> Tensor:
        return functional.pad(self.cache.update_indexer(keys, layer), (0, 0, 0, self.further))

"""Masks of attention that a model reads from a table of all positions, as functions of the positions.

A slice of the table is another program for torch.export where it is the whole table, so that a model could not be
exported for as many tokens as it takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from patcomp_models.language.rotary import With

ATTENTION = "_attn"
"""The function of transformers' classes that the functions here stand for."""


def gpt_neo(self: Any, query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **options: Any) -> Any:
    """The attention of GPT-Neo, (1, heads, q, width), to all keys or to those of a window.

    Args:
        self: transformers' module.
        query: (1, heads, q, width).
        key, value: (1, heads, n, width), which end with those of the queries' tokens.
        arguments, options: the others of transformers' function.
    """
    seen = _causal(query.shape[-2], key.shape[-2], self.config.window_size if self.attention_type == "local" else 0)
    own = inspect.unwrap(getattr(type(self), ATTENTION))
    return own(With(self, "bias", _Sliced(seen)), query, key, value, *arguments, **options)


def gpt(layers: Iterator[Any], self: Any, query: Tensor, key: Tensor, value: Tensor, *arguments: Any) -> Any:
    """The attention of GPT (Radford et al. 2018), which takes no cache of transformers.

    Args:
        layers: of the cache, this one's next; none for a call without.
        self: transformers' module.
        query, value: (1, heads, q, width).
        key: (1, heads, width, q).
        arguments: the others of transformers' function.
    """
    if (layer := next(layers, None)) is not None:
        key, value = layer.update(key.transpose(2, 3), value)
        key = key.transpose(2, 3)
    seen = _causal(query.shape[-2], value.shape[-2])
    own = inspect.unwrap(getattr(type(self), ATTENTION))
    return own(With(self, "bias", _Sliced(seen.to(query.dtype))), query, key, value, *arguments)


def _causal(new: Any, total: Any, window: int = 0) -> Tensor:
    """The keys that each of the last tokens sees, true in (q, n): all up to its own, or those of a window."""
    keys = torch.arange(total)
    queries = keys.narrow(0, total - new, new)[:, None]
    seen = keys <= queries
    return seen & (keys > queries - window) if window else seen


class _Sliced:
    """The part of a table that a call takes, whatever it asks for.

    Args:
        part: (q, n).
    """

    def __init__(self, part: Tensor):
        self._part = part

    def __getitem__(self, places: Any) -> Tensor:
        return self._part[None, None]

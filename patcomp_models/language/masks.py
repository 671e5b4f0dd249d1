"""Masks of attention that a model reads from a table of all positions, as functions of the positions.

A slice of the table is another program for torch.export where it is the whole table, so that a model could not be
exported for as many tokens as it takes.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from patcomp_models.language.rotary import With

GPT_NEO = "_attn"
"""The function of transformers' class that `gpt_neo` stands for."""


def gpt_neo(self: Any, query: Tensor, key: Tensor, value: Tensor, *arguments: Any, **options: Any) -> Any:
    """The attention of GPT-Neo, (1, heads, q, width), to all keys or to those of a window.

    Args:
        self: transformers' module.
        query: (1, heads, q, width).
        key, value: (1, heads, n, width), which end with those of the queries' tokens.
        arguments, options: the others of transformers' function.
    """
    new, total = query.shape[-2], key.shape[-2]
    keys = torch.arange(total)
    queries = keys.narrow(0, total - new, new)[:, None]
    seen = keys <= queries
    if self.attention_type == "local":
        seen = seen & (keys > queries - self.config.window_size)
    own = inspect.unwrap(getattr(type(self), GPT_NEO))
    return own(With(self, "bias", _Sliced(seen)), query, key, value, *arguments, **options)


class _Sliced:
    """The part of a table that a call takes, whatever it asks for.

    Args:
        part: (q, n).
    """

    def __init__(self, part: Tensor):
        self._part = part

    def __getitem__(self, places: Any) -> Tensor:
        return self._part[None, None]

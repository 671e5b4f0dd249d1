"""A function that reads a recording in chunks: its inputs, and the states that it keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache

from patcomp_models.bundles.streaming.contexts import Contexts, Shapes
from patcomp_models.bundles.streaming.contract import CONTEXTS, KEYS, POSITION, VALUES
from patcomp_models.language.layers import SlidingLayer
from patcomp_models.tasks.entries import Entry

_MOST = 2**24
"""How many frames float32 can count."""


class Streamed(nn.Module, ABC):
    """A function of one chunk.

    Args:
        prefix: of the names of its states, such as "encoder".
        window: how many frames attention sees, with that of the query; None if there is no attention.
        is_first: whether it is for the first chunk of a recording, or for the others; None if it is for all.
    """

    def __init__(self, prefix: str, window: int | None, is_first: bool | None = None):
        super().__init__()
        self.prefix, self.window, self.is_first = prefix, window, is_first
        self.shapes: Shapes = {}
        self.given = 0

    @abstractmethod
    def computed(self, inputs: tuple[Tensor, ...], contexts: Contexts, past: Cache | None) -> Tensor:
        """The result for a chunk.

        Args:
            inputs: the chunk, and what else is given.
            contexts: of the convolutions.
            past: of attention, if there is any.
        """

    def forward(self, *tensors: Tensor) -> Tensor:
        """The result; the states are written.

        Args:
            tensors: the inputs; the contexts of the convolutions, (size,); and of attention, if there is any, its keys
                and values, (layers, 1, heads, frames, width), and how many frames were before, (1,).
        """
        inputs, (held, *attention) = tensors[: self.given], tensors[self.given :]
        if not attention:
            contexts = Contexts(held, self.shapes, self.is_first)
            made = self.computed(inputs, contexts, None)
            contexts.write()
            return made
        keys, values, position = attention
        is_first = position == 0 if self.is_first is None else self.is_first
        contexts, offset = Contexts(held, self.shapes, is_first), position.clamp(0, _MOST).squeeze(0)
        layers = [SlidingLayer(keys, values, row, offset) for row in range(keys.shape[0])]
        made = self.computed(inputs, contexts, Cache(layers=layers))
        contexts.write()
        position.add_(layers[0].new)
        return made

    def entry(self, name: str, inputs: Mapping[str, Tensor], output: str) -> Entry:
        """The function to export.

        Args:
            name: of the function.
            inputs: an example of a chunk, and of what else is given, by names.
            output: the name of the result.
        """
        contexts, past = Contexts(is_first=self.is_first is not False), DynamicCache()
        with torch.no_grad():
            self.computed(tuple(inputs.values()), contexts, None if self.window is None else past)
        self.shapes, self.given = contexts.shapes, len(inputs)
        kept = torch.cat([each.reshape(-1) for each in contexts.after.values()])
        states = {CONTEXTS: torch.zeros_like(kept)}
        if self.window is not None:
            first: Any = past.layers[0]
            _, heads, _, width = first.keys.shape
            shape = (len(past.layers), 1, heads, self.window - 1, width)
            states |= {each: torch.zeros(shape, dtype=kept.dtype) for each in (KEYS, VALUES)}
            states[POSITION] = torch.zeros(1, dtype=torch.int32)
        named = {f"{self.prefix}{end}": value for end, value in states.items()}
        return Entry(name, self, {**inputs, **named}, (output,), states=tuple(named))

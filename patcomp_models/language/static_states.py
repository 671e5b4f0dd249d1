"""The caches of the Neural Engine's form: one place for each token, or a ring for layers with a sliding window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.states import states_of
from patcomp_models.language.static_contract import CACHES, SLIDING_CACHES, ring_size

_SLIDING = "sliding_attention"


@dataclass(frozen=True)
class CachePair:
    """The caches of keys and of values of some layers.

    Attributes:
        names: of the two states.
        rows: one for each layer that writes.
        width: heads times the width of a head.
        ring: the places of a ring, in which the token at position p is at p modulo their number; None for a cache with
            a place for each token.
    """

    names: tuple[str, str]
    rows: int
    width: int
    ring: int | None = None

    def zeros(self, size: int, dtype: torch.dtype) -> list[Tensor]:
        """The empty caches of a function with room for `size` tokens."""
        return [torch.zeros(self.rows, 1, self.width, 1, self.ring or size, dtype=dtype) for _ in self.names]


@dataclass(frozen=True)
class StaticCaches:
    """All caches of a model.

    Attributes:
        pairs: the caches.
        layers: of each layer its pair and row; None for one that reads what another layer has written.
        window: how many tokens a query sees in a ring; 0 without one.
    """

    pairs: tuple[CachePair, ...]
    layers: tuple[tuple[int, int] | None, ...]
    window: int = 0

    @classmethod
    def of(cls, model: Any, context: int) -> StaticCaches:
        """The caches of a causal language model for a number of tokens.

        Raises:
            LanguageModelError: layers that keep a place for each token differ in heads or width, or no layer does.
        """
        states = states_of(model)
        shapes = {each.name: each.shape for each in states.states}
        kept = [None if each.keys is None else shapes[each.keys.state] for each in states.layers]
        window, slides = _windows(model.config, len(kept))
        differ = len({shape for shape in kept if shape}) > 1
        if not (window and any(slides) and (window < context or differ)):
            window, slides = 0, [False] * len(kept)
        placed: list[tuple[int, int] | None] = []
        rows: dict[bool, list[tuple[int, ...]]] = {False: [], True: []}
        for shape, is_sliding in zip(kept, slides, strict=True):
            placed.append(None if shape is None else (int(is_sliding), len(rows[is_sliding])))
            rows[is_sliding] += [] if shape is None else [shape]
        kind = model.config.model_type
        for group in rows.values():
            if len(set(group)) > 1:
                listed = " and ".join(" x ".join(map(str, each)) for each in sorted(set(group)))
                raise LanguageModelError(
                    f"layers of the architecture {kind!r} keep keys and values of {listed} (heads x width), and the "
                    "Neural Engine's form has one shape for all layers that see as many tokens"
                )
        if not rows[False]:
            raise LanguageModelError(
                f"the model attends to the last {window} tokens only, and the Neural Engine's form needs a layer that "
                f"attends to all; pass max_context={window} or less"
            )
        pairs = [CachePair(CACHES, len(rows[False]), math.prod(rows[False][0]))]
        if rows[True]:
            pairs.append(CachePair(SLIDING_CACHES, len(rows[True]), math.prod(rows[True][0]), ring_size(window)))
        return cls(tuple(pairs), tuple(placed), window if rows[True] else 0)

    @property
    def ring(self) -> int | None:
        """The places of the ring, if there is one."""
        return self.pairs[-1].ring

    @property
    def names(self) -> list[str]:
        """The names of the states."""
        return [name for pair in self.pairs for name in pair.names]

    def zeros(self, size: int, dtype: torch.dtype) -> list[Tensor]:
        """The empty caches of a function with room for `size` tokens."""
        return [cache for pair in self.pairs for cache in pair.zeros(size, dtype)]

    def of_layer(self, layer: int, given: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, int, bool] | None:
        """The two caches of a layer, its row, and whether they are a ring; None for a layer that writes nothing."""
        if (place := self.layers[layer]) is None:
            return None
        pair = self.pairs[place[0]]
        keys, values = (given[name] for name in pair.names)
        return keys, values, place[1], pair.ring is not None


def _windows(config: Any, count: int) -> tuple[int, list[bool]]:
    """The sliding window, and for each layer whether it has one."""
    window = getattr(config, "sliding_window", None) or 0
    types = getattr(config, "layer_types", None) or [_SLIDING] * count
    return window, [each == _SLIDING for each in types]

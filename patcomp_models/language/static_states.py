"""The states of the Neural Engine's form: caches with one place for each token, or a ring for layers with a sliding
window, and windows of convolutions and recurrences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import CONVOLUTION, KEY_CACHE, RECURRENCE, VALUE_CACHE
from patcomp_models.language.states import CacheState, States, states_of
from patcomp_models.language.static_contract import CACHES, FIXED_STATES, QUERIES, SLIDING_CACHES, ring_size
from patcomp_models.language.static_layers import BlockLayer, BlockOfTokens, Columns

_SLIDING = "sliding_attention"


@dataclass(frozen=True)
class CachePair:
    """The caches of keys and of values of some layers.

    Attributes:
        names: of the two states.
        rows: one for each layer that writes.
        heads, width: of keys and values; the width is the larger one of keys and values.
        ring: the places of a ring, in which the token at position p is at p modulo their number; None for a cache with
            a place for each token.
    """

    names: tuple[str, str]
    rows: int
    heads: int
    width: int
    ring: int | None = None

    def zeros(self, size: int, dtype: torch.dtype) -> list[Tensor]:
        """The empty caches of a function with room for `size` tokens."""
        return [
            torch.zeros(self.rows, 1, self.heads * self.width, 1, self.ring or size, dtype=dtype) for _ in self.names
        ]


@dataclass(frozen=True)
class StaticCaches:
    """All caches of a model.

    Attributes:
        pairs: the caches.
        layers: of each layer its pair and row; None for one without keys and values of its own.
        own: what the model keeps in each layer, and of which shape.
        window: how many tokens a query sees in a ring; 0 without one.
    """

    pairs: tuple[CachePair, ...]
    layers: tuple[tuple[int, int] | None, ...]
    own: States
    window: int = 0

    @classmethod
    def of(cls, model: Any, context: int) -> StaticCaches:
        """The caches of a causal language model for a number of tokens.

        Raises:
            LanguageModelError: layers that keep a place for each token differ in heads or width, or no layer does; or a
                layer keeps something else, too.
        """
        states = states_of(model)
        kind = model.config.model_type
        _check_fixed(states, kind)
        shapes = {each.name: each.shape for each in states.states}
        kept = [None if each.keys is None else shapes[each.keys.state] for each in states.layers]
        window, slides = windows_of(model.config, len(kept))
        differ = len({shape for shape in kept if shape}) > 1
        is_mixed = any(slides) and not all(slides)
        if not (window and is_mixed and (window < context or differ)):
            window, slides = 0, [False] * len(kept)
        placed: list[tuple[int, int] | None] = []
        rows: dict[bool, list[tuple[int, ...]]] = {False: [], True: []}
        for shape, is_sliding in zip(kept, slides, strict=True):
            placed.append(None if shape is None else (int(is_sliding), len(rows[is_sliding])))
            rows[is_sliding] += [] if shape is None else [shape]
        for group in rows.values():
            if len(set(group)) > 1:
                listed = " and ".join(" x ".join(map(str, each)) for each in sorted(set(group)))
                raise LanguageModelError(
                    f"layers of the architecture {kind!r} keep keys and values of {listed} (heads x width), and the "
                    "Neural Engine's form has one shape for all layers that see as many tokens"
                )
        if not rows[False]:
            raise LanguageModelError(
                f"the architecture {kind!r} keeps no keys and values in some layer that sees all tokens, and the "
                "Neural Engine's form has a cache of keys and of values"
            )
        pairs = [CachePair(CACHES, len(rows[False]), *rows[False][0])]
        if rows[True]:
            heads, width = rows[True][0]
            pairs.append(CachePair(SLIDING_CACHES, len(rows[True]), heads, width, ring_size(window)))
        return cls(tuple(pairs), tuple(placed), states, window if rows[True] else 0)

    @property
    def ring(self) -> int | None:
        """The places of the ring, if there is one."""
        return self.pairs[-1].ring

    @property
    def fixed(self) -> dict[str, CacheState]:
        """The states of fixed size, by their names here."""
        names = dict(zip((CONVOLUTION, RECURRENCE), FIXED_STATES, strict=True))
        return {names[state.name]: state for state in self.own.states if state.name in names}

    @property
    def names(self) -> list[str]:
        """The names of the states."""
        return [*(name for pair in self.pairs for name in pair.names), *self.fixed]

    def zeros(self, size: int, dtype: torch.dtype) -> list[Tensor]:
        """The empty states of a function with room for `size` tokens."""
        caches = [cache for pair in self.pairs for cache in pair.zeros(size, dtype)]
        held = self.fixed.values()
        return [*caches, *(torch.zeros(each.rows, len(QUERIES), *each.shape, dtype=each.dtype) for each in held)]

    def cache_layers(self, given: Mapping[str, Tensor], steps: Sequence[Any], block: BlockOfTokens) -> list[Any]:
        """The layers of the cache of transformers.

        Args:
            given: the states by name.
            steps: where the block is written in the caches, and in the ring.
            block: for states of fixed size.
        """
        held = {state.name: given[name] for name, state in self.fixed.items()}
        made: list[Any] = []
        for place, own in zip(self.layers, self.own.layers, strict=True):
            if own.count:
                rows = {at: held[each.state][each.row] for at, each in own.fixed.items()}
                made.append(BlockLayer(rows, own.count, block))
            elif place is None or own.keys is None or own.values is None:
                made.append(DynamicLayer())
            else:
                pair, row = self.pairs[place[0]], place[1]
                keys, values = (given[name] for name in pair.names)
                widths = own.keys.width, own.values.width
                made.append(Columns(keys, values, row, steps[place[0]], pair.heads, pair.width, widths))
        return made

    def write_fixed(self, given: Mapping[str, Tensor], layers: Sequence[Any]) -> None:
        """Write each state of fixed size once, with the rows of its layers.

        Raises:
            LanguageModelError: a layer leaves a state as it was.
        """
        for name, state in self.fixed.items():
            rows: dict[int, Tensor] = {}
            for number, (own, layer) in enumerate(zip(self.own.layers, layers, strict=True)):
                for at, place in own.fixed.items():
                    if place.state == state.name:
                        if at not in layer.after:
                            raise LanguageModelError(
                                f"layer {number} does not write {at[0]} {at[1]} in the way of a recurrence that the "
                                "Neural Engine's form has"
                            )
                        rows[place.row] = layer.after[at]
            given[name].copy_(torch.stack([rows[row] for row in sorted(rows)]))


def _check_fixed(states: States, kind: str) -> None:
    """Check that layers keep keys and values, or one window and one recurrence of one shape.

    Raises:
        LanguageModelError: a layer keeps something else.
    """
    known = {KEY_CACHE, VALUE_CACHE, CONVOLUTION, RECURRENCE}
    others = [each.name for each in states.states if each.name.rstrip("0123456789") not in known]
    fixed = [each.name for each in states.states if each.name.startswith((CONVOLUTION, RECURRENCE))]
    others += [name for name in fixed if name not in known]
    if others or any(each.count and each.keys for each in states.layers):
        reason = f"the states {', '.join(others)}" if others else "keys and values beside a recurrence in one layer"
        raise LanguageModelError(
            f"the architecture {kind!r} keeps {reason}, and the Neural Engine's form holds keys and values, windows of "
            "convolutions of one size, and recurrences of one size"
        )


def windows_of(config: Any, count: int) -> tuple[int, list[bool]]:
    """The sliding window, or 0, and for each layer whether it has one."""
    window = getattr(config, "sliding_window", None) or 0
    types = getattr(config, "layer_types", None) or [_SLIDING] * count
    return window, [each == _SLIDING for each in types]

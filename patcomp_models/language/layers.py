"""Layers of a cache of transformers whose content is rows of the states of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, LinearAttentionCacheLayerMixin

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import CONVOLUTION, RECURRENCE


class StackedCacheLayer(CacheLayerMixin):
    """One layer of the stacked cache: new keys and values are written behind those of earlier calls.

    Args:
        key_cache, value_cache: (layers, 1, heads, capacity, width).
        layer: the row of this layer.
        offset: the number of tokens of earlier calls.
        total: the number of all tokens.
        widths: of keys and of values, if they are less than that of the caches.
        scales: of keys and of values, if the caches are of int8.

    `update` raises LanguageModelError for keys or values of another shape.
    """

    def __init__(
        self, key_cache: Tensor, value_cache: Tensor, layer: int, offset: Any, total: Any,
        widths: tuple[int, int] | None = None, scales: tuple[float, float] | None = None,
    ):  # fmt: skip
        CacheLayerMixin.__init__(self)
        self.key_cache, self.value_cache, self.layer, self.offset, self.total = (
            key_cache, value_cache, layer, offset, total,
        )  # fmt: skip
        self.widths = widths or (key_cache.shape[-1], value_cache.shape[-1])
        self.scales = scales
        self.is_initialized = True
        self.is_written = False
        self.is_copied = False
        """Whether attention gets a copy, because it asks whether keys lie in memory without gaps."""

    def lazy_initialization(self, *arguments: Any, **options: Any) -> None:
        """The tensors are given."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.is_written = True
        keys, values = self.widths
        return self._written(self.key_cache, key_states, keys), self._written(self.value_cache, value_states, values)

    def written(self, keys: Tensor) -> Tensor:
        """All keys, with new ones, of a layer that has no values."""
        self.is_written = True
        return self._written(self.key_cache, keys, self.widths[0])

    def padded(self, cache: Tensor, new: Tensor, width: int) -> Tensor:
        """New keys or values in the width of the cache."""
        if (new.shape[1], new.shape[3]) != (cache.shape[2], width):  # copy_ would repeat a single head
            raise LanguageModelError(
                f"layer {self.layer} keeps keys or values of {new.shape[1]} x {new.shape[3]} (heads x width), and in a "
                f"first call it kept {cache.shape[2]} x {width}; a bundle holds keys and values of one shape for each "
                "layer"
            )
        return new if width == cache.shape[4] else functional.pad(new, (0, cache.shape[4] - width))

    def _written(self, cache: Tensor, new: Tensor, width: int) -> Tensor:
        padded = self.padded(cache, new, width)
        scale = None if self.scales is None else self.scales[cache is self.value_cache]
        if scale is not None:
            padded = (padded * (1 / scale)).round().clamp(-127, 127).to(cache.dtype)
        cache.narrow(0, self.layer, 1).narrow(3, self.offset, new.shape[2]).copy_(padded.unsqueeze(0))
        # a new view: one of before the write would be written to as well
        held = cache.narrow(0, self.layer, 1).narrow(3, 0, self.total).squeeze(0)
        held = held if width == cache.shape[4] else held.narrow(3, 0, width)
        held = held.clone(memory_format=torch.contiguous_format) if self.is_copied else held
        return held.to(new.dtype) if scale is None else held.to(new.dtype) * scale

    def get_mask_sizes(self, query_length: int) -> tuple[Any, int]:
        return self.total, 0

    def get_seq_length(self) -> Any:
        return self.offset

    def get_max_length(self) -> int:
        return -1


class IndexedLayer(StackedCacheLayer):
    """One layer of sparse attention. Further caches keep something of each token, by which the layer chooses the tokens
    that it attends to, or of which it makes compressed keys.

    Args:
        kept: what they keep, each with its cache, (layers, 1, 1, capacity, width), and the row of this layer in it.
        axes: how many positions the model keeps of each earlier token here: those of a text, which are its number.
        stacked: as for `StackedCacheLayer`.
    """

    def __init__(self, kept: dict[str, tuple[Tensor, int]], axes: int, *stacked: Any):
        super().__init__(*stacked)
        self._kept = {
            name: StackedCacheLayer(cache, cache, row, self.offset, self.total) for name, (cache, row) in kept.items()
        }
        self.indexer_position_ids = torch.arange(self.offset).expand(axes, 1, -1) if axes else None

    def kept(self, name: str, values: Tensor) -> Tensor:
        """Append values of the new tokens, (1, q, width); return those of all tokens, (1, n, width)."""
        return self._kept[name].written(values.unsqueeze(1)).squeeze(1)

    def update_indexer(self, indexer_key_states: Tensor) -> Tensor:
        """As `kept`, for the keys of an index."""
        return self.kept(INDEX_KEYS, indexer_key_states)


INDEX_KEYS = "index"
"""What transformers' own layers of an index keep."""


class KeepingLayer(DynamicLayer):
    """One layer in a first call of a model, whose further caches are made by it: see `IndexedLayer`."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Tensor] = {}

    def kept(self, name: str, values: Tensor) -> Tensor:
        """The values of all tokens, (1, n, width)."""
        self.known[name] = values
        return values


_NEVER = 2**30
"""A position behind those of all tokens."""


@dataclass(frozen=True)
class Ring:
    """Where the keys and values of a sliding window are: the token at position p is in place p modulo the size.

    The tensors are of one call; the layers of a window share them.
    """

    size: int
    offset: Any
    """The number of tokens of earlier calls."""
    positions: Tensor
    """Of what a layer attends to, the places of the ring as they were before the call and the new tokens; a place that
    is not filled has a position behind all others, which a causal mask hides."""
    sources: Tensor
    """Which of these each place of the ring has after the call."""

    @classmethod
    def of(cls, size: int, offset: Any, count: Any) -> Ring:
        places = torch.arange(size, dtype=torch.int32)
        ends = (offset, offset + count)
        before, after = (end - 1 - (end - 1 - places) % size for end in ends)  # the last position of a place
        new = torch.arange(count, dtype=torch.int32) + offset
        positions = torch.cat([torch.where(before < 0, _NEVER, before), new])
        return cls(size, offset, positions, torch.where(after < offset, places, size + after - offset))


class RingLayer(StackedCacheLayer):
    """One layer with a sliding window. New keys and values overwrite the oldest ones, which have left the window.

    Args:
        ring: of its window.
        stacked: as for `StackedCacheLayer`.
    """

    is_sliding = True

    def __init__(self, ring: Ring, *stacked: Any):
        super().__init__(*stacked)
        self.ring = ring

    def _written(self, cache: Tensor, new: Tensor, width: int) -> Tensor:
        row = cache.narrow(0, self.layer, 1).squeeze(0)
        both = torch.cat([row, self.padded(cache, new, width).to(cache.dtype)], 2)
        cache.narrow(0, self.layer, 1).copy_(both.index_select(2, self.ring.sources).unsqueeze(0))
        held = both if width == cache.shape[4] else both.narrow(3, 0, width)
        return held.to(new.dtype)

    def get_mask_sizes(self, query_length: int) -> tuple[Any, Any]:
        # transformers adds the second one to 0, 1, 2 and so on, to get the positions of the keys
        count = self.ring.size + query_length
        return count, self.ring.positions - torch.arange(count, dtype=torch.int32)


class SlidingLayer(StackedCacheLayer):
    """One layer with a fixed number of past tokens; their keys and values stay in order.

    Args:
        key_cache, value_cache: (layers, 1, heads, tokens, width).
        layer: the row of this layer.
        offset: how many tokens were before, a tensor of no dimension.
    """

    is_sliding = True

    def __init__(self, key_cache: Tensor, value_cache: Tensor, layer: int, offset: Tensor):
        super().__init__(key_cache, value_cache, layer, offset, None)
        self.new = 0

    def _written(self, cache: Tensor, new: Tensor, width: int) -> Tensor:
        self.new, places = new.shape[2], cache.shape[3]
        both = torch.cat([cache.narrow(0, self.layer, 1).squeeze(0), self.padded(cache, new, width)], 2)
        cache.narrow(0, self.layer, 1).copy_(both.narrow(2, self.new, places).unsqueeze(0))
        return both

    def get_mask_sizes(self, query_length: int) -> tuple[int, Any]:
        # transformers adds the second one to 0, 1, 2 and so on, to get the positions of the keys
        places = self.key_cache.shape[3]
        count = torch.arange(places + query_length, dtype=torch.int32)
        positions = self.offset - places + count
        return places + query_length, torch.where(positions < 0, _NEVER, positions) - count


class FixedLayer(LinearAttentionCacheLayerMixin):
    """One layer with states of fixed size (windows of convolutions, states of recurrences); each call replaces them.

    Args:
        fixed: copies of the rows, by kind and number.
        count: how many numbers there are.

    The states before the first call are zeros, which is how transformers begins.
    """

    def __init__(self, fixed: dict[tuple[str, int], Tensor], count: int):
        LinearAttentionCacheLayerMixin.__init__(self, count)
        for (kind, number), value in fixed.items():
            self._kind(kind)[number] = value
        numbers = range(count)
        self.is_conv_states_initialized = {each: self.conv_states[each] is not None for each in numbers}
        self.is_recurrent_states_initialized = {each: self.recurrent_states[each] is not None for each in numbers}
        self.has_previous_state = dict.fromkeys(numbers, True)

    def _kind(self, kind: str) -> dict[int, Tensor | None]:
        return {CONVOLUTION: self.conv_states, RECURRENCE: self.recurrent_states}[kind]

    def held(self, kind: str, number: int) -> Tensor:
        """A state after the call."""
        value = self._kind(kind)[number]
        assert value is not None
        return value

    def hold(self, kind: str, number: int, value: Tensor) -> None:
        """Keep a state after the call, in the type that it had before."""
        self._kind(kind)[number] = value.to(self.held(kind, number).dtype)

    def lazy_initialization(self, *arguments: Any, **options: Any) -> None:
        """The tensors are given."""

    def update_conv_state(self, conv_states: Tensor, state_idx: int = 0, **options: Any) -> Tensor:
        before = self.held(CONVOLUTION, state_idx)
        window = before.shape[-1]
        both = torch.cat([before, conv_states.to(before.dtype)], dim=-1)
        self.conv_states[state_idx] = both.narrow(-1, both.shape[-1] - window, window)
        return both.to(conv_states.dtype)

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **options: Any) -> Tensor:
        self.hold(RECURRENCE, state_idx, recurrent_states)
        return self.held(RECURRENCE, state_idx)

    def get_seq_length(self) -> int:
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[Any, int]:
        return query_length, 0


class FixedStackedLayer(FixedLayer, StackedCacheLayer):
    """One layer with both: attention beside a recurrence."""

    def __init__(self, fixed: dict[tuple[str, int], Tensor], count: int, *stacked: Any):
        StackedCacheLayer.__init__(self, *stacked)
        FixedLayer.__init__(self, fixed, count)

    def get_seq_length(self) -> Any:
        return self.offset

    def get_mask_sizes(self, query_length: int) -> tuple[Any, int]:
        return self.total, 0

"""What a language model keeps between calls, found out by one call, and how it is stacked into the states of a program.

A cache of transformers has for each layer keys and values, which grow with the tokens, or windows of convolutions and
recurrences, whose size is fixed, or both, or nothing. Those of equal form are the rows of one state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, LinearAttentionCacheLayerMixin

from patcomp.errors import reason_of
from patcomp.ir.pages import releasing
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import (
    CONVOLUTION,
    INDEX_CACHE,
    KEY_CACHE,
    RECURRENCE,
    VALUE_CACHE,
    WINDOW_KEYS,
    WINDOW_VALUES,
)
from patcomp_models.language.conventions import CACHE, convention_of
from patcomp_models.language.layers import INDEX_KEYS, KeepingLayer
from patcomp_models.language.memory import weight_memory
from patcomp_models.language.open_lengths import open_lengths

_TOKENS = 4


@dataclass(frozen=True)
class CacheState:
    """A tensor that lives between the calls: one row for each layer that has such a state."""

    name: str
    rows: int
    shape: tuple[int, ...]
    """Of a row; of keys and values (heads, width), between which the tokens are."""
    dtype: torch.dtype
    grows: bool
    """Whether it has a place for each token."""
    texts: int = 1
    """How many texts it has such places for."""

    def zeros(self, capacity: int) -> Tensor:
        """The state before the first call: (rows, texts, heads, capacity, width), or (rows, *shape)."""
        if not self.grows:
            return torch.zeros(self.rows, *self.shape, dtype=self.dtype)
        heads, width = self.shape
        return torch.zeros(self.rows, self.texts, heads, capacity, width, dtype=self.dtype)


@dataclass(frozen=True)
class _Place:
    """Where a layer's part of a state is."""

    state: str
    row: int
    width: int = 0
    """Of keys or values; less than that of the state if keys and values differ."""


@dataclass(frozen=True)
class LayerStates:
    """The states of one layer of a cache."""

    keys: _Place | None = None
    values: _Place | None = None
    window: int = 0
    """How many tokens a query sees, if keys and values have places for no others; 0 if they have one for each token."""
    fixed: dict[tuple[str, int], _Place] = field(default_factory=dict)
    """By kind and by the number that transformers gives to the states of a layer."""
    index: dict[str, _Place] = field(default_factory=dict)
    """What a layer of sparse attention keeps of each token to choose those that it attends to, by name."""
    axes: int = 0
    """How many positions of each token the layer keeps, for all layers with an index; 0 for a layer without."""
    count: int = 0
    """How many numbers of fixed states the layer has; 0 if it has none."""
    scales: tuple[float, float] | None = None
    """Of keys and of values, if their caches are of int8."""


@dataclass(frozen=True)
class States:
    """All states of a model."""

    states: tuple[CacheState, ...]
    layers: tuple[LayerStates, ...]

    @property
    def names(self) -> list[str]:
        return [state.name for state in self.states]

    @property
    def has_windows(self) -> bool:
        """Whether layers keep the tokens of their sliding window only."""
        return any(layer.window for layer in self.layers)

    @property
    def has_windows_only(self) -> bool:
        """Whether each layer keeps the tokens of its sliding window, and nothing else."""
        return all(layer.window and not layer.fixed for layer in self.layers)

    def zeros(self, capacity: int) -> tuple[Tensor, ...]:
        """The states before the first call."""
        return tuple(state.zeros(capacity) for state in self.states)


def states_of(
    model: Any,
    dtype: torch.dtype | None = None,
    context: int | None = None,
    scales: Sequence[tuple[float, float] | None] | None = None,
    first: Mapping[str, Tensor] | None = None,
) -> States:
    """The states of a causal language model, from one call of a few tokens.

    Args:
        model: of transformers.
        dtype: of keys and values; by default the one in which the model has them.
        context: the most tokens, if layers with a smaller sliding window have places for its tokens only.
        scales: of keys and values of each layer, if the caches that grow are of int8.
        first: the arguments of that call; by default tokens, (1, q).

    Raises:
        LanguageModelError: the call fails, or the model keeps something that is no state of a program.
    """
    kind = model.config.model_type
    if first is None:
        first = {"input_ids": torch.arange(_TOKENS)[None] % model.config.get_text_config().vocab_size}
    return _stacked(cached_layers(model, **first), kind, dtype, context, scales)


def cached_layers(model: Any, **first: Tensor) -> list[Any]:
    """The layers of the cache of a model after one call, whose arguments are given, such as tokens, (1, q).

    Raises:
        LanguageModelError: the call fails, or the model keeps something else than a cache.
    """
    kind, count = model.config.model_type, next(iter(first.values())).shape[1]
    convention = convention_of(model)
    cache = convention.cache(convention.begun(model))
    with torch.no_grad(), releasing(weight_memory(model)):
        try:
            if cache.layers:
                with open_lengths(model, cache):
                    model(**first, **convention.arguments(cache))
                return list(cache.layers)
            result = model(**first, use_cache=True)
            if getattr(result, CACHE, result) is None:  # Granite Vision 4 makes none of its own
                result = model(**first, use_cache=True, **{CACHE: DynamicCache()})
        except Exception as error:  # the code of a model can raise anything
            raise LanguageModelError(
                f"the architecture {kind!r} cannot be called with {count} tokens: {reason_of(error)}"
            ) from error
    return convention.layers(result, kind)


def kept_beside(layer: Any) -> dict[str, Tensor]:
    """What a layer keeps of each token beside keys and values, (1, n, width) each, by name."""
    keys = getattr(layer, "indexer_keys", None)
    return layer.known if isinstance(layer, KeepingLayer) else {} if keys is None else {INDEX_KEYS: keys}


def _stacked(
    layers: Iterable[Any],
    kind: str,
    dtype: torch.dtype | None,
    context: int | None,
    scales: Sequence[tuple[float, float] | None] | None,
) -> States:
    """States by kind and form, in the order: keys and values, indices, those of windows, convolutions, recurrences."""
    found: dict[tuple[object, ...], list[CacheState]] = {}

    def placed(names: tuple[str, ...], shape: tuple[int, ...], element: torch.dtype, *, grows: bool) -> list[_Place]:
        """A new row in the state of such a form, or in both of keys and values."""
        form = names, shape, element
        if form not in found:
            number = 1 + sum(other[0] == names for other in found)
            suffix = "" if number == 1 else str(number)
            found[form] = [CacheState(name + suffix, 0, shape, element, grows) for name in names]
        found[form] = [replace(state, rows=state.rows + 1) for state in found[form]]
        return [_Place(state.name, state.rows - 1) for state in found[form]]

    plans = []
    for number, layer in enumerate(layers):
        plan = LayerStates()
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            held = {
                (name, index): value
                for name, values in ((CONVOLUTION, layer.conv_states), (RECURRENCE, layer.recurrent_states))
                for index, value in values.items()
                if value is not None
            }
            if any(not each.is_floating_point() for each in held.values()):
                raise LanguageModelError(
                    f"layer {number} of the architecture {kind!r} keeps integers (the last tokens, for embeddings of "
                    "several tokens), and a bundle holds floats: keys and values, convolutions and recurrences"
                )
            fixed = {at: placed((at[0],), tuple(each.shape), each.dtype, grows=False)[0] for at, each in held.items()}
            plan = LayerStates(fixed=fixed, count=layer.number_of_states)
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is not None and values is not None and keys.numel():
            if keys.ndim != 4 or values.ndim != 4 or keys.shape[1] != values.shape[1]:
                raise LanguageModelError(
                    f"layer {number} of the architecture {kind!r} keeps keys of {list(keys.shape)} and values of "
                    f"{list(values.shape)}, and a bundle holds keys and values of the same heads"
                )
            # one width for both, because the Swift package grows values by the sizes of keys
            heads, width = keys.shape[1], max(keys.shape[3], values.shape[3])
            window = getattr(layer, "sliding_window", None) or 0
            names: tuple[str, str]
            shape: tuple[int, ...]
            if context is not None and 0 < window < context:
                names, shape = (WINDOW_KEYS, WINDOW_VALUES), (1, heads, window, width)
                plan = replace(plan, window=window)
            else:
                names, shape = (KEY_CACHE, VALUE_CACHE), (heads, width)
            scale = None if scales is None or plan.window else scales[number]
            plan = replace(plan, scales=scale)
            element = (dtype or keys.dtype) if scale is None else torch.int8
            key, value = placed(names, shape, element, grows=not plan.window)
            index = {
                name: placed((INDEX_CACHE,), (1, each.shape[-1]), dtype or each.dtype, grows=True)[0]
                for name, each in kept_beside(layer).items()
            }
            positions = getattr(layer, "indexer_position_ids", None)
            plan = replace(plan, index=index, axes=0 if positions is None else positions.shape[0])
            plan = replace(
                plan, keys=replace(key, width=keys.shape[3]), values=replace(value, width=values.shape[3])
            )  # fmt: skip
        plans.append(plan)
    order = [(KEY_CACHE, VALUE_CACHE), (INDEX_CACHE,), (WINDOW_KEYS, WINDOW_VALUES), (CONVOLUTION,), (RECURRENCE,)]
    states = [state for names in order for form, each in found.items() if form[0] == names for state in each]
    if not states:
        raise LanguageModelError(f"the architecture {kind!r} keeps nothing in the cache of transformers")
    return States(tuple(states), tuple(plans))

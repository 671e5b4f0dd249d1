"""How models take what they keep between calls, and give it back: as a cache of transformers, or in a way of their own.

A convention makes layers of the cache out of what a first call of the model gives, and the argument of later calls out
of layers.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import BaseModelOutputWithPast

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import CONVOLUTION, RECURRENCE
from patcomp_models.language.layers import FixedLayer, KeepingLayer

CACHE = next(name for name in ("cache", "past_key_values") if name in BaseModelOutputWithPast.__dataclass_fields__)
"""How this version of transformers calls a cache, as an argument and as a part of an output: `cache` since 5.24."""


class AskedCache(Cache):
    """A cache that knows which recurrence a layer asked for last."""

    _asked: Tensor | None = None
    _heads = 0

    def get_recurrent_state(self, *arguments: Any, **options: Any) -> Tensor | None:
        self._asked, self._heads = super().get_recurrent_state(*arguments, **options), 0
        return self._asked

    def asked(self) -> Tensor | None:
        """The recurrence of a layer, (1, size, state size). Zamba calls for each head, and gets one after the other."""
        if self._asked is None or self._asked.ndim == 3:
            return self._asked
        self._heads += 1
        return self._asked[:, self._heads - 1]


class Convention:
    """A model that takes a cache of transformers.

    Args:
        argument: how the model calls it.
    """

    def __init__(self, argument: str):
        self.argument = argument

    def begun(self, model: Any) -> list[Any]:
        """The layers that a first call of a model fills; none if the call makes its own."""
        return []

    def layers(self, result: Any, kind: str) -> list[Any]:
        """The layers after a call.

        Args:
            result: of the call.
            kind: the `model_type`, for messages.

        Raises:
            LanguageModelError: the model gives something else.
        """
        cache: Any = getattr(result, self.argument, None)
        if isinstance(cache, EncoderDecoderCache) and not any(
            _held(each) for each in cache.cross_attention_cache.layers
        ):
            cache = cache.self_attention_cache
        if type(cache) in (Cache, DynamicCache):
            return list(cache.layers)
        given = "no cache" if cache is None else f"a cache of its own ({type(cache).__name__})"
        raise LanguageModelError(
            f"the architecture {kind!r} keeps {given}, and a bundle holds what is in a cache of transformers: keys and "
            "values, windows of convolutions and recurrences"
        )

    def cache(self, layers: list[Any]) -> AskedCache:
        """The cache of a call."""
        return AskedCache(layers=layers)

    def arguments(self, cache: AskedCache) -> dict[str, Any]:
        """What a call of the model takes that continues others."""
        return {self.argument: self.given(cache), "use_cache": True}

    def given(self, cache: AskedCache) -> Any:
        """What the model takes as its argument."""
        return cache

    def take(self, result: Any, cache: AskedCache) -> None:
        """Put what a call gives into the layers of its cache."""


def _held(layer: Any) -> bool:
    """Whether a layer of a cache holds keys."""
    keys = getattr(layer, "keys", None)
    return keys is not None and keys.numel() > 0


class LightningConvention(Convention):
    """MiniMax, whose class of caches keeps the recurrences of lightning attention beside the layers."""

    def layers(self, result: Any, kind: str) -> list[Any]:
        cache = getattr(result, self.argument)
        recurrences = {number: each for number, each in enumerate(cache.linear_cache) if isinstance(each, Tensor)}
        count = max([len(cache.layers), *(number + 1 for number in recurrences)])
        return [
            FixedLayer({(RECURRENCE, 0): recurrences[number]}, 1) if number in recurrences else cache.layers[number]
            for number in range(count)
        ]

    def cache(self, layers: list[Any]) -> AskedCache:
        from transformers.models.minimax.modeling_minimax import MiniMaxCache

        class LightningCache(AskedCache, MiniMaxCache):
            """The model checks the class of its cache."""

            linear_cache: tuple[Tensor, ...] = ()

            def __init__(self) -> None:
                Cache.__init__(self, layers=layers)

        return LightningCache()


class ListConvention(Convention):
    """RWKV, which takes five tensors (1, size, layers): the last inputs of the feed-forward and of the attention parts,
    and the numerator, denominator and largest exponent of the recurrence."""

    def layers(self, result: Any, kind: str) -> list[Any]:
        state = getattr(result, self.argument)
        return [
            FixedLayer({at: each[..., number] for at, each in zip(_FIVE, state, strict=True)}, 3)
            for number in range(state[0].shape[-1])
        ]

    def given(self, cache: AskedCache) -> list[Tensor]:
        return [torch.stack([layer.held(*at) for layer in cache.layers], -1) for at in _FIVE]

    def take(self, result: Any, cache: AskedCache) -> None:
        for at, each in zip(_FIVE, getattr(result, self.argument), strict=True):
            for number, layer in enumerate(cache.layers):
                layer.hold(*at, each[..., number])


class MemoryConvention(Convention):
    """xLSTM, whose cache has a matrix, a vector and a largest exponent for each layer."""

    def layers(self, result: Any, kind: str) -> list[Any]:
        states = getattr(result, self.argument).rnn_state
        return [FixedLayer(dict(zip(_THREE, states[number], strict=True)), len(_THREE)) for number in sorted(states)]

    def given(self, cache: AskedCache) -> Any:
        states = {number: tuple(layer.held(*at) for at in _THREE) for number, layer in enumerate(cache.layers)}
        return SimpleNamespace(rnn_state=states, seqlen_offset=0)

    def take(self, result: Any, cache: AskedCache) -> None:
        """The model writes into the tensors that it was given."""


class ModuleConvention(Convention):
    """RecurrentGemma, which keeps a window and a recurrence in each of its recurrent modules."""

    def begun(self, model: Any) -> list[Any]:
        blocks = [layer.temporal_block for layer in model.base_model.layers]
        return [_empty(block) if hasattr(block, "conv_1d") else DynamicLayer() for block in blocks]


def _empty(block: Any) -> FixedLayer:
    window = torch.zeros(1, block.lru_width, block.conv1d_width - 1, dtype=block.conv_1d.weight.dtype)
    return FixedLayer({(CONVOLUTION, 0): window, (RECURRENCE, 0): torch.zeros(1, block.lru_width)}, 1)


class OwnConvention(Convention):
    """RWKV-7, a model of patcomp, which knows its layers before the first token."""

    def begun(self, model: Any) -> list[Any]:
        layers: list[Any] = model.begun()
        return layers


class CompressedConvention(Convention):
    """DeepSeek-V4, whose layers keep something of each token to make compressed keys of."""

    def begun(self, model: Any) -> list[Any]:
        return [KeepingLayer() for _ in range(model.config.num_hidden_layers)]


class UnseenConvention(Convention):
    """GPT, which takes no cache: the function of its attention is exchanged, and takes one layer after the other."""

    def begun(self, model: Any) -> list[Any]:
        return [DynamicLayer() for _ in range(model.config.num_hidden_layers)]

    def arguments(self, cache: AskedCache) -> dict[str, Any]:
        return {}


_THREE = tuple((RECURRENCE, number) for number in range(3))
_FIVE = ((CONVOLUTION, 0), (CONVOLUTION, 1), (RECURRENCE, 0), (RECURRENCE, 1), (RECURRENCE, 2))

_OWN = {
    "minimax": LightningConvention(CACHE),
    "rwkv": ListConvention("state"),
    "rwkv7": OwnConvention(CACHE),
    "xlstm": MemoryConvention(CACHE),
    "recurrent_gemma": ModuleConvention(CACHE),
    "deepseek_v4": CompressedConvention(CACHE),
    "openai-gpt": UnseenConvention(""),
    "vibevoice": Convention(CACHE),  # it takes the argument among others, without a name
}
_ARGUMENTS = ("cache", "past_key_values", "cache_params")
"""How models call the argument that takes a cache of transformers, also those of code outside of it."""


def convention_of(model: Any) -> Convention:
    """How a model takes what it keeps.

    Raises:
        LanguageModelError: it takes nothing.
    """
    kind = model.config.model_type
    if kind in _OWN:
        return _OWN[kind]
    taken = inspect.signature(model.forward).parameters
    argument = next((name for name in _ARGUMENTS if name in taken), None)
    if argument is None:
        raise LanguageModelError(
            f"the architecture {kind!r} takes no cache of transformers (it has no argument "
            f"{', '.join(_ARGUMENTS[:-1])} or {_ARGUMENTS[-1]}), so its states cannot be the states of a bundle"
        )
    return Convention(argument)


def first_position(model: nn.Module) -> int:
    """The position of the first token. Models of RoBERTa's kind count positions themselves, from behind that of the
    padding; all others begin with 0."""
    name = "create_position_ids_from_input_ids"
    parts: list[Any] = [part for part in model.modules() if hasattr(part, name)]
    return max((int(part.padding_idx) + 1 for part in parts), default=0)

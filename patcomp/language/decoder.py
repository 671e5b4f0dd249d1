"""A causal language model of transformers as the runtime of Apple's Swift package calls it.

    logits = decoder(input_ids, position_ids, key_cache, value_cache)

`input_ids` are the q new tokens, `position_ids` the positions of all n tokens, those in the cache too, so that the
offset n - q is a difference of sizes. The keys and values of all layers are one tensor each, of the shape
(layers, 1, key/value heads, capacity, head size), which the call writes to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache, PretrainedConfig
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from patcomp.errors import reason_of
from patcomp.language.errors import LanguageModelError
from patcomp.language.folders import BESIDE_TEXT


@dataclass(frozen=True)
class CacheShape:
    """The sizes of a cache without its capacity."""

    layers: int
    heads: int
    width: int

    @classmethod
    def of(cls, config: PretrainedConfig) -> CacheShape:
        """The sizes that a configuration implies."""
        heads = config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        return cls(config.num_hidden_layers, getattr(config, "num_key_value_heads", None) or heads, width)

    def zeros(self, capacity: int, dtype: torch.dtype) -> Tensor:
        """An empty cache of keys or of values."""
        return torch.zeros(self.layers, 1, self.heads, capacity, self.width, dtype=dtype)


_HELD = "a bundle holds keys and values of one shape for each layer"
_OTHER_STATES = {
    "LinearAttention": "states of convolutions or of linear attention",
    "Dummy": "no keys and values of its own",
    "DynamicIndexed": "an index beside keys and values",
}
"""The contents of transformers' other classes of caches, by the beginning of the class's name."""


def check_cache(config: Any) -> None:
    """Check that a model keeps between calls what a bundle holds, as far as its configuration says it.

    Raises:
        LanguageModelError: it keeps something else.
    """
    kind = config.model_type
    if config.get_text_config() is not config:
        raise LanguageModelError(f"the architecture {kind!r} {BESIDE_TEXT}")
    try:
        layers = DynamicCache(config=config).layers
    except Exception as error:  # KeyError, for instance, for a kind of layer that has no cache in transformers
        raise LanguageModelError(
            f"the architecture {kind!r} has no cache in transformers ({reason_of(error)}), and {_HELD}"
        ) from error
    for number, layer in enumerate(layers):
        name = type(layer).__name__
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            known = (words for start, words in _OTHER_STATES.items() if name.startswith(start))
            raise LanguageModelError(
                f"layer {number} of the architecture {kind!r} keeps {next(known, f'a {name}')}, and {_HELD}"
            )
    try:
        CacheShape.of(config)
    except Exception as error:  # transformers raises its own exception if the attributes of layers differ
        raise LanguageModelError(
            f"the configuration of the architecture {kind!r} has no number and width of heads that all its layers "
            f"share, and {_HELD}"
        ) from error


class StackedCacheLayer(CacheLayerMixin):
    """One layer of the stacked cache: new keys and values are written behind those of earlier calls.

    `update` raises LanguageModelError for keys or values of another shape.
    """

    def __init__(self, key_cache: Tensor, value_cache: Tensor, layer: int, offset: Any, total: Any):
        super().__init__()
        self.key_cache, self.value_cache, self.layer, self.offset, self.total = (
            key_cache, value_cache, layer, offset, total,
        )  # fmt: skip
        self.is_initialized = True
        self.is_written = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The tensors are given."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.is_written = True
        return self._written(self.key_cache, key_states), self._written(self.value_cache, value_states)

    def _written(self, cache: Tensor, new: Tensor) -> Tensor:
        if (new.shape[1], new.shape[3]) != (cache.shape[2], cache.shape[4]):  # copy_ would repeat a single head
            raise LanguageModelError(
                f"layer {self.layer} keeps keys or values of {new.shape[1]} x {new.shape[3]} (heads x width), its "
                f"configuration implies {cache.shape[2]} x {cache.shape[4]}, and {_HELD}"
            )
        cache.narrow(0, self.layer, 1).narrow(3, self.offset, new.shape[2]).copy_(new.unsqueeze(0))
        # a new view: one of before the write would be written to as well
        return cache.narrow(0, self.layer, 1).narrow(3, 0, self.total).squeeze(0)

    def get_mask_sizes(self, query_length: int) -> tuple[Any, int]:
        return self.total, 0

    def get_seq_length(self) -> Any:
        return self.offset

    def get_max_length(self) -> int:
        return -1


class Decoder(nn.Module):
    """A causal language model with its cache as arguments.

    Args:
        model: an `AutoModelForCausalLM`.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, position_ids: Tensor, key_cache: Tensor, value_cache: Tensor) -> Tensor:
        """The logits of the new tokens.

        Args:
            input_ids: (1, q), the new tokens.
            position_ids: (1, n), the positions of all tokens.
            key_cache, value_cache: (layers, 1, heads, capacity, width); the call writes to them.

        Returns:
            (1, q, vocabulary); float16 if the model computes in half precision.

        Raises:
            LanguageModelError: the model keeps something else between calls than keys and values of these shapes.
        """
        new, total = input_ids.shape[1], position_ids.shape[1]
        offset = total - new
        torch._check(offset >= 0)
        torch._check(total <= key_cache.shape[3])
        layers = [
            StackedCacheLayer(key_cache, value_cache, layer, offset, total) for layer in range(key_cache.shape[0])
        ]
        result = self.model(
            input_ids=input_ids,
            position_ids=position_ids.narrow(1, offset, new),
            past_key_values=Cache(layers=layers),
            use_cache=True,
        )
        if unused := [layer.layer for layer in layers if not layer.is_written]:
            raise LanguageModelError(
                f"{type(self.model).__name__} puts no keys and values of layer {unused[0]} into its cache, and {_HELD}"
            )
        logits: Tensor = result.logits
        return logits.half() if logits.dtype == torch.bfloat16 else logits

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
from transformers import Cache, PretrainedConfig
from transformers.cache_utils import CacheLayerMixin


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


class StackedCacheLayer(CacheLayerMixin):
    """One layer of the stacked cache: new keys and values are written behind those of earlier calls."""

    def __init__(self, key_cache: Tensor, value_cache: Tensor, layer: int, offset: Any, total: Any):
        super().__init__()
        self.key_cache, self.value_cache, self.layer, self.offset, self.total = (
            key_cache, value_cache, layer, offset, total,
        )  # fmt: skip
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The tensors are given."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self._written(self.key_cache, key_states), self._written(self.value_cache, value_states)

    def _written(self, cache: Tensor, new: Tensor) -> Tensor:
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
        logits: Tensor = result.logits
        return logits.half() if logits.dtype == torch.bfloat16 else logits

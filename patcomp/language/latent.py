"""Latent attention without keys and values of heads: what makes them of the latents is absorbed by queries and outputs.

A model makes keys and values of all n tokens from latents in each call, (heads x (key size + value size)) x latent size
multiplications for each of the n tokens. The products can be taken in another order (DeepSeek-V2, arXiv:2405.04434):

    q (Wk l) = (Wk^T q) l        p (Wv l) = Wv (p l)

so that the products are with the q new tokens, and all heads share one key and one value, which are the latents.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from patcomp.language.errors import LanguageModelError
from patcomp.language.loading import attention_of

_METHOD, _ATTENTION = "expand_kv", "sdpa"
_OWN = ALL_ATTENTION_FUNCTIONS[_ATTENTION]
_LOCK = threading.Lock()
_ABSORBING: set[int] = set()
"""The modules of attention whose products are taken in the other order, by identity."""


def check_can_absorb(model: Any) -> None:
    """Check that latents of a model can be absorbed.

    Raises:
        LanguageModelError: it has no latents, or a weight or an implementation that does not allow it.
    """
    layers = _layers(model)
    name = type(model).__name__
    if not layers:
        raise LanguageModelError(
            f"{name} has no latent attention of which transformers makes keys and values ({_METHOD}); leave "
            "absorb_latents= (--absorb-latents) out"
        )
    if attention_of(model) != _ATTENTION:
        raise LanguageModelError(f"absorb_latents= needs a model with attn_implementation={_ATTENTION!r}")
    for layer in layers:
        if type(layer.kv_b_proj) is not nn.Linear or not layer.kv_b_proj.weight.is_floating_point():
            raise LanguageModelError(
                "absorb_latents= splits the weights kv_b_proj, which this checkpoint has in few bits; leave it out, or "
                "convert floats and pass compress="
            )


@contextmanager
def absorbed(model: nn.Module) -> Iterator[None]:
    """While a model is called, attend to its latents."""
    layers = _layers(model)
    with _LOCK:
        if not _ABSORBING:
            ALL_ATTENTION_FUNCTIONS[_ATTENTION] = _attention
        _ABSORBING.update(map(id, layers))
        for layer in layers:
            vars(layer)[_METHOD] = _latents
    try:
        yield
    finally:
        with _LOCK:
            for layer in layers:
                del vars(layer)[_METHOD]
            _ABSORBING.difference_update(map(id, layers))
            if not _ABSORBING:
                del ALL_ATTENTION_FUNCTIONS[_ATTENTION]


def _layers(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(type(module), _METHOD)]


def _latents(latents: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    """The key and the value that all heads share, in place of those that the model makes.

    Args:
        latents: (1, 1, n, latent size).
        rotated: the part of a key with its position, (1, 1, n, rotary size).
    """
    return torch.cat([latents, rotated], -1), latents


def _attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any) -> Any:
    """PyTorch's attention as transformers calls it; of absorbing modules, to latents."""
    if id(module) not in _ABSORBING:
        return _OWN(module, query, key, value, mask, **options)
    heads, size = query.shape[1], module.qk_nope_head_dim
    up = module.kv_b_proj.weight.view(heads, -1, value.shape[-1])
    asked = torch.cat([query[..., :size] @ up[:, :size], query[..., size:]], -1)
    shared = SimpleNamespace(num_key_value_groups=heads, is_causal=module.is_causal)
    output, weights = _OWN(shared, asked, key, value, mask, **options)  # (1, q, heads, latent size)
    return (output.transpose(1, 2) @ up[:, size:].transpose(1, 2)).transpose(1, 2).contiguous(), weights

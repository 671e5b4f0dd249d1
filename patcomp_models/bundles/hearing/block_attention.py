"""The encoder of Granite Speech: attention within blocks, and a projector of windows, for recordings of any length.

transformers writes them with branches on the length of the recording, of which an export keeps one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from patcomp_models.language.exchanging import exchange_modules
from patcomp_models.language.sound_encoders import Encoder


class GraniteEncoder(Encoder):
    """Granite Speech: the encoder's own code around attention for any length."""

    def __init__(self, model: Any, row: Any):
        super().__init__(model, row)
        attentions = {layer.attn: _BlockAttention(layer.attn) for layer in model.model.encoder.layers}
        exchange_modules(model.model.encoder, attentions)

    def features(self, read: Tensor, mask: Tensor | None, *further: Tensor) -> Tensor:
        encoder, projector = self.model.model.encoder, self.model.model.projector
        hidden = encoder(read, return_dict=True).last_hidden_state
        windows = _blocks(hidden, projector.window_size).flatten(0, 1)
        heard = projector.qformer(
            query_embeds=projector.query.expand(windows.shape[0], -1, -1), encoder_hidden_states=windows,
            encoder_attention_mask=None, return_dict=True,
        ).last_hidden_state  # fmt: skip
        found: Tensor = projector.linear(heard.flatten(0, 1))
        return found.narrow(0, 0, (hidden.shape[1] + windows.shape[1] - 1) // windows.shape[1] * heard.shape[1])


class _BlockAttention(nn.Module):
    """Attention within blocks of frames, of which the last one may be shorter.

    Args:
        own: the attention of transformers.
    """

    def __init__(self, own: Any):
        super().__init__()
        self.own = own

    def forward(self, hidden_states: Tensor, attention_dists: Tensor) -> Tensor:
        own = self.own
        count, size = hidden_states.shape[1], own.context_size
        hidden = _blocks(own.pre_norm(hidden_states), size)
        query, key, value = (
            part.reshape(-1, size, own.num_heads, own.dim_head).transpose(1, 2)
            for part in (own.to_q(hidden), *own.to_kv(hidden).chunk(2, -1))
        )
        places = torch.einsum("bhcd,crd->bhcr", query, own.rel_pos_emb(attention_dists)) * own.scale
        is_heard = torch.arange(hidden.shape[1] * size).reshape(-1, 1, 1, size) < count
        places = torch.where(is_heard, places, torch.finfo(places.dtype).min)
        made = functional.scaled_dot_product_attention(query, key, value, attn_mask=places, scale=own.scale)
        made = made.transpose(1, 2).reshape(1, hidden.shape[1] * size, -1).narrow(1, 0, count)
        found: Tensor = own.to_out(made)
        return found


def _blocks(hidden: Tensor, size: int) -> Tensor:
    """Frames, (1, frames, width), in blocks, (1, blocks, size, width), with zeros behind them.

    There are one or two blocks more than needed, because an export takes a single block for a fixed number of them.
    """
    count, width = hidden.shape[1:]
    blocks = count // size + 2
    return functional.pad(hidden, (0, 0, 0, 2 * size)).narrow(1, 0, blocks * size).reshape(1, blocks, size, width)

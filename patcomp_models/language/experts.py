"""Experts that a model calls in a Python loop over those that are chosen, which cannot be exported, as products with
the chosen matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def dbrx(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The experts of DBRX.

    Args:
        self: transformers' module.
        hidden_states: (1, q, width).
        top_k_index, top_k_weights: (q, experts of a token).
    """
    experts, chosen = self.mlp, top_k_index.reshape(-1)
    columns = _rows(hidden_states, top_k_index).unsqueeze(-1)
    gate, up, down = (
        each.view(self.num_experts, -1, self.hidden_size)[chosen] for each in (experts.w1, experts.v1, experts.w2)
    )
    inner = experts.activation_fn(gate @ columns) * (up @ columns)
    return _summed((inner.transpose(1, 2) @ down).squeeze(1), top_k_weights).view(hidden_states.shape)


def longcat_flash(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The experts of LongCat Flash. Those behind the last that has weights give a token back as it is.

    Args:
        self: transformers' module.
        hidden_states: (q, width).
        top_k_index, top_k_weights: (q, experts of a token).
    """
    rows, chosen = _rows(hidden_states, top_k_index), top_k_index.reshape(-1)
    known = chosen.clamp(max=self.num_routed_experts - 1)
    gate, up = (self.gate_up_proj[known] @ rows.unsqueeze(-1)).chunk(2, 1)
    made = (self.down_proj[known] @ (self.act_fn(gate) * up)).squeeze(-1)
    made = torch.where((chosen < self.num_routed_experts)[:, None], made, rows)
    return _summed(made, top_k_weights).to(hidden_states.dtype)


def _rows(tokens: Tensor, chosen: Tensor) -> Tensor:
    """Each token as often as it has experts, (q * experts of a token, width)."""
    return tokens.reshape(-1, tokens.shape[-1]).repeat_interleave(chosen.shape[-1], 0)


def _summed(rows: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum of what the experts of each token give, (q, width)."""
    return (rows * weights.reshape(-1, 1)).view(*weights.shape, -1).sum(1)

"""The gated delta rule, a linear attention with a state, as a module."""

from __future__ import annotations

import torch
from torch import nn

from patcomp.frontend_torch.composite_ops.attention import repeat_heads
from patcomp.frontend_torch.composite_ops.version import Version

_L2_EPSILON = 1e-6


class GatedDeltaUpdate(nn.Module):
    """The recurrence of Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464).

    For each element of the sequence, in order:

        state  = exp(g) * state
        state  = state + key ⊗ (beta * (value - key @ state))
        output = query / sqrt(key size) @ state

    All of it is computed in float32. Queries and keys may have fewer heads than values; each of their heads
    then serves a group of value heads.

    The loop is unrolled when a program is exported, so the sequence length must be static there.

    Args:
        use_qk_l2_norm: scale queries and keys to x * rsqrt(sum(x ** 2) + 1e-6) first.
    """

    def __init__(self, use_qk_l2_norm: bool = True):
        super().__init__()
        self.version = Version.v1
        self.use_qk_l2_norm = use_qk_l2_norm

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        initial_state: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs `[batch, sequence, value heads, value size]` and the last state, both in the query's dtype.

        Args:
            query, key: floats `[batch, key heads, sequence, key size]`.
            value: `[batch, value heads, sequence, value size]`.
            g: `[batch, value heads, sequence]`, the logarithm of the decay, at most 0.
            beta: `[batch, value heads, sequence]`, the strength of the update, between 0 and 1.
            initial_state: `[batch, value heads, key size, value size]`.

        Raises:
            ValueError: the shapes do not match.
        """
        _check_shapes(query, key, value, g, beta, initial_state)
        dtype, heads = query.dtype, value.shape[1]
        if self.use_qk_l2_norm:
            query, key = _normalized(query), _normalized(key)
        query, key, value, decay, beta, state = (
            tensor.to(torch.float32) for tensor in (query, key, value, g, beta, initial_state)
        )
        query, key = repeat_heads(query * query.shape[-1] ** -0.5, heads), repeat_heads(key, heads)
        decay = torch.exp(decay)
        outputs = []
        for step in range(value.shape[2]):
            state = state * decay[:, :, step, None, None]
            column = key[:, :, step, :, None]
            remembered = (state * column).sum(dim=-2)
            delta = (value[:, :, step] - remembered) * beta[:, :, step, None]
            state = state + column * delta.unsqueeze(-2)
            outputs.append((state * query[:, :, step, :, None]).sum(dim=-2))
        if not outputs:
            return value.transpose(1, 2).to(dtype), state.to(dtype)
        return torch.stack(outputs, dim=1).to(dtype), state.to(dtype)


def _normalized(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + _L2_EPSILON)


def _check_shapes(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
) -> None:
    if query.dim() != 4 or query.shape != key.shape:
        raise ValueError(f"query and key must have one shape of rank 4, got {[*query.shape]} and {[*key.shape]}")
    batch, key_heads, length, key_size = key.shape
    if value.dim() != 4 or value.shape[0] != batch or value.shape[2] != length:
        raise ValueError(f"value must be [{batch}, heads, {length}, size], got {[*value.shape]}")
    value_heads, value_size = value.shape[1], value.shape[3]
    if value_heads % key_heads:
        raise ValueError(f"the {value_heads} heads of value are no multiple of the {key_heads} of query and key")
    wanted = {
        "g": (g, [batch, value_heads, length]),
        "beta": (beta, [batch, value_heads, length]),
        "initial_state": (initial_state, [batch, value_heads, key_size, value_size]),
    }
    for name, (tensor, shape) in wanted.items():
        if list(tensor.shape) != shape:
            raise ValueError(f"{name} must be {shape}, got {[*tensor.shape]}")

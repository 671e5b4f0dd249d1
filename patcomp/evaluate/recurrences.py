"""Recurrences of linear attention over any number of tokens, as operators of PyTorch.

    outputs, state = torch.ops.patcomp.gated_delta_update(query, key, value, g, beta, state, True)
    outputs, state = torch.ops.patcomp.kimi_delta_update(query, key, value, g, beta, state, True)
    outputs, state = torch.ops.patcomp.state_space_update(values, g, b, c, state)
    outputs, state = torch.ops.patcomp.selective_scan_update(values, steps, slopes, b, c, state)

Here they go from token to token in float32. The composites of the same names compute chunks of tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.evaluate.operators import register


def gated_delta_update(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor, use_qk_l2_norm: bool
) -> tuple[Tensor, Tensor]:
    """As `patcomp.composite_ops.GatedDeltaUpdate`, whose loop this is.

    Raises:
        ValueError: as `state_space_update`.
    """
    _check(value, g, initial_state, {"query": query, "key": key, "beta": beta}, (query.shape[-1:], value.shape[-1:]))
    return _delta_rule(query, key, value, g.unsqueeze(-1), beta, initial_state, use_qk_l2_norm)


def kimi_delta_update(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor, use_qk_l2_norm: bool
) -> tuple[Tensor, Tensor]:
    """The gated delta rule with a decay for each element of a key, g (batch, heads, tokens, key size) (Kimi delta
    attention, 2025, arXiv:2510.26692).

    Raises:
        ValueError: as `state_space_update`.
    """
    _check_kimi(query, key, value, g, beta, initial_state)
    return _delta_rule(query, key, value, g, beta, initial_state, use_qk_l2_norm)


def _delta_rule(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor, use_qk_l2_norm: bool
) -> tuple[Tensor, Tensor]:
    """g: (batch, heads, tokens, 1 or key size)."""
    dtype, heads = query.dtype, value.shape[1]
    query, key, value, g, beta, state = (x.float() for x in (query, key, value, g, beta, initial_state))
    if use_qk_l2_norm:
        query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    query, key = (_repeated(x, heads) for x in (query * query.shape[-1] ** -0.5, key))
    decay = g.exp()
    outputs = torch.empty_like(value)
    for token in range(value.shape[2]):
        state = state * decay[:, :, token, :, None]
        remembered = (state * key[:, :, token, :, None]).sum(-2)
        delta = (value[:, :, token] - remembered) * beta[:, :, token, None]
        state = state + key[:, :, token, :, None] * delta.unsqueeze(-2)
        outputs[:, :, token] = (state * query[:, :, token, :, None]).sum(-2)
    return outputs.transpose(1, 2).contiguous().to(dtype), state.to(dtype, copy=True)


def state_space_update(values: Tensor, g: Tensor, b: Tensor, c: Tensor, initial_state: Tensor) -> tuple[Tensor, Tensor]:
    """Selective state spaces whose decay is a number for each head (Mamba-2; Dao and Gu 2024, arXiv:2405.21060).

    For each token, in order:

        state  = exp(g) * state + values ⊗ b
        output = state @ c

    Args:
        values: floats (batch, heads, tokens, head size), already times the step size.
        g: (batch, heads, tokens), the logarithm of the decay, at most 0.
        b, c: (batch, groups, tokens, state size); each group serves several heads.
        initial_state: (batch, heads, head size, state size).

    Returns:
        The outputs (batch, tokens, heads, head size) and the last state, both of the type of the values.

    Raises:
        ValueError: the shapes do not fit each other, or an element type is no float.
    """
    _check(values, g, initial_state, {"b": b, "c": c}, (values.shape[-1:], b.shape[-1:]))
    dtype, heads = values.dtype, values.shape[1]
    values, g, b, c, state = (x.float() for x in (values, g, b, c, initial_state))
    b, c = _repeated(b, heads), _repeated(c, heads)
    decay = g.exp()
    outputs = torch.empty_like(values)
    for token in range(values.shape[2]):
        written = values[:, :, token, :, None] * b[:, :, token, None]
        state = state * decay[:, :, token, None, None] + written
        outputs[:, :, token] = (state * c[:, :, token, None]).sum(-1)
    return outputs.transpose(1, 2).contiguous().to(dtype), state.to(dtype, copy=True)


def selective_scan_update(
    values: Tensor, steps: Tensor, slopes: Tensor, b: Tensor, c: Tensor, initial_state: Tensor
) -> tuple[Tensor, Tensor]:
    """Selective state spaces whose decay is a number for each number of the state (Mamba; Gu and Dao 2023,
    arXiv:2312.00752).

    For each token, in order:

        state  = exp(steps * slopes) * state + steps * values ⊗ b
        output = state @ c

    Args:
        values, steps: floats (batch, size, tokens).
        slopes: (size, state size), at most 0.
        b, c: (batch, state size, tokens).
        initial_state: (batch, size, state size).

    Returns:
        The outputs (batch, size, tokens) and the last state, both of the type of the values.

    Raises:
        ValueError: the shapes do not fit each other, or an element type is no float.
    """
    _check_scan(values, steps, slopes, b, c, initial_state)
    dtype = values.dtype
    values, steps, slopes, b, c, state = (x.float() for x in (values, steps, slopes, b, c, initial_state))
    outputs = torch.empty_like(values)
    for token in range(values.shape[2]):
        step = steps[:, :, token, None]
        state = state * (step * slopes).exp() + step * values[:, :, token, None] * b[:, None, :, token]
        outputs[:, :, token] = (state * c[:, None, :, token]).sum(-1)
    return outputs.to(dtype), state.to(dtype, copy=True)


def _check_kimi(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor) -> None:
    if g.ndim != 4 or g.shape[-1] != query.shape[-1]:
        raise ValueError(f"g must have {query.shape[-1]} numbers for each token and head, got {list(g.shape)}")
    sizes = query.shape[-1:], value.shape[-1:]
    _check(value, g[..., 0], initial_state, {"query": query, "key": key, "beta": beta}, sizes)


def _check_scan(values: Tensor, steps: Tensor, slopes: Tensor, b: Tensor, c: Tensor, initial_state: Tensor) -> None:
    if values.ndim != 3 or slopes.ndim != 2:
        raise ValueError(
            f"values must have 3 dimensions and slopes 2, got {list(values.shape)} and {list(slopes.shape)}"
        )
    batch, size, tokens = values.shape
    inner = slopes.shape[1]
    wanted = {
        "values": (values, (batch, size, tokens)), "steps": (steps, (batch, size, tokens)),
        "slopes": (slopes, (size, inner)), "b": (b, (batch, inner, tokens)), "c": (c, (batch, inner, tokens)),
        "initial_state": (initial_state, (batch, size, inner)),
    }  # fmt: skip
    for name, (tensor, shape) in wanted.items():
        if tensor.shape != shape or not tensor.is_floating_point():
            raise ValueError(f"{name} must be floats of {list(shape)}, got {tensor.dtype} {list(tensor.shape)}")


def _check(
    values: Tensor, g: Tensor, state: Tensor, sequences: dict[str, Tensor], sizes: tuple[torch.Size, torch.Size]
) -> None:
    """Check types and shapes.

    Args:
        values: (batch, heads, tokens, size); their leading sizes are those of all.
        sequences: `beta`, and others of one size whose heads each serve several of the values.
        sizes: of a row and of a column of the state.
    """
    given = {"values": values, "g": g, "initial_state": state, **sequences}
    ranks = {"g": 3, "beta": 3}
    for name, tensor in given.items():
        if tensor.ndim != ranks.get(name, 4) or not tensor.is_floating_point():
            raise ValueError(f"{name} must be floats of rank {ranks.get(name, 4)}, got {tensor.dtype} {tensor.shape}")
    batch, heads, tokens, _ = values.shape
    wide = (batch, heads, tokens)
    whole = {"g": wide, "beta": wide, "initial_state": (batch, heads, *sizes[0], *sizes[1])}
    groups = next(iter(sequences.values()))
    for name, tensor in given.items():
        wanted = whole.get(name, (batch, groups.shape[1], tokens, groups.shape[-1]))
        if name != "values" and tensor.shape != wanted:
            raise ValueError(f"{name} must be {list(wanted)}, got {list(tensor.shape)}")
    if not groups.shape[1] or heads % groups.shape[1]:
        raise ValueError(f"{heads} heads of values are no multiple of {groups.shape[1]}")


def _repeated(x: Tensor, heads: int) -> Tensor:
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def _shapes_of_gated_delta(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor, use_qk_l2_norm: bool
) -> tuple[Tensor, Tensor]:
    _check(value, g, initial_state, {"query": query, "key": key, "beta": beta}, (query.shape[-1:], value.shape[-1:]))
    return _shapes(value, initial_state, query.dtype)


def _shapes_of_state_space(
    values: Tensor, g: Tensor, b: Tensor, c: Tensor, initial_state: Tensor
) -> tuple[Tensor, Tensor]:
    _check(values, g, initial_state, {"b": b, "c": c}, (values.shape[-1:], b.shape[-1:]))
    return _shapes(values, initial_state, values.dtype)


def _shapes(values: Tensor, state: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    batch, heads, tokens, width = values.shape
    return values.new_empty(batch, tokens, heads, width, dtype=dtype), state.new_empty(state.shape, dtype=dtype)


def _shapes_of_kimi_delta(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor, use_qk_l2_norm: bool
) -> tuple[Tensor, Tensor]:
    _check_kimi(query, key, value, g, beta, initial_state)
    return _shapes(value, initial_state, query.dtype)


def _shapes_of_selective_scan(
    values: Tensor, steps: Tensor, slopes: Tensor, b: Tensor, c: Tensor, initial_state: Tensor
) -> tuple[Tensor, Tensor]:
    _check_scan(values, steps, slopes, b, c, initial_state)
    return torch.empty_like(values), initial_state.new_empty(initial_state.shape, dtype=values.dtype)


register(gated_delta_update, _shapes_of_gated_delta)
register(kimi_delta_update, _shapes_of_kimi_delta)
register(selective_scan_update, _shapes_of_selective_scan)
register(state_space_update, _shapes_of_state_space)

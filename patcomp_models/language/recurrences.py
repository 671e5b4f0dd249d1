"""Recurrences of transformers for any number of tokens.

The models compute several tokens in a Python loop whose length is the number of tokens, which cannot be exported for an
open number, and some of them begin with zeros whatever came before. `open_lengths` exchanges these functions for those
of this file, which begin with the state: those that have operators of patcomp become composites, and RWKV's goes from
token to token.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import LinearAttentionCacheLayerMixin

import patcomp.evaluate.recurrences  # registers the operators
from patcomp.frontend_torch.exporting.over_time import over_time
from patcomp_models.language.contract import RECURRENCE
from patcomp_models.language.conventions import CACHE
from patcomp_models.language.rotary import With

_ = patcomp.evaluate.recurrences


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, initial_state: Tensor | None = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, **options: Any,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The gated delta rule (Yang et al. 2024, arXiv:2412.06464); its decay is a number for each head, or for each
    element of a key (Kimi delta attention).

    Args:
        query, key: (1, q, key heads, key size).
        value: (1, q, heads, value size).
        g: the logarithm of the decay, (1, q, heads) or (1, q, heads, key size).
        beta: (1, q, heads).
        initial_state: (1, heads, key size, value size).
    """
    kind, heads = query.dtype, value.shape[2]
    query, key, value, g, beta = (each.float() for each in (query, key, value, g, beta))
    if initial_state is None:
        initial_state = key.new_zeros(1, heads, key.shape[-1], value.shape[-1])
    operators = torch.ops.patcomp
    rule = operators.gated_delta_update if g.ndim == 3 else operators.kimi_delta_update
    by_heads = (x.transpose(1, 2) for x in (query, key, value, g, beta))
    outputs, state = rule(*by_heads, initial_state.float(), use_qk_l2norm_in_kernel)
    return outputs.to(kind), state if output_final_state else None


def mamba2(
    hidden_states: Tensor, dt: Tensor, slopes: Tensor, b: Tensor, c: Tensor, /, dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None, dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")), return_final_states: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """Selective state spaces with a number as the decay of a head (Dao and Gu 2024, arXiv:2405.21060).

    Args:
        hidden_states: (1, q, heads, head size).
        dt: (1, q, heads).
        slopes: (heads,).
        b, c: (1, q, groups, state size).
        initial_states: (1, heads, head size, state size).
        options: among them D, (heads,), the part of the values that is added to the output.
    """
    heads = hidden_states.shape[2]
    dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    dt = torch.clamp(functional.softplus(dt) if dt_softplus else dt, *dt_limit).float()
    values = hidden_states.float()
    if initial_states is None:
        initial_states = values.new_zeros(1, heads, values.shape[-1], b.shape[-1])
    sequences = values * dt.unsqueeze(-1), slopes.float() * dt, b.float(), c.float()
    output, state = torch.ops.patcomp.state_space_update(
        *(x.transpose(1, 2) for x in sequences), initial_states.float()
    )
    if options.get("D") is not None:
        output = output + options["D"].unsqueeze(-1) * values
    return (output, state) if return_final_states else output


def mamba(
    before: Callable[[], Tensor | None], hidden_states: Tensor, dt: Tensor, slopes: Tensor, b: Tensor, c: Tensor, /,
    z: Tensor | None = None, delta_bias: Tensor | None = None, delta_softplus: bool = False,
    return_last_state: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """Selective state spaces (Gu and Dao 2023, arXiv:2312.00752).

    Args:
        before: gives the state, (1, size, state size), which the function of transformers does not take.
        hidden_states, dt, z: (1, size, q).
        slopes: (size, state size).
        b, c: (1, state size, q).
        options: among them D, (size,), the part of the values that is added to the output.
    """
    kind, values = hidden_states.dtype, hidden_states.float()
    dt = dt if delta_bias is None else dt + delta_bias.to(dt.dtype)[..., None]
    dt = (functional.softplus(dt) if delta_softplus else dt).float()

    found = before()
    found = values.new_zeros(1, *slopes.shape) if found is None else found.float()
    sequences = values, dt, slopes.float(), b.float(), c.float()
    output, state = torch.ops.patcomp.selective_scan_update(*sequences, found)
    if options.get("D") is not None:
        output = output + values * options["D"][:, None]
    if z is not None:
        output = output * functional.silu(z)
    return (output.to(kind), state) if return_last_state else output.to(kind)


def wkv(
    time_decay: Tensor, time_first: Tensor, key: Tensor, value: Tensor, state: Sequence[Tensor] | None = None,
    return_state: bool = False,
) -> tuple[Tensor, Sequence[Tensor] | None]:  # fmt: skip
    """The weighted mean of RWKV (Peng et al. 2023, arXiv:2305.13048).

    Args:
        time_decay, time_first: (size,).
        key, value: (1, q, size).
        state: the numerator and the denominator, both times exp(-m), and m, each (1, size). A denominator of 0 stands
            for no token yet; after the first token it is at least 1.
    """
    before = key.new_zeros(3, 1, key.shape[-1], dtype=torch.float32) if state is None else torch.stack([*state])
    numerator, denominator, largest = before.float()
    largest = torch.where(denominator == 0, _NO_TOKEN, largest)

    def weighted(
        held: tuple[Tensor, ...], exponent: Tensor, value: Tensor, decay: Tensor | float
    ) -> tuple[Tensor, Tensor, Tensor]:
        numerator, denominator, largest = held
        after = torch.maximum(largest + decay, exponent)
        kept, new = (largest + decay - after).exp(), (exponent - after).exp()
        return kept * numerator + new * value, kept * denominator + new, after

    def step(state: Tensor, key: Tensor, value: Tensor, decay: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        held = tuple(state.unbind())
        numerator, denominator, _ = weighted(held, key + first, value, 0.0)
        return torch.stack(weighted(held, key, value, decay)), numerator / denominator

    sequences = [x.transpose(0, 1).float() for x in (key, value)]
    shared = -time_decay.exp().float(), time_first.float()
    (last,), outputs = over_time(step, [torch.stack([numerator, denominator, largest])], sequences, shared)
    return outputs.transpose(0, 1).to(key.dtype), [*last.unbind()] if return_state or state is not None else None


_NO_TOKEN = -1e38
"""The largest exponent of RWKV before the first token."""


def generalised_delta_step(
    state: Tensor, r: Tensor, decay: Tensor, k: Tensor, v: Tensor, removed: Tensor, added: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of the generalised delta rule: the next state, (1, heads, values, keys), and the output."""
    old = state @ removed[..., None]
    state = state * decay[..., None, :] - old * added[..., None, :] + v[..., None] * k[..., None, :]
    return state, (state @ r[..., None]).squeeze(-1)


def rwkv7(state: Tensor, *sequences: Tensor) -> tuple[Tensor, Tensor]:
    """The last state and the outputs of RWKV-7, token by token.

    Args:
        state: (1, heads, values, keys).
        sequences: what `generalised_delta_step` takes, (q, 1, heads, size) each.
    """
    (state,), outputs = over_time(generalised_delta_step, [state], sequences)
    return state, outputs


def griffin(layers: Iterator[Any], self: Any, input_states: Tensor, position_ids: Tensor, **options: Any) -> Any:
    """A recurrent block of RecurrentGemma, whose gated linear recurrence (De et al. 2024, arXiv:2402.19427) is behind a
    short convolution.

    Args:
        layers: of the cache, this block's the next with a recurrence; none for a call without.
        self: transformers' module.
        input_states: (1, q, width).
        position_ids: (1, q).
        options: the others of transformers' function.
    """
    layer = next((each for each in layers if isinstance(each, LinearAttentionCacheLayerMixin)), None)
    gate = self.act_fn(self.linear_y(input_states))
    x = self.linear_x(input_states).transpose(1, 2)
    padded = functional.pad(x, (self.conv1d_width - 1, 0)) if layer is None else layer.update_conv_state(x)
    x = functional.conv1d(padded, self.conv_1d.weight, self.conv_1d.bias, groups=self.lru_width)
    # the model keeps the state in the module
    unit = With(self.rg_lru, "recurrent_states", None if layer is None else layer.held(RECURRENCE, 0))
    mixed = inspect.unwrap(type(self.rg_lru).forward)(unit, x.transpose(1, 2), position_ids)
    if layer is not None:
        layer.hold(RECURRENCE, 0, unit.recurrent_states)
    return self.linear_out(mixed * gate), None


def linear_recurrence(
    self: Any, hidden_states: Tensor, recurrent_gate: Tensor, reset: Tensor, recurrent_states: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What `griffin` goes through token by token: the state times the gate, plus the input.

    Args:
        hidden_states, recurrent_gate: (1, q, size).
        reset: (1, q, 1), true for a first token.
        recurrent_states: (1, size).

    Returns:
        (1, q, size), and the last state.
    """
    x, gate = hidden_states.float(), (recurrent_gate * ~reset).float()
    first = x.new_zeros(1, x.shape[2]) if recurrent_states is None else recurrent_states.float()

    def step(state: Tensor, gate: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        state = gate * state + x
        return state, state

    (last,), outputs = over_time(step, [first], [gate.transpose(0, 1), x.transpose(0, 1)])
    return outputs.transpose(0, 1).to(hidden_states.dtype), last


def matrix_memory(
    self: Any, query: Tensor, key: Tensor, value: Tensor, igate: Tensor, fgate: Tensor,
    c_initial: Tensor | None = None, n_initial: Tensor | None = None, m_initial: Tensor | None = None, **options: Any,
) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
    """The matrix memory of xLSTM (Beck et al. 2024, arXiv:2405.04517), token by token.

    Args:
        self: transformers' module.
        query, key: (1, heads, q, key size).
        value: (1, heads, q, value size).
        igate, fgate: (1, heads, q).
        c_initial: the matrix, (1, heads, key size, value size).
        n_initial: the sum of keys, (1, heads, key size).
        m_initial: the largest exponent, (1, heads, 1).
    """
    kind = getattr(torch, self.config.inference_state_dtype)
    heads, width, size = key.shape[1], key.shape[3], value.shape[3]
    shapes = (heads, width, size), (heads, width), (heads, 1)
    given = (
        key.new_zeros(1, *shape, dtype=kind) if state is None else state.to(kind)
        for state, shape in zip((c_initial, n_initial, m_initial), shapes, strict=True)
    )

    def step(*values: Tensor) -> tuple[Tensor, ...]:
        states, inputs = values[:3], values[3:]
        made, after = self.step_kernel_fn(*inputs, *states, eps=self.config.eps, dtype_state=kind)
        return *after, made

    sequences = [x.movedim(2, 0) for x in (query, key, value, igate[..., None], fgate[..., None])]
    last, outputs = over_time(step, [*given], sequences)
    return outputs.movedim(0, 2), tuple(last)


def lightning(
    layer: Any, hidden_states: Tensor, position_embeddings: object = None, attention_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Lightning attention (Qin et al. 2024, arXiv:2401.04658), the module's own layers around a state space whose decay
    is a constant of each head.

    Args:
        layer: the module, a `MiniMaxLightningAttention`.
        hidden_states: (1, q, width).
        attention_mask: (1, q).
        options: among them the cache, by its name in transformers.
    """
    cache = options.get(CACHE)
    kind, shape = hidden_states.dtype, hidden_states.shape[:2]
    mixed = layer.act_fn(layer.qkv_proj(hidden_states))
    if attention_mask is not None:
        mixed = (mixed * attention_mask[:, :, None]).to(kind)
    by_heads = mixed.reshape(*shape, layer.num_attention_heads, -1).transpose(1, 2).float()
    query, key, value = by_heads.split(layer.head_dim, 3)
    g = (-layer.slope_rate.float()).reshape(1, -1, 1).expand(*value.shape[:3])
    before = None if cache is None else cache.get_recurrent_state(layer.layer_idx)
    if before is None:
        before = value.new_zeros(1, layer.num_attention_heads, layer.head_dim, layer.head_dim)
    # the model keeps keys x values
    output, state = torch.ops.patcomp.state_space_update(value, g, key, query, before.float().transpose(2, 3))
    state = state.transpose(2, 3)
    if cache is not None:
        cache.update_recurrent_state(state, layer.layer_idx)
    output = layer.norm(output.reshape(*shape, -1).to(kind))
    return layer.out_proj(functional.sigmoid(layer.output_gate(hidden_states)) * output), state

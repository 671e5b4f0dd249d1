"""Recurrences of transformers for any number of tokens.

The models compute several tokens in a Python loop whose length is the number of tokens, which cannot be exported for an
open number, and some of them begin with zeros whatever came before. `open_lengths` exchanges these functions, while a
model is called and for the thread that calls it, for the same recurrences that begin with the state: the gated delta
rule and Mamba-2 for operators that become composites, the others for one token after the other.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Cache

import patcomp.evaluate.recurrences  # registers the operators

_ = patcomp.evaluate.recurrences

Step = Callable[..., tuple[Tensor, Tensor]]
"""From a state, the elements of one token, and what all tokens share, to the next state and an output."""


def over_tokens(
    step: Step, state: Tensor, sequences: Sequence[Tensor], shared: tuple[Tensor, ...] = ()
) -> tuple[Tensor, Tensor]:
    """The last state, and the outputs of all tokens in front.

    Args:
        step: for one token.
        state: before the first token.
        sequences: their first dimension is that of the tokens.
        shared: tensors that each step takes.
    """
    if isinstance(sequences[0].shape[0], int) and sequences[0].shape[0] == 1:
        state, output = step(state, *(each[0] for each in sequences), *shared)
        return state, output[None]

    def combined(held: Tensor, *elements: Tensor) -> list[Tensor]:
        after, output = step(held, *elements)
        return [after.clone(), output.clone()]

    last, outputs = torch.ops.higher_order.scan(combined, [state.clone()], list(sequences), shared)
    return last, outputs


def _delta_rule(
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
    if g.ndim == 3:
        by_heads = (x.transpose(1, 2) for x in (query, key, value, g, beta))
        outputs, state = torch.ops.patcomp.gated_delta_update(*by_heads, initial_state.float(), use_qk_l2norm_in_kernel)
        return outputs.to(kind), state if output_final_state else None
    if use_qk_l2norm_in_kernel:
        query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    if key.shape[2] != heads:
        query, key = (x.repeat_interleave(heads // x.shape[2], dim=2) for x in (query, key))
    query = query * query.shape[-1] ** -0.5
    decay = g.exp()

    def step(
        state: Tensor, asked: Tensor, written: Tensor, new: Tensor, kept: Tensor, strength: Tensor
    ) -> tuple[Tensor, Tensor]:
        state = state * kept.unsqueeze(-1)
        delta = (new - (state * written.unsqueeze(-1)).sum(-2)) * strength.unsqueeze(-1)
        state = state + written.unsqueeze(-1) * delta.unsqueeze(-2)
        return state, (state * asked.unsqueeze(-1)).sum(-2)

    sequences = [x.transpose(0, 1) for x in (query, key, value, decay, beta)]
    state, outputs = over_tokens(step, initial_state.float(), sequences)
    return outputs.transpose(0, 1).to(kind), state if output_final_state else None


def _mamba2(
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


def _mamba(
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

    def step(state: Tensor, steps: Tensor, new: Tensor, b: Tensor, c: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
        state = state * (steps.unsqueeze(-1) * rates).exp() + (steps * new).unsqueeze(-1) * b.unsqueeze(-2)
        return state, (state * c.unsqueeze(-2)).sum(-1)

    found = before()
    found = values.new_zeros(1, *slopes.shape) if found is None else found.float()
    sequences = [x.permute(2, 0, 1) for x in (dt, values, b.float(), c.float())]
    state, outputs = over_tokens(step, found, sequences, (slopes.float(),))
    output = outputs.permute(1, 2, 0)
    if options.get("D") is not None:
        output = output + values * options["D"][:, None]
    if z is not None:
        output = output * functional.silu(z)
    return (output.to(kind), state) if return_last_state else output.to(kind)


class AskedCache(Cache):
    """A cache that knows which recurrence a layer asked for last."""

    asked: Tensor | None = None

    def get_recurrent_state(self, *arguments: Any, **options: Any) -> Tensor | None:
        self.asked = super().get_recurrent_state(*arguments, **options)
        return self.asked


_FORMS: ContextVar[Mapping[str, Callable[..., Any]]] = ContextVar("forms of recurrences")
"""The functions that take the place of transformers' in this thread, by name."""
_LOCK = threading.Lock()
_PLACES: Counter[tuple[Any, str]] = Counter()
"""How many calls use the functions of `_chosen` in a module, by module and name."""


@contextmanager
def open_lengths(model: nn.Module, cache: AskedCache) -> Iterator[None]:
    """Exchange the functions of recurrences in the modules of Python that define the parts of a model.

    Only this thread sees the exchange: for other threads, the functions in the modules call transformers' own.

    Args:
        model: of transformers.
        cache: that the model is called with.
    """
    forms: dict[str, Callable[..., Any]] = {
        "torch_chunk_gated_delta_rule": _delta_rule,
        "chunk_kimi_delta_attention": _delta_rule,
        "mamba2_chunk_scan": _mamba2,
        "mamba_selective_scan": partial(_mamba, lambda: cache.asked),
    }
    modules = {sys.modules[type(part).__module__] for part in model.modules()}
    places = [(place, name) for place in modules for name in forms if name in vars(place)]
    with _LOCK:
        for place, name in places:
            if not _PLACES[place, name]:
                setattr(place, name, _chosen(name, vars(place)[name]))
            _PLACES[place, name] += 1
    token = _FORMS.set(forms)
    try:
        yield
    finally:
        _FORMS.reset(token)
        with _LOCK:
            for place, name in places:
                _PLACES[place, name] -= 1
                if not _PLACES[place, name]:
                    setattr(place, name, vars(place)[name].__wrapped__)


def _chosen(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls the form of this thread, or transformers' own."""

    @wraps(own)
    def function(*arguments: Any, **options: Any) -> Any:
        return _FORMS.get({}).get(name, own)(*arguments, **options)

    function.__wrapped__ = own  # type: ignore[attr-defined]
    return function

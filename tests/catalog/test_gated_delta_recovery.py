"""`gated_delta_update`, found in recurrences that export unrolled, exact, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tests.networks.zoo  # noqa: F401  (it makes transformers importable beside a PyTorch without CUDA)
from patcomp import AIProgram
from patcomp.composite_ops import GatedDeltaUpdate
from patcomp.emit.native import Native
from tests.catalog.recovering import convert

COMPOSITE = "gated_delta_update"


def inputs(length: int = 3, heads: int = 3, key_size: int = 4, value_size: int = 5) -> list[torch.Tensor]:
    """Queries, keys, values, logarithms of decays, betas, state."""
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(2, heads, length, key_size, generator=generator) for _ in range(2))
    value = torch.randn(2, heads, length, value_size, generator=generator)
    g, beta = (torch.rand(2, heads, length, generator=generator) for _ in range(2))
    return [query, key, value, -g, beta, torch.randn(2, heads, key_size, value_size, generator=generator)]


def updates(program: AIProgram) -> int:
    """How many calls of the composite a program makes, which has no others."""
    assert set(program.composites) <= {COMPOSITE}
    return program.composites.get(COMPOSITE, 0)


def recurrence(
    decay: Callable[..., Any] = lambda state, g: state * g.exp()[..., None, None],
    remember: Callable[..., Any] = lambda state, k: (state * k.unsqueeze(-1)).sum(-2),
    delta: Callable[..., Any] = lambda v, remembered, beta: (v - remembered) * beta.unsqueeze(-1),
    write: Callable[..., Any] = lambda state, k, delta: state + k.unsqueeze(-1) * delta.unsqueeze(-2),
    read: Callable[..., Any] = lambda state, q: (state * q.unsqueeze(-1)).sum(-2),
    collect: Callable[..., Any] = lambda outputs: torch.stack(outputs, 2),
    feed: Callable[..., Any] = lambda v, outputs: v,
) -> Callable[..., Any]:
    """The gated delta rule with parts to change."""

    def run(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
        outputs: list[torch.Tensor] = []
        for t in range(q.shape[2]):
            state = decay(state, g[:, :, t])
            error = delta(feed(v[:, :, t], outputs), remember(state, k[:, :, t]), beta[:, :, t])
            state = write(state, k[:, :, t], error)
            outputs.append(read(state, q[:, :, t]))
        return collect(outputs), state

    return run


def _module(*tensors: torch.Tensor) -> Any:
    return GatedDeltaUpdate()(*tensors)


def _written_in_place(outputs: list[torch.Tensor]) -> torch.Tensor:
    whole = torch.zeros(*outputs[0].shape[:2], len(outputs), outputs[0].shape[-1])
    for t, output in enumerate(outputs):
        whole[:, :, t] = output
    return whole


def _outer_product_first(state: Any, k: Any, delta: Any) -> Any:
    return delta[:, :, None, :] * k[:, :, :, None] + state


FORMS = {
    "stacked": recurrence(),
    "written in place": recurrence(collect=_written_in_place),
    "the last output alone": recurrence(collect=lambda outputs: outputs[-1] + sum(outputs)),
    "operands in other order": recurrence(write=_outer_product_first),
    "the module class": _module,
    "einsum": recurrence(
        remember=lambda state, k: torch.einsum("bhkv,bhk->bhv", state, k),
        write=lambda state, k, delta: state + torch.einsum("bhk,bhv->bhkv", k, delta),
        read=lambda state, q: torch.einsum("bhk,bhkv->bhv", q, state),
    ),
    "products of matrices": recurrence(
        remember=lambda state, k: (k.unsqueeze(-2) @ state).squeeze(-2),
        write=lambda state, k, delta: state + k.unsqueeze(-1) @ delta.unsqueeze(-2),
        read=lambda state, q: (q.unsqueeze(-2) @ state).squeeze(-2),
    ),
    "products of the transposed state": recurrence(read=lambda state, q: (state.mT @ q.unsqueeze(-1)).squeeze(-1)),
    "flash-linear-attention": recurrence(
        delta=lambda v, remembered, beta: (v - remembered) * beta[..., None],
        collect=_written_in_place,
        read=lambda state, q: torch.einsum("bhd,bhdm->bhm", q, state),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_a_loop_is_one_update(form: str, length: int, native: Native) -> None:
    assert updates(convert(FORMS[form], *inputs(length), native=native)) == 1


@pytest.mark.parametrize("default_table", [False, True])
@pytest.mark.parametrize("length", [1, 4])
def test_recurrence_of_qwen3_next(length: int, default_table: bool, native: Native) -> None:
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

    def model(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
        q, k, v, g, beta = (x.transpose(1, 2) for x in (q, k, v, g, beta))
        return torch_recurrent_gated_delta_rule(
            q, k, v, g=g, beta=beta, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True
        )

    program = convert(model, *inputs(length), default_table=default_table, native=native)
    assert updates(program) == 1
    assert "use_qk_l2_norm = true" in program.text()
    assert "aten.where" not in program.stages["recover"], "outputs are not written one by one"


def test_an_equal_size_of_keys_and_values(native: Native) -> None:
    assert updates(convert(recurrence(), *inputs(heads=4, value_size=4), native=native)) == 1


def test_a_state_that_is_read_elsewhere_ends_a_loop(native: Native) -> None:
    def model(*tensors: torch.Tensor) -> Any:
        *sequences, state = tensors
        first, between = recurrence()(*(x[:, :, :2] for x in sequences), state)
        second, last = recurrence()(*(x[:, :, 2:] for x in sequences), between)
        return first, second, between.sin(), last

    assert updates(convert(model, *inputs(4), native=native)) == 2


def test_outputs_that_the_next_step_needs_make_an_update_for_each(native: Native) -> None:
    def fed(v: torch.Tensor, outputs: list[torch.Tensor]) -> torch.Tensor:
        return v + outputs[-1] if outputs else v

    assert updates(convert(recurrence(feed=fed), *inputs(), native=native)) == 3


NEAR_MISSES = {
    "the decay is no exponential": recurrence(decay=lambda state, g: state * g[..., None, None]),
    "no decay": recurrence(decay=lambda state, g: state),
    "a decay for each key": recurrence(decay=lambda state, g: state * g.exp()[..., None, None] * state[..., :1].cos()),
    "queries and the transposed state": recurrence(read=lambda state, q: (q.unsqueeze(-2) @ state.mT).squeeze(-2)),
    "an einsum over values": recurrence(read=lambda state, q: torch.einsum("bhv,bhkv->bhk", q, state)),
    "the state before its update": recurrence(write=lambda state, k, d: state),
    "no beta": recurrence(delta=lambda v, remembered, beta: v - remembered),
    "beta of the value alone": recurrence(delta=lambda v, remembered, beta: v * beta[..., None] - remembered),
    "a sum instead of a difference": recurrence(delta=lambda v, remembered, beta: (v + remembered) * beta[..., None]),
    "the keys' sum over values": recurrence(remember=lambda state, k: (state * k.unsqueeze(-2)).sum(-1)),
    "keys along the values": recurrence(remember=lambda state, k: (state * k.unsqueeze(-2)).sum(-2)),
    "an outer product the other way": recurrence(write=lambda state, k, d: state + k.unsqueeze(-2) * d.unsqueeze(-1)),
    "a subtracted product": recurrence(write=lambda state, k, d: state - k.unsqueeze(-1) * d.unsqueeze(-2)),
    "a scaled sum": recurrence(write=lambda s, k, d: torch.add(s, k.unsqueeze(-1) * d.unsqueeze(-2), alpha=2)),
    "another key": recurrence(write=lambda state, k, d: state + (-k).sin().unsqueeze(-1) * d.unsqueeze(-2)),
    "queries along the values": recurrence(read=lambda state, q: (state * q.unsqueeze(-2)).sum(-1)),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", NEAR_MISSES)
def test_near_misses_stay(form: str) -> None:
    assert updates(convert(NEAR_MISSES[form], *inputs(value_size=4))) == 0


def test_an_undecayed_memory_stays() -> None:
    def model(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
        remembered = (state * k[:, :, 0].unsqueeze(-1)).sum(-2)
        delta = (v[:, :, 0] - remembered) * beta[:, :, 0].unsqueeze(-1)
        state = state * g[:, :, 0].exp()[..., None, None] + k[:, :, 0].unsqueeze(-1) * delta.unsqueeze(-2)
        return (state * q[:, :, 0].unsqueeze(-1)).sum(-2), state

    assert updates(convert(model, *inputs())) == 0


def test_half_precision_stays() -> None:
    assert updates(convert(recurrence(), *(x.half() for x in inputs()))) == 0

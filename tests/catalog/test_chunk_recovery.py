"""Recurrences that transformers computes in chunks become composites of recurrences, exactly, and nothing else does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch

import tests.networks.zoo  # noqa: F401  (it makes transformers importable beside a PyTorch without CUDA)
from patcomp import AIProgram
from patcomp.emit.native import Native
from tests.catalog.recovering import convert

CHUNK = 4
FUNCTIONS = {
    "gated_delta_update": ("qwen3_next", ["torch_chunk_gated_delta_rule"]),
    "kimi_delta_update": ("kimi_linear", ["chunk_kimi_delta_attention"]),
    "state_space_update": ("mamba2", ["segment_sum", "mamba2_chunk_scan"]),
}
"""For each composite, the model and the functions of transformers that compute it in chunks."""


def function(composite: str, *changes: tuple[str, str]) -> Callable[..., Any]:
    """The function of transformers, in whose source texts are replaced by others."""
    kind, names = FUNCTIONS[composite]
    module = import_module(f"transformers.models.{kind}.modeling_{kind}")
    sources = [inspect.getsource(inspect.unwrap(getattr(module, name))) for name in names]
    source = "".join(text[text.index("def ") :] for text in sources)
    for old, new in changes:
        assert old in source, f"transformers' code has changed: {old!r} is not in it any more"
        source = source.replace(old, new, 1)
    # eager has a faster form, which is not the one that is exported
    namespace = dict(vars(module))
    exec(source.replace("if not is_torchdynamo_exporting():", "if False:"), namespace)
    made: Callable[..., Any] = namespace[names[-1]]
    return made


def inputs(composite: str, length: int, groups: int = 2, heads: int = 4) -> list[torch.Tensor]:
    """The sequences, and the state at the end."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(2, *shape, generator=generator)

    if composite == "state_space_update":
        dt, slopes = torch.rand(2, length, heads, generator=generator), -torch.rand(heads, generator=generator)
        b, c = random(length, groups, 6), random(length, groups, 6)
        return [random(length, heads, 5), dt, slopes, b, c, random(heads, 5, 6)]
    keys = groups if composite == "gated_delta_update" else heads
    by_element = (4,) if composite == "kimi_delta_update" else ()
    g = -torch.rand(2, length, heads, *by_element, generator=generator)
    beta = torch.rand(2, length, heads, generator=generator)
    query, key = random(length, keys, 4), random(length, keys, 4)
    return [query, key, random(length, heads, 5), g, beta, random(heads, 4, 5)]


def call(
    composite: str, function: Callable[..., Any], has_state: bool = True, gives_state: bool = True, norm: bool = True
) -> Callable[..., Any]:
    """A function of the tensors of `inputs`."""
    is_space = composite == "state_space_update"

    def model(*tensors: torch.Tensor) -> Any:
        *sequences, state = tensors
        options: dict[str, Any] = {"chunk_size": CHUNK}
        if has_state:
            options["initial_states" if is_space else "initial_state"] = state
        options["return_final_states" if is_space else "output_final_state"] = gives_state
        if not is_space:
            options["use_qk_l2norm_in_kernel"] = norm
        made = function(*sequences, **options)
        outputs, after = made if isinstance(made, tuple) else (made, None)
        outputs = outputs if has_state else outputs + state.sum() * 0
        return (outputs, after) if gives_state else outputs

    return model


def composites(program: AIProgram) -> dict[str, int]:
    return dict(program.composites)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("length", [3, 4, 9, 8])
@pytest.mark.parametrize("form", ["as exported", "decomposed", "from zeros", "the outputs alone", "without a norm"])
@pytest.mark.parametrize("composite", FUNCTIONS)
def test_chunks_are_one_update(composite: str, form: str, length: int, native: Native) -> None:
    """One chunk or several, whole or padded."""
    model = call(
        composite, function(composite), form != "from zeros", form != "the outputs alone", form != "without a norm"
    )
    tensors = inputs(composite, length)
    program = convert(
        model, *tensors, as_exported=form != "decomposed", default_table=form == "decomposed", native=native
    )
    assert composites(program) == {composite: 1}
    recovered = program.stages["recover"]
    assert f"{length}x4x5xf32" in recovered, "the composite has the tokens without padding"
    assert ("use_qk_l2_norm = true" in recovered) == (composite != "state_space_update" and form != "without a norm")


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("composite", FUNCTIONS)
def test_half_precision_is_cast_around_the_update(composite: str, dtype: torch.dtype) -> None:
    tensors = [x.to(dtype) for x in inputs(composite, 5)]
    program = convert(call(composite, function(composite)), *tensors, as_exported=True)
    assert composites(program) == {composite: 1}


def test_chunks_of_64_tokens_as_models_have_them(native: Native) -> None:
    """Their substitution has 63 steps."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    def model(*tensors: torch.Tensor) -> Any:
        return torch_chunk_gated_delta_rule(*tensors[:5], use_qk_l2norm_in_kernel=True)[0] + tensors[5].sum() * 0

    program = convert(model, *inputs("gated_delta_update", 70), as_exported=True, native=native)
    assert composites(program) == {"gated_delta_update": 1}


def test_padding_with_something_else_than_zeros_is_computed() -> None:
    """The tokens behind are tokens like others, also for the state."""
    changed = function("gated_delta_update", ("F.pad(x, (0, pad_size))", "F.pad(x, (0, pad_size), value=0.5)"))
    program = convert(call("gated_delta_update", changed), *inputs("gated_delta_update", 5), as_exported=True)
    assert composites(program) == {"gated_delta_update": 1}
    assert "2x4x8x5xf32" in program.stages["recover"]


def test_padding_of_different_lengths_is_computed() -> None:
    changed = function(
        "gated_delta_update",
        (
            "(F.pad(x, (0, pad_size)) for x in (beta, decay))",
            "(F.pad(beta[..., :-1], (0, pad_size + 1)), F.pad(decay, (0, pad_size)))",
        ),
    )  # fmt: skip
    program = convert(call("gated_delta_update", changed), *inputs("gated_delta_update", 5), as_exported=True)
    assert composites(program) == {"gated_delta_update": 1}
    assert "2x4x8x5xf32" in program.stages["recover"]


@pytest.mark.parametrize("composite", ["gated_delta_update", "kimi_delta_update"])
def test_a_state_that_is_read_between_chunks_keeps_them(composite: str) -> None:
    read = ("v_new =", "seen = last_recurrent_state\n        v_new =")
    changed = function(composite, read, ("return core_attn_out, last", "return core_attn_out + seen.sum(), last"))
    assert composite not in composites(convert(call(composite, changed), *inputs(composite, 7), as_exported=True))


NEAR_MISSES = {
    "gated_delta_update": [
        # the substitution
        ("range(1, chunk_size)", "range(2, chunk_size)"),
        ("range(1, chunk_size)", "range(1, chunk_size - 1)"),
        ("row + (row.unsqueeze(-1) * sub)", "row - (row.unsqueeze(-1) * sub)"),
        ("row + (row.unsqueeze(-1) * sub)", "row + (0.5 * row.unsqueeze(-1) * sub)"),
        ("(row.unsqueeze(-1) * sub).sum(-2)", "(row.unsqueeze(-1) * sub).sum(-1)"),
        ("(row.unsqueeze(-1) * sub).sum(-2)", "(row.unsqueeze(-2) * sub).sum(-1)"),
        ("sub = ut_system[..., :i, :i].clone()", "sub = ut_system[..., 1 : i + 1, :i].clone()"),
        ("row = ut_system[..., i, :i].clone()", "row = ut_system[..., i - 1, :i].clone()"),
        # what it begins with, and what follows
        ("-ut_system.tril(-1)", "ut_system.tril(-1)"),
        ("-ut_system.tril(-1)", "-ut_system.tril(-2)"),
        ("-ut_system.tril(-1)", "-ut_system.tril(0)"),
        ("-ut_system.tril(-1)", "-ut_system"),
        ("+ torch.eye(chunk_size, ", "+ 2 * torch.eye(chunk_size, "),
        ("device=query.device).triu(1)", "device=query.device).triu(2)"),
        ("ut_system @ decayed_k_beta", "ut_system @ k_beta"),
        ("(k_beta @ key.transpose(-1, -2))", "(key @ key.transpose(-1, -2))"),
        ("v_beta = value * beta.unsqueeze(-1)", "v_beta = value * decay.unsqueeze(-1)"),
        ("k_beta = key * beta.unsqueeze(-1)", "k_beta = key * decay.unsqueeze(-1)"),
        # decays
        ("decay.cumsum(dim=3)", "decay.cumsum(dim=2)"),
        ("cum_decay.unsqueeze(4) - cum_decay.unsqueeze(3)", "cum_decay.unsqueeze(3) - cum_decay.unsqueeze(4)"),
        ("query = query * cum_decay.exp()", "query = query * (2 * cum_decay).exp()"),
        ("(cum_decay[..., -1:] - cum_decay)", "(cum_decay[..., :1] - cum_decay)"),
        ("cum_decay[..., -1].exp()", "cum_decay[..., -2].exp()"),
        ("intra_chunk_attn = (query @ key.transpose(-1, -2)) * pairwise_decay", "intra_chunk_attn = query @ key.mT"),
        # the loop over chunks
        ("v_new = new_values[:, :, i] - k_cumdecay", "v_new = new_values[:, :, i] + k_cumdecay"),
        ("inter_chunk_attn + intra_chunk_attn", "inter_chunk_attn - intra_chunk_attn"),
        ("query[:, :, i] @ last_recurrent_state", "query[:, :, 0] @ last_recurrent_state"),
        ("core_attn_out[:, :, i] =", "core_attn_out[:, :, num_chunks - 1 - i] ="),
        ("last_recurrent_state * chunk_decay[:, :, i] +", "last_recurrent_state * chunk_decay[:, :, i] -"),
        ("last_recurrent_state * chunk_decay[:, :, i] +", "initial_state * chunk_decay[:, :, i] +"),
        ("key[:, :, i].transpose(-1, -2) @ v_new", "key[:, :, i].transpose(-1, -2) @ new_values[:, :, i]"),
    ],
    "kimi_delta_update": [
        ("range(1, chunk_size)", "range(2, chunk_size)"),
        ("row + (row.unsqueeze(-1) * sub)", "row - (row.unsqueeze(-1) * sub)"),
        ("diagonal=0)", "diagonal=-1)"),
        ("diagonal=1)", "diagonal=2)"),
        ("attn + torch.eye(", "attn - torch.eye("),
        ("g = g.cumsum(dim=-2)", "g = g.cumsum(dim=-3)"),
        ("g.unsqueeze(-2) - g.unsqueeze(-3)", "g.unsqueeze(-3) - g.unsqueeze(-2)"),
        ("k_beta.unsqueeze(-2) * key.unsqueeze(-3)", "key.unsqueeze(-2) * key.unsqueeze(-3)"),
        ("attn @ (k_beta * g.exp())", "attn @ (k_beta * g)"),
        ("(q_i * g_i.exp())", "(q_i * g_i.cos())"),
        ("q_i.unsqueeze(-2) * k_i.unsqueeze(-3) * decay_mask[:, :, i]", "q_i.unsqueeze(-2) * k_i.unsqueeze(-3)"),
        ("k_i.unsqueeze(-3) * decay_mask[:, :, i]", "k_i.unsqueeze(-3) * decay_mask[:, :, 0]"),
        ("g_i[:, :, -1].exp()", "g_i[:, :, 0].exp()"),
        ("g_i[:, :, -1:] - g_i", "g_i[:, :, :1] - g_i"),
        ("g_i = g[:, :, i]", "g_i = g[:, :, 0]"),
        ("q_i = query[:, :, i]", "q_i = query[:, :, 0]"),
        ("v_new = v_i - v_prime", "v_new = v_i + v_prime"),
    ],
    "state_space_update": [
        ("diagonal=-1)", "diagonal=-2)"),
        ("diagonal=0)", "diagonal=1)"),
        ("torch.cumsum(input_tensor, dim=-2)", "torch.cumsum(input_tensor, dim=-1)"),
        ("A_cumsum = torch.cumsum(A, dim=-1)", "A_cumsum = torch.cumsum(A, dim=-2)"),
        ('"bclhn,bcshn->bclsh", C, B)', '"bclhn,bcshn->bclsh", B, C)'),
        ('"bclhn,bcshn->bclsh", C, B)', '"bclhn,bcshn->bcslh", C, B)'),
        ("M = G * L.permute(0, 2, 3, 4, 1)", "M = G * L.permute(0, 2, 4, 3, 1)"),
        ("A_cumsum[:, :, :, -1:] - A_cumsum)", "A_cumsum[:, :, :, :1] - A_cumsum)"),
        ("B_decay, hidden_states)", "B, hidden_states)"),
        ("F.pad(A_cumsum[:, :, :, -1], (1, 0))", "F.pad(A_cumsum[:, :, :, 0], (1, 0))"),
        ("F.pad(A_cumsum[:, :, :, -1], (1, 0))", "F.pad(A_cumsum[:, :, :, -1], (1, 0), value=0.5)"),
        ("torch.cat([previous_states, states], dim=1)", "torch.cat([states, previous_states], dim=1)"),
        ("states, final_state = new_states[:, :-1]", "states, final_state = new_states[:, 1:]"),
        ("state_decay_out = torch.exp(A_cumsum)", "state_decay_out = torch.exp(-A_cumsum)"),
        ("(Y_diag + Y_off)", "(Y_diag - Y_off)"),
    ],
}
"""A change of transformers' code, which makes it another function."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("composite", "old", "new"), [(name, *change) for name, changes in NEAR_MISSES.items() for change in changes]
)
def test_near_misses_stay(composite: str, old: str, new: str) -> None:
    changed = function(composite, (old, new))
    program = convert(call(composite, changed), *inputs(composite, 9, heads=2), as_exported=True)
    assert composite not in composites(program)

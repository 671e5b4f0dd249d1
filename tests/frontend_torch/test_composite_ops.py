"""The module classes compute their formulas, refuse what they cannot, export, and convert."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import patcomp
import tests.networks.zoo  # noqa: F401  (which makes transformers importable beside a PyTorch without CUDA)
from patcomp import TorchConverter
from patcomp.composite_ops import SDPA, GatedDeltaUpdate, GatherMM, RMSNorm, RMSNormImpl, RoPE, Version
from patcomp.emit.native import Native
from tests.catalog.cases import TOLERANCES

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def assert_close(given: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal in shape and dtype, and in values within the tolerance of the dtype."""
    tolerance = TOLERANCES.get(expected.dtype, 1e-5)
    torch.testing.assert_close(given, expected, rtol=tolerance, atol=tolerance)


def test_classes_declare_their_version() -> None:
    for module in (RMSNormImpl(), RoPE(), SDPA(), GatherMM(), GatedDeltaUpdate()):
        assert module.version is Version.v1
        assert not list(module.parameters())


# ---- rms_norm --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_is_pytorchs(dtype: torch.dtype) -> None:
    x, scale = torch.randn(2, 3, 8).to(dtype), torch.rand(8).to(dtype) + 0.5
    module = RMSNormImpl(eps=1e-3)
    assert (module.eps, module.axes) == (1e-3, -1)
    assert_close(module(x, scale), functional.rms_norm(x, (8,), scale, 1e-3))


def test_rms_norm_squares_in_float32() -> None:
    x = torch.full((1, 4), 300.0, dtype=torch.float16)  # its square is infinite in float16
    assert_close(RMSNormImpl()(x, torch.ones(4, dtype=torch.float16)), torch.ones(1, 4, dtype=torch.float16))


def test_rms_norm_applies_a_float32_scale_before_rounding() -> None:
    x, scale = torch.randn(64, 8).to(torch.bfloat16), torch.rand(8) + 0.5
    wide = x.float()
    expected = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5) * scale).to(torch.bfloat16)
    assert torch.equal(RMSNormImpl()(x, scale), expected)


def test_rms_norm_module_owns_its_scale() -> None:
    x = torch.randn(2, 3, 5, 8)
    one, each = RMSNorm(8, 1e-6), RMSNorm(8, n_heads=3)
    assert one.weight.shape == (8,)
    assert each.weight.shape == (3, 1, 8)
    assert isinstance(one.rmsnorm_impl, RMSNormImpl)
    assert one.rmsnorm_impl.eps == 1e-6
    with torch.no_grad():
        each.weight.uniform_(0.5, 1.5)
    assert_close(one(x), functional.rms_norm(x, (8,), None, 1e-6))
    assert_close(each(x), functional.rms_norm(x, (8,), None, 1e-5) * each.weight)


# ---- rope ------------------------------------------------------------------------------------------


def rotated_like_hugging_face(x: torch.Tensor, positions: torch.Tensor, base: float = 1e4) -> torch.Tensor:
    """Llama's rotary embedding of transformers, at positions `[batch, sequence]`."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=x.shape[1] * x.shape[-1], num_attention_heads=x.shape[1])
    config.rope_parameters = {"rope_type": "default", "rope_theta": base}
    cos, sin = LlamaRotaryEmbedding(config)(x, positions)
    return apply_rotary_pos_emb(x, x, cos, sin)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_is_hugging_faces(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 5, 8).to(dtype)
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    assert_close(RoPE()(x, position_ids=positions), rotated_like_hugging_face(x, positions))
    assert_close(RoPE(base=500.0)(x), rotated_like_hugging_face(x, torch.arange(5)[None].expand(2, 5), 500.0))


def rotated_in_the_complex_plane(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Neighbouring features as complex numbers, turned by angles."""
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def test_interleaved_rope_turns_complex_numbers() -> None:
    x = torch.randn(2, 3, 5, 8)
    angles = torch.arange(5.0)[:, None] * 0.5 * 100.0 ** -(torch.arange(4) / 4)
    assert_close(RoPE(scale=0.5, base=100.0, interleaved=True)(x), rotated_in_the_complex_plane(x, angles))


@pytest.mark.parametrize("interleaved", [False, True])
def test_partial_rope_passes_the_rest_on(interleaved: bool) -> None:
    x = torch.randn(2, 3, 5, 8)
    result = RoPE(dims=4, interleaved=interleaved)(x)
    assert_close(result[..., :4], RoPE(interleaved=interleaved)(x[..., :4].contiguous()))
    assert torch.equal(result[..., 4:], x[..., 4:])
    assert torch.equal(RoPE(dims=16, interleaved=interleaved)(x), RoPE(interleaved=interleaved)(x))


def test_rope_of_given_rotations_positions_and_frequencies() -> None:
    x, freqs = torch.randn(2, 3, 5, 8), torch.rand(4)
    positions = torch.tensor([3, 9])[:, None] + torch.arange(5)
    expected = RoPE()(x, position_ids=positions)
    assert_close(RoPE()(x, offset=torch.tensor([3, 9])), expected)
    assert_close(RoPE()(x[:1], offset=3), expected[:1])
    assert_close(RoPE()(x[:1], offset=torch.tensor(3)), expected[:1])
    angles = positions[:, None, :, None] * freqs
    given = RoPE()(x, torch.cos(angles), torch.sin(angles))
    assert_close(RoPE()(x, position_ids=positions, freqs=freqs), given)
    assert_close(RoPE(scale=2.0)(x, position_ids=positions, freqs=freqs / 2), given)


def test_rope_rounds_frequencies_like_hugging_face() -> None:
    x, freqs = torch.randn(1, 1, 50, 8).to(torch.bfloat16), torch.rand(4)
    rounded = RoPE(_use_hf_impl=True)(x, freqs=freqs)
    assert torch.equal(rounded, RoPE()(x, freqs=freqs.to(torch.bfloat16).float()))
    assert not torch.equal(rounded, RoPE()(x, freqs=freqs))


def test_rope_errors() -> None:
    x = torch.randn(1, 1, 2, 6)
    with pytest.raises(RuntimeError, match="must be even, got 3"):
        RoPE(dims=3)(x)
    with pytest.raises(RuntimeError, match="2 at least, got 0"):
        RoPE(dims=0)(x)
    with pytest.raises(RuntimeError, match=r"freqs must be float32, got torch\.float16"):
        RoPE()(x, freqs=torch.ones(3, dtype=torch.float16))
    with pytest.raises(ValueError, match="cos and sin together"):
        RoPE()(x, cos=torch.ones(2, 3))


# ---- attention -------------------------------------------------------------------------------------


def _attention_inputs(
    queries: int = 3, keys: int = 5, heads: tuple[int, int, int] = (4, 4, 4), dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    lengths, sizes = (queries, keys, keys), (8, 8, 6)
    return [torch.randn(2, h, n, d).to(dtype) for h, n, d in zip(heads, lengths, sizes, strict=True)]


def written_out(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, seen: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attention by its definition, a head and a query at a time; `seen` is bool `[queries, keys]`."""
    result = query.new_zeros(*query.shape[:3], value.shape[-1])
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in query.shape[:3])).tolist():
        k = key[b, h * key.shape[1] // query.shape[1]][seen[i]]
        v = value[b, h * value.shape[1] // query.shape[1]][seen[i]]
        weights = torch.exp(scale * k @ query[b, h, i])
        result[b, h, i] = (weights / weights.sum()) @ v
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hugging_face", [False, True])
def test_attention_is_pytorchs(dtype: torch.dtype, hugging_face: bool) -> None:
    query, key, value = _attention_inputs(dtype=dtype)
    module = SDPA(scale=0.3, _use_hf_impl=hugging_face)
    expected = functional.scaled_dot_product_attention(query, key, value, scale=0.3)
    assert_close(module(query, key, value), expected)
    bool_mask = torch.ones(3, 5, dtype=torch.bool).tril(1)
    float_mask = torch.randn(2, 1, 3, 5).to(dtype)
    for mask in (bool_mask, float_mask):
        expected = functional.scaled_dot_product_attention(query, key, value, mask, scale=0.3)
        assert_close(module(query, key, value, mask), expected)


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    mask = torch.tensor([[True] * 5, [False] * 5, [True] * 5])
    result = SDPA()(*_attention_inputs(), mask)
    assert torch.equal(result[:, :, 1], torch.zeros(2, 4, 6))


@pytest.mark.parametrize(
    ("causal", "window", "diagonals"),
    [(True, 0, (-9, 0)), (True, 2, (-1, 0)), (False, 2, (-1, 1)), (False, 0, (-9, 9)), (True, -1, (-9, 0))],
)
@pytest.mark.parametrize("lengths", [(5, 5), (3, 5), (1, 5)])
def test_positions_are_aligned_at_the_lower_right(
    causal: bool, window: int, diagonals: tuple[int, int], lengths: tuple[int, int]
) -> None:
    query, key, value = _attention_inputs(*lengths, heads=(4, 2, 1))
    shift = lengths[1] - lengths[0]
    seen = torch.ones(lengths, dtype=torch.bool).triu(diagonals[0] + shift).tril(diagonals[1] + shift)
    given = SDPA(is_causal=causal, window_size=window)(query, key, value)
    assert_close(given, written_out(query, key, value, seen, 8**-0.5))


@pytest.mark.parametrize("mask", [None, torch.ones(3, 5, dtype=torch.bool).tril(1), torch.randn(4, 3, 5)])
def test_sinks_take_part_of_the_weight(mask: torch.Tensor | None) -> None:
    query, key, value = _attention_inputs(heads=(4, 2, 2))
    sinks = torch.randn(4)
    # a further key whose score is the sink and whose value is zero: a feature that only it has
    wide_query = torch.cat([query, torch.ones(2, 4, 3, 1)], -1)
    keys, values = (x.repeat_interleave(2, 1) for x in (key, value))
    keys = functional.pad(keys, (0, 1, 0, 1))
    keys[:, :, -1, -1] = sinks / 0.3
    values = functional.pad(values, (0, 0, 0, 1))
    wide_mask = functional.pad(mask, (0, 1), value=mask.dtype == torch.bool) if mask is not None else None
    expected = functional.scaled_dot_product_attention(wide_query, keys, values, wide_mask, scale=0.3)
    assert_close(SDPA(scale=0.3)(query, key, value, mask, sinks), expected)


def test_attention_errors() -> None:
    query, key, value = _attention_inputs()
    with pytest.raises(ValueError, match="ranks 3, 4 and 4"):
        SDPA()(query[0], key, value)
    with pytest.raises(ValueError, match="4 heads of query are no multiple of the 3 of value"):
        SDPA()(query, key, value[:, :3])
    with pytest.raises(ValueError, match=r"shape \(4,\), one for each head, got \(3,\)"):
        SDPA()(query, key, value, sinks=torch.ones(3))
    with pytest.raises(NotImplementedError, match="no sinks"):
        SDPA(_use_hf_impl=True)(query, key, value, sinks=torch.ones(4))
    with pytest.raises(ValueError, match="causal mask of 5 queries needs as many keys, got 3"):
        SDPA(is_causal=True)(key, query, query)


# ---- gather_mm -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_mm_multiplies_chosen_matrices(dtype: torch.dtype) -> None:
    x, experts = torch.randn(2, 3, 1, 1, 4).to(dtype), torch.randn(6, 4, 5).to(dtype)
    chosen = torch.randint(0, 6, (2, 3, 2))
    result = GatherMM()(x, experts, rhs_indices=chosen)
    assert result.shape == (2, 3, 2, 1, 5)
    for b, t, k in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(2)).tolist():
        assert_close(result[b, t, k], x[b, t, 0] @ experts[chosen[b, t, k]])


def test_gather_mm_of_both_operands_and_of_batches() -> None:
    lhs, rhs = torch.randn(5, 2, 3), torch.randn(6, 3, 4)
    left, right = torch.tensor([0, 4, 4]), torch.tensor([5, 0, 5], dtype=torch.int32)
    assert_close(GatherMM()(lhs, rhs, left, right), lhs[left] @ rhs[right.long()])
    assert_close(GatherMM()(lhs[:3], rhs, None, right), lhs[:3] @ rhs[right.long()])
    assert_close(GatherMM()(lhs, rhs[0]), lhs @ rhs[0])
    fused = torch.randn(2, 6, 3, 4)
    x = torch.randn(3, 1, 3)
    assert_close(GatherMM(num_batch_axes=1)(x, fused, rhs_indices=left), torch.matmul(x, fused[:, left]))


def test_gather_mm_errors() -> None:
    with pytest.raises(ValueError, match="rhs of rank 3 has no axis 3"):
        GatherMM(num_batch_axes=3)(torch.ones(2, 2), torch.ones(1, 2, 2), rhs_indices=torch.tensor([0]))
    with pytest.raises(IndexError):
        GatherMM()(torch.ones(2, 2), torch.ones(1, 2, 2), rhs_indices=torch.tensor([1]))


# ---- gated_delta_update ----------------------------------------------------------------------------


def _delta_inputs(
    length: int = 3, heads: tuple[int, int] = (2, 2), dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    key_heads, value_heads = heads
    query, key = (torch.randn(1, key_heads, length, 4) for _ in range(2))
    value = torch.randn(1, value_heads, length, 5)
    g, beta = -torch.rand(1, value_heads, length), torch.rand(1, value_heads, length)
    return [tensor.to(dtype) for tensor in (query, key, value, g, beta, torch.randn(1, value_heads, 4, 5))]


def delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rule in matrix form, a head and a step at a time: S = a (I - b k k^T) S + b k v^T, in float64."""
    query, key, value, g, beta, state = (x.double() for x in (query, key, value, g, beta, state))
    last = state.clone()
    output = query.new_zeros(value.shape)
    for b, h, t in torch.cartesian_prod(*(torch.arange(n) for n in value.shape[:3])).tolist():
        group = h * key.shape[1] // value.shape[1]
        k, strength = key[b, group, t], beta[b, h, t]
        forget = torch.exp(g[b, h, t]) * (torch.eye(len(k)) - strength * torch.outer(k, k))
        last[b, h] = forget @ last[b, h] + strength * torch.outer(k, value[b, h, t])
        output[b, h, t] = query[b, group, t] / math.sqrt(len(k)) @ last[b, h]
    return output.transpose(1, 2), last


@pytest.mark.parametrize("heads", [(2, 2), (2, 4), (1, 3)])
@pytest.mark.parametrize("normalize", [False, True])
def test_gated_delta_update_is_the_rule(heads: tuple[int, int], normalize: bool) -> None:
    inputs = _delta_inputs(heads=heads)
    query, key, *others = inputs
    if normalize:
        query, key = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    output, state = GatedDeltaUpdate(use_qk_l2_norm=normalize)(*inputs)
    expected, last = delta_rule(query, key, *others)
    assert output.shape == (1, 3, heads[1], 5)
    assert_close(output, expected.float())
    assert_close(state, last.float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gated_delta_update_computes_in_float32(dtype: torch.dtype) -> None:
    inputs = _delta_inputs(dtype=dtype)
    output, state = GatedDeltaUpdate(use_qk_l2_norm=False)(*inputs)
    wide = GatedDeltaUpdate(use_qk_l2_norm=False)(*(x.float() for x in inputs))
    assert torch.equal(output, wide[0].to(dtype))
    assert torch.equal(state, wide[1].to(dtype))


def test_gated_delta_update_in_two_calls_is_one() -> None:
    inputs = _delta_inputs(length=5)
    output, state = GatedDeltaUpdate()(*inputs)
    first, middle = GatedDeltaUpdate()(*(x[:, :, :2] for x in inputs[:5]), inputs[5])
    second, last = GatedDeltaUpdate()(*(x[:, :, 2:] for x in inputs[:5]), middle)
    assert_close(torch.cat([first, second], 1), output)
    assert_close(last, state)
    nothing, same = GatedDeltaUpdate()(*(x[:, :, :0] for x in inputs[:5]), inputs[5])
    assert nothing.shape == (1, 0, 2, 5)
    assert torch.equal(same, inputs[5])


def test_gated_delta_update_errors() -> None:
    query, key, value, g, beta, state = _delta_inputs(heads=(2, 4))
    for arguments, message in [
        ((query[0], key, value, g, beta, state), "query and key must have one shape of rank 4"),
        ((query, key[:, :, 1:], value, g, beta, state), "query and key must have one shape of rank 4"),
        ((query, key, value[:, :, 1:], g, beta, state), "value must be"),
        ((query, key, value[:, :3], g, beta, state), "3 heads of value are no multiple of the 2"),
        ((query, key, value, g[:, :2], beta, state), r"g must be \[1, 4, 3\], got \[1, 2, 3\]"),
        ((query, key, value, g, beta[:, :, :2], state), r"beta must be \[1, 4, 3\]"),
        ((query, key, value, g, beta, state[:, :2]), r"initial_state must be \[1, 4, 4, 5\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            GatedDeltaUpdate()(*arguments)


# ---- conversion ------------------------------------------------------------------------------------


class _Calling(nn.Module):
    """A model that calls an op's module with some of its inputs by keyword."""

    def __init__(self, module: nn.Module, names: tuple[str, ...]):
        super().__init__()
        self.module = module
        self.names = names

    def forward(self, *tensors: torch.Tensor) -> Any:
        first = len(tensors) - len(self.names)
        return self.module(*tensors[:first], **dict(zip(self.names, tensors[first:], strict=True)))


def _heads(*shape: int) -> torch.Tensor:
    return torch.randn(1, *shape)


CONVERTED: dict[str, tuple[nn.Module, Callable[[], list[torch.Tensor]], tuple[str, ...]]] = {
    "rms_norm": (RMSNormImpl(), lambda: [torch.randn(2, 3, 8), torch.rand(8)], ()),
    "rms_norm with weight": (RMSNorm(8), lambda: [torch.randn(2, 3, 8)], ()),
    "rope": (RoPE(), lambda: [_heads(2, 3, 8)], ()),
    "rope of parts, interleaved": (RoPE(dims=4, interleaved=True), lambda: [_heads(2, 3, 8)], ()),
    "rope of positions": (RoPE(), lambda: [_heads(2, 3, 8), torch.tensor([[4, 5, 6]])], ("position_ids",)),
    "rope of rotations": (RoPE(), lambda: [_heads(2, 3, 8), torch.rand(3, 4), torch.rand(3, 4)], ("cos", "sin")),
    "attention": (SDPA(), lambda: [_heads(4, 3, 8), _heads(2, 5, 8), _heads(2, 5, 8)], ()),
    "causal attention": (SDPA(is_causal=True), lambda: [_heads(4, 3, 8), _heads(4, 5, 8), _heads(4, 5, 8)], ()),
    "attention with sinks": (
        SDPA(scale=0.3),
        lambda: [_heads(4, 3, 8), _heads(2, 5, 8), _heads(2, 5, 8), torch.randn(4)],
        ("sinks",),
    ),
    "gather_mm": (
        GatherMM(),
        lambda: [torch.randn(2, 3, 1, 1, 4), torch.randn(6, 4, 5), torch.randint(0, 6, (2, 3, 2))],
        ("rhs_indices",),
    ),
    "gather_mm of batches": (
        GatherMM(num_batch_axes=1),
        lambda: [torch.randn(3, 1, 4), torch.randn(2, 6, 4, 5), torch.randint(0, 6, (3,))],
        ("rhs_indices",),
    ),
    "gated_delta_update": (GatedDeltaUpdate(), lambda: _delta_inputs(heads=(2, 4)), ()),
}

EXPECTED = {
    "rms_norm": "rms_norm",
    "rms_norm with weight": "rms_norm",
    "attention": "scaled_dot_product_attention",
    "causal attention": "scaled_dot_product_attention",
    "gather_mm": "gather_mm",
}
"""The composites that are found in what export makes of a module."""


@pytest.mark.parametrize("name", CONVERTED)
def test_modules_convert(name: str, native: Native) -> None:
    module, inputs_of, names = CONVERTED[name]
    model, inputs = _Calling(module, names).eval(), tuple(inputs_of())
    exported = torch.export.export(model, inputs).run_decompositions(patcomp.get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    if name in EXPECTED:
        assert program.composites == {EXPECTED[name]: 1}
    given = program.run(dict(zip(program.input_names(), inputs, strict=True)))
    narrow = {
        name: x.to(torch.int32) if x.dtype == torch.int64 else x
        for name, x in zip(program.input_names(), inputs, strict=True)
    }
    runtime = native.run(program.module, narrow)
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*inputs))
    for output, reference in zip(program.output_names(), expected, strict=True):
        assert_close(given[output], reference)
        assert_close(torch.from_numpy(runtime[output]), reference)

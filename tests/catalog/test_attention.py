"""Attention is recovered from models that write it out, in whichever form, and from nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from patcomp.emit.native import Native
from patcomp.evaluate.inputs import prepare_input
from patcomp.program.program import AIProgram
from tests.catalog.attention_models import assert_equal, attentions, convert, export, input_types
from tests.catalog.recovering import Calling
from tests.helpers.thorough import examples
from tests.networks import zoo

RULE = "attention written out"


# ---- every spelling ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spelling:
    """How a net writes its attention."""

    scale_at: str = "scores"  # "none", "query", "key", "column", "both" or "scores"
    divide: bool = False
    mask: str = "none"  # "bias", "bias per head", "where", "masked_fill", "finite", "causal", "window", "twice"
    wide: bool = False
    product: str = "matmul"  # "bmm", "einsum", "joined"
    grouped: str = "no"  # "repeat_kv", "repeat_interleave", "one head"
    straight_key: bool = False
    dtype: torch.dtype = torch.float32
    sizes: tuple[int, int, int, int, int] = (2, 4, 3, 5, 8)  # batch, heads, queries, keys, width


def _scaled(x: torch.Tensor, factor: float, divide: bool) -> torch.Tensor:
    return x / (1 / factor) if divide else x * factor


class Attention(nn.Module):
    """A net of one attention, from [B, L, H, D]."""

    def __init__(self, spelling: Spelling):
        super().__init__()
        self.spelling = spelling

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        s = self.spelling
        batch, heads, queries, _, width = s.sizes
        factor = {"both": width**-0.25, "none": 1.0}.get(s.scale_at, width**-0.5)
        q = query.transpose(1, 2)
        if s.scale_at in ("query", "both"):
            q = _scaled(q, factor, s.divide)
        if s.straight_key and s.grouped == "no":
            columns = key.permute(0, 2, 3, 1)
        else:
            k = self._repeated(key.transpose(1, 2))
            if s.scale_at in ("key", "both"):
                k = _scaled(k, factor, s.divide)
            columns = k.transpose(-1, -2)
        if s.scale_at == "column":
            columns = _scaled(columns, factor, s.divide)
        v = self._repeated(value.transpose(1, 2))
        joined = s.product == "bmm"
        if joined:
            q, columns, v = (x.reshape(batch * heads, *x.shape[-2:]) for x in (q, columns, v))
        if s.product == "einsum":
            scores = torch.einsum("bhid,bhdj->bhij", q, columns)
        else:
            scores = torch.bmm(q, columns) if joined else torch.matmul(q, columns)
        if s.scale_at == "scores":
            scores = _scaled(scores, factor, s.divide)
        scores = self._masked(scores, bias)
        weights = torch.softmax(scores, -1, dtype=torch.float32) if s.wide else scores.softmax(-1)
        weights = nn.functional.dropout(weights.to(v.dtype), 0.1, self.training)
        if s.product == "einsum":
            result = torch.einsum("bhij,bhjd->bhid", weights, v)
        else:
            result = torch.bmm(weights, v) if joined else weights @ v
        return result.reshape(batch, heads, queries, width)

    def _repeated(self, x: torch.Tensor) -> torch.Tensor:
        s = self.spelling
        batch, own, length, width = x.shape
        times = s.sizes[1] // own
        if s.grouped == "repeat_kv":
            return x[:, :, None].expand(batch, own, times, length, width).reshape(batch, own * times, length, width)
        if s.grouped == "repeat_interleave":
            return x.repeat_interleave(times, dim=1)
        return x.expand(-1, s.sizes[1], -1, -1) if s.grouped == "one head" else x

    def _masked(self, scores: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        mask = self.spelling.mask
        rows, columns = torch.arange(scores.shape[-2])[:, None], torch.arange(scores.shape[-1])
        if mask == "bias":
            return scores + bias[0, 0]
        if mask == "where":
            return torch.where(bias[0, 0] < 1.0, scores, float("-inf"))
        if mask == "masked_fill":
            return scores.masked_fill(bias[0, 0] > 1.0, float("-inf"))
        if mask == "finite":
            return scores.masked_fill(bias[0, 0] > 0.0, torch.finfo(scores.dtype).min)
        if mask == "causal":
            return scores.masked_fill(torch.tril(torch.ones(scores.shape[-2:])) == 0, float("-inf"))
        if mask == "window":
            return torch.where((columns <= rows) & (columns > rows - 2), scores, torch.finfo(scores.dtype).min)
        if mask == "twice":
            return (scores + bias[0, 0]).masked_fill(columns > rows, float("-inf"))
        return scores


def inputs_of(spelling: Spelling, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Query, key and value as [B, L, H, D], and a bias that never masks a whole row out."""
    generator = torch.Generator().manual_seed(seed)
    batch, heads, queries, keys, width = spelling.sizes
    own = {"no": heads, "one head": 1}.get(spelling.grouped, max(heads // 2, 1))
    shapes = [(batch, queries, heads, width), (batch, keys, own, width), (batch, keys, own, width)]
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    bias = torch.randn(batch, 1, queries, keys, generator=generator)
    bias[..., 0] = -1.0
    return tuple(x.to(spelling.dtype) for x in [*tensors, bias])


def check(spelling: Spelling) -> AIProgram:
    """One attention is found, and the numbers agree with and without it."""
    module, tensors = Attention(spelling).eval(), inputs_of(spelling)
    exported = export(module, tensors)
    tolerance = 1e-4 if spelling.dtype == torch.float32 else 2e-2
    program = convert(exported)
    assert attentions(program) == 1, program.why_not(RULE)
    assert_equal(program, module, tensors, tolerance)
    plain = convert(exported, RULE)
    assert attentions(plain) == 0
    assert_equal(plain, module, tensors, tolerance)
    return program


PLAIN = Spelling()
SPELLINGS = [
    PLAIN,
    *(replace(PLAIN, scale_at=place) for place in ("none", "query", "key", "column", "both")),
    *(replace(PLAIN, scale_at=place, divide=True) for place in ("query", "key", "column", "scores")),
    *(replace(PLAIN, mask=m) for m in ("bias", "where", "masked_fill", "finite", "causal", "window", "twice")),
    *(replace(PLAIN, grouped=g) for g in ("repeat_kv", "repeat_interleave", "one head")),
    *(replace(PLAIN, product=p, mask="causal") for p in ("bmm", "einsum")),
    *(replace(PLAIN, product="bmm", grouped=g) for g in ("repeat_kv", "one head")),
    *(replace(PLAIN, dtype=torch.float16, wide=w, mask="bias") for w in (False, True)),
    replace(
        PLAIN, dtype=torch.float16, mask="window", sizes=(1, 2, 5, 2, 8)
    ),  # in rows without a key all weights are equal
    replace(PLAIN, straight_key=True, mask="bias"),
    replace(PLAIN, wide=True),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: str(s)[9:-1])
def test_every_spelling(spelling: Spelling) -> None:
    check(spelling)


@settings(max_examples=examples(8), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.builds(
        Spelling,
        scale_at=st.sampled_from(["none", "query", "key", "column", "both", "scores"]),
        divide=st.booleans(),
        mask=st.sampled_from(["none", "bias", "where", "masked_fill", "finite", "causal", "window", "twice"]),
        wide=st.booleans(),
        product=st.sampled_from(["matmul", "bmm", "einsum"]),
        grouped=st.sampled_from(["no", "repeat_kv", "repeat_interleave", "one head"]),
        straight_key=st.booleans(),
        dtype=st.sampled_from([torch.float32, torch.float16]),
        sizes=st.tuples(
            st.integers(1, 3), st.sampled_from([2, 4, 6]), st.integers(2, 5), st.integers(2, 5), st.integers(2, 8)
        ),
    )
)
def test_any_spelling(spelling: Spelling) -> None:
    check(spelling)


@pytest.mark.parametrize("spelling", SPELLINGS[::4], ids=lambda s: str(s)[9:-1])
def test_on_the_runtime(spelling: Spelling, native: Native) -> None:
    module, tensors = Attention(spelling).eval(), inputs_of(spelling)
    program = convert(export(module, tensors))
    types = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    named = zip(program.input_names(), tensors, types, strict=True)
    given = native.run(program.module, {name: prepare_input(x, type_, name) for name, x, type_ in named})
    with torch.no_grad():
        expected = module(*tensors)
    tolerance = 1e-4 if spelling.dtype == torch.float32 else 2e-2
    found = torch.from_numpy(given[program.output_names()[0]])
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


# ---- what the composite says ---------------------------------------------------------------------


def test_scale_is_declared_only_where_it_is_not_the_default() -> None:
    for place in ("query", "key", "column", "both", "scores"):
        assert (
            "{is_causal = false, version = 1 : si64, window_size = 0 : si64}"
            in check(replace(PLAIN, scale_at=place)).text()
        )
    assert "{is_causal = false, scale = 1.000000e+00 : f32, version" in check(replace(PLAIN, scale_at="none")).text()


def test_masks_keep_their_kind() -> None:
    for mask, element in (("bias", "f32"), ("where", "i1"), ("masked_fill", "i1"), ("finite", "f32"), ("causal", "i1")):
        assert input_types(check(replace(PLAIN, mask=mask)))[3].endswith(f"x{element}>"), mask


@pytest.mark.parametrize("grouped", ["repeat_kv", "repeat_interleave", "one head"])
@pytest.mark.parametrize("product", ["matmul", "bmm", "einsum"])
def test_keys_and_values_have_their_own_heads(grouped: str, product: str) -> None:
    own = 1 if grouped == "one head" else 2
    types = input_types(check(replace(PLAIN, grouped=grouped, product=product)))
    assert types[1:3] == [f"tensor<2x{own}x5x8xf32>"] * 2


def test_preserved_attention_has_its_own_heads() -> None:
    def repeated(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
        return nn.functional.scaled_dot_product_attention(q, k, v)

    module, tensors = Calling(repeated), (torch.randn(1, 4, 3, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8))
    for default_table in (False, True):
        program = convert(export(module, tensors, default_table=default_table))
        assert input_types(program) == ["tensor<1x4x3x8xf32>", "tensor<1x2x5x8xf32>", "tensor<1x2x5x8xf32>"]
        assert_equal(program, module, tensors, 1e-4)


def test_rows_without_a_key() -> None:
    """Filled with the smallest number they have equal weights, in the model and in the composite."""

    def filled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(-1, -2) * 0.3).masked_fill(m > 0, torch.finfo(torch.float32).min)
        return scores.softmax(-1) @ v

    mask = torch.zeros(3, 5)
    mask[1] = 1
    module, tensors = Calling(filled), (*(torch.randn(2, 4, n, 8) for n in (3, 5, 5)), mask)
    program = convert(export(module, tensors))
    assert attentions(program) == 1
    assert_equal(program, module, tensors, 1e-4)


# ---- near misses ---------------------------------------------------------------------------------

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def soft_cap(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (torch.tanh(q @ k.mT * 0.5 / 30.0) * 30.0).softmax(-1) @ v


def other_axis(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT * 0.5).softmax(-2) @ v


def key_not_transposed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k * 0.5).softmax(-1) @ v


def mask_before_scale(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return ((q @ k.mT + v[0, 0]) * 0.5).softmax(-1) @ v


def scores_returned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    scores = q @ k.mT
    return (scores * 0.5).softmax(-1) @ v, scores


def weights_returned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    weights = (q @ k.mT * 0.5).softmax(-1)
    return weights @ v, weights.mean(1)


def scale_is_a_tensor(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT * v.mean()).softmax(-1) @ v


def scale_of_each_head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT * torch.tensor([0.5, 0.6, 0.7, 0.8])[:, None, None]).softmax(-1) @ v


def weights_scaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return ((q @ k.mT * 0.5).softmax(-1) * 0.9) @ v


def sinks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = torch.cat([q @ k.mT * 0.5, v[..., :1]], -1)
    return scores.softmax(-1)[..., :-1] @ v


def small_fill(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT * 0.5).masked_fill(v > 0, -3.0).softmax(-1) @ v


def broadcasting_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q[:, :1] @ k[:, :1].mT * 0.5 + v).softmax(-1) @ v


def weights_transposed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT * 0.5).softmax(-1).mT @ v


def clamped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT * 0.5).clamp(-1, 1).softmax(-1) @ v


NEAR_MISSES = [
    soft_cap, other_axis, key_not_transposed, mask_before_scale, scores_returned, weights_returned, scale_is_a_tensor,
    scale_of_each_head, weights_scaled, sinks, small_fill, broadcasting_mask, weights_transposed, clamped,
]  # fmt: skip


def _square() -> Tensors:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(4, 4, 4, 4, generator=generator) for _ in range(3))
    return q, k, v


@pytest.mark.parametrize("function", NEAR_MISSES)
def test_what_is_no_attention_stays(function: Callable[..., Any]) -> None:
    module = Calling(function)
    program = convert(export(module, _square()))
    assert attentions(program) == 0
    assert_equal(program, module, _square(), 1e-4)


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (0, 3, 1, 2), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0)])
def test_any_order_of_the_key_is_taken_into_account(order: tuple[int, ...]) -> None:
    """All sizes are equal, so that nothing but the numbers tells one permutation from another."""
    module = Calling(lambda q, k, v: (q @ k.permute(order) * 0.5).softmax(-1) @ v)
    program = convert(export(module, _square()))
    assert attentions(program) == 1
    assert_equal(program, module, _square(), 1e-4)


def test_tiled_heads_are_no_groups() -> None:
    """`repeat` gives heads 0 1 0 1, groups of queries want 0 0 1 1."""

    def tiled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        return (q @ k.mT * 0.5).softmax(-1) @ v

    module, tensors = Calling(tiled), (torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8))
    program = convert(export(module, tensors))
    assert input_types(program)[1] == "tensor<2x4x5x8xf32>"
    assert_equal(program, module, tensors, 1e-4)


def test_heads_without_width_stay() -> None:
    """The default scale, 1 / sqrt(width), does not exist."""
    module = Calling(lambda q, k, v: (q @ k.mT).softmax(-1) @ v)
    tensors = (torch.randn(1, 2, 3, 0), torch.randn(1, 2, 5, 0), torch.randn(1, 2, 5, 4))
    program = convert(export(module, tensors))
    assert attentions(program) == 0
    assert_equal(program, module, tensors, 1e-4)


# ---- real models ---------------------------------------------------------------------------------


def t5_encoder(attention: str) -> zoo.Example:
    example = zoo.t5_encoder()
    example.model.model.set_attn_implementation(attention)
    return example


def vit(attention: str) -> zoo.Example:
    """torchvision's, which has no other form than `nn.MultiheadAttention`."""
    return zoo.vit()


MODELS: dict[str, tuple[Callable[[str], zoo.Example], int]] = {
    "bert": (zoo.bert, 3),
    "t5_encoder": (t5_encoder, 3),
    "vit": (vit, 3),
}
"""Builder and number of attentions, of models that `tests/networks/test_forms.py` has in its slow part only."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_same_composites_in_every_form(name: str) -> None:
    build, count = MODELS[name]
    forms = []
    for attention, default_table in (("sdpa", False), ("sdpa", True), ("eager", False)):
        torch.manual_seed(0)
        example = build(attention)
        program = convert(export(example.model, example.args, default_table=default_table))
        assert_equal(program, example.model, example.args, 1e-4)
        forms.append(program.composites)
    assert forms == [forms[0]] * 3
    assert forms[0]["scaled_dot_product_attention"] == count


@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention_of_pytorch_with_weights(batch_first: bool) -> None:
    """The weights are computed and dropped; the scale is at the query, batch and heads are one axis."""
    layer = nn.MultiheadAttention(16, 4, batch_first=batch_first).eval()
    module = Calling(lambda x, m: layer(x, x, x, attn_mask=m)[0])
    tensors = (torch.randn(2, 5, 16), torch.zeros(5, 5) if batch_first else torch.zeros(2, 2))
    program = convert(export(module, tensors))
    assert attentions(program) == 1
    assert_equal(program, module, tensors, 1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_llama_passes_keys_and_values_with_their_own_heads(attention: str) -> None:
    example = zoo.llama(layers=1, attention=attention)
    types = input_types(convert(export(example.model, example.args)))
    assert types[:3] == ["tensor<1x4x12x16xf32>", "tensor<1x2x12x16xf32>", "tensor<1x2x12x16xf32>"]

"""float16 and bfloat16: composites of which PyTorch computes parts in float32, and how near their numbers are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from patcomp.emit.native import Native
from tests.catalog.attention_views import bloom_with_bias_of_columns, tensors
from tests.catalog.recovering import convert
from tests.catalog.rotations import rotate_half, wide_tables

each_half = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


# ---- scores by baddbmm, which PyTorch takes apart in float32 -----------------------------------------


def with_mask_of_type(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The softmax in float32, as transformers has it."""
    scores = torch.baddbmm(
        bias.flatten(0, 1)[:, :1], q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), beta=1.0, alpha=q.shape[-1] ** -0.5
    ).view(*q.shape[:-1], k.shape[-2])
    mask = torch.full(scores.shape[-2:], torch.finfo(q.dtype).min, dtype=q.dtype).triu(1)
    weights = (scores + mask).softmax(-1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(weights.flatten(0, 1), v.flatten(0, 1)).view(*q.shape[:-1], v.shape[-1])


@each_half
@pytest.mark.parametrize("default_table", [False, True])
@pytest.mark.parametrize("function", [with_mask_of_type, bloom_with_bias_of_columns])
def test_scores_by_baddbmm_are_attention(function: Any, default_table: bool, dtype: torch.dtype) -> None:
    program = convert(function, *(x.to(dtype) for x in tensors()), default_table=default_table)
    assert program.composites == {"scaled_dot_product_attention": 1}


@each_half
def test_scores_that_are_large_before_they_are_scaled(dtype: torch.dtype, native: Native) -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = torch.baddbmm(torch.zeros(4, 1, 3, dtype=dtype), q, k.transpose(1, 2), beta=1.0, alpha=2.0**-12)
        return scores.view(2, 2, 3, 3).softmax(-1) @ v

    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(*shape, generator=generator) for shape in ((4, 3, 8), (4, 3, 8), (2, 2, 3, 8)))
    program = convert(function, *(x.to(dtype) for x in (200 * q, 100 * k, v)), native=native)
    assert "softmax" in program.text()


@each_half
def test_products_in_float32_are_attention(dtype: torch.dtype, native: Native) -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q.float() @ k.mT.float()) * q.shape[-1] ** -0.5
        return scores.softmax(-1).to(q.dtype) @ v

    program = convert(function, *(x.to(dtype) for x in tensors()[:3]), native=native)
    assert program.composites == {"scaled_dot_product_attention": 1}


@each_half
def test_baddbmm_elsewhere_stays_in_float32(dtype: torch.dtype) -> None:
    def function(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(bias, q, k, alpha=2.0**-12).view(2, 2, 3, 3)

    inputs = (300 * torch.rand(4, 3, 8), 300 * torch.rand(4, 8, 3), torch.rand(4, 3, 3))
    program = convert(function, *(x.to(dtype) for x in inputs))
    assert "tensor<4x3x3xf32>" in program.text()


# ---- the composite -----------------------------------------------------------------------------------


@each_half
def test_attention_of_large_scores_is_as_near_as_that_of_pytorch(dtype: torch.dtype, native: Native) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = ((5 * torch.randn(1, 2, 4, 8, generator=generator)).to(dtype) for _ in range(3))
    program = convert(scaled_dot_product_attention, q, k, v, native=native)
    given = next(iter(program.run(dict(zip(program.input_names(), (q, k, v), strict=True))).values()))
    exact = scaled_dot_product_attention(*(x.double() for x in (q, k, v)))
    eager = scaled_dot_product_attention(q, k, v)
    assert (given.double() - exact).abs().max() <= 1.5 * (eager.double() - exact).abs().max()


@each_half
@pytest.mark.parametrize("swapped", [False, True])
def test_rope_with_tables_in_float32(dtype: torch.dtype, swapped: bool, native: Native) -> None:
    def olmo2(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cos, sin = wide_tables(x.float(), positions, 8)
        total = rotate_half(x) * sin + x * cos if swapped else x * cos + rotate_half(x) * sin
        return total.to(x.dtype)

    x, positions = torch.randn(2, 3, 5, 8).to(dtype), torch.arange(5).expand(2, 5).clone()
    assert convert(olmo2, x, positions, native=native).composites == {"rope": 1}


@each_half
def test_halves_rounded_to_another_type_are_no_rope(dtype: torch.dtype) -> None:
    other = torch.bfloat16 if dtype == torch.float16 else torch.float16

    def function(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cos, sin = wide_tables(x.float(), positions, 8)
        return x * cos + rotate_half(x).to(other) * sin

    x, positions = torch.randn(2, 3, 5, 8).to(dtype), torch.arange(5).expand(2, 5).clone()
    assert "rope" not in convert(function, x, positions).composites

"""Composites are recovered from models that write them out, and only where they compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import patcomp
from patcomp import TorchConverter
from patcomp.frontend_torch.fx.dtypes import element_of
from patcomp.ir.types import element_name
from patcomp.patterns import Rule
from patcomp.program.program import AIProgram
from patcomp_lab.proof.near_misses import self_tests
from patterns_catalog import default_rules
from tests.catalog.cases import TOLERANCES
from tests.catalog.recovering import convert
from tests.helpers.joined import noted
from tests.networks import zoo


@pytest.mark.parametrize("rule", default_rules().drawn(), ids=lambda rule: rule.name)
def test_declaration_implies(rule: Rule) -> None:
    for self_test in self_tests(rule):
        with noted(f"the self-test {self_test}"):
            self_test.run()


def rms_norms(program: AIProgram) -> int:
    """How many calls of the composite a program makes."""
    return program.composites.get("rms_norm", 0)


def _tensors(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, 8, generator=generator).to(dtype), torch.rand(8, generator=generator).to(dtype) + 0.5


def _mean_square(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    return x.pow(2).mean(dim, keepdim=True)


def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(_mean_square(x) + 1e-6) * w


def weight_first(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return w * (torch.rsqrt(1e-6 + _mean_square(x)) * x)


def square_by_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return w * (x * torch.rsqrt((x * x).mean(2, keepdim=True) + 1e-6))


def cast_like_llama(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    wide = x.to(torch.float32)
    return w * (wide * torch.rsqrt(_mean_square(wide) + 1e-6)).to(x.dtype)


def cast_like_t5(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    variance = _mean_square(x.to(torch.float32))
    return w * (x * torch.rsqrt(variance + 1e-6)).to(w.dtype)


@pytest.mark.parametrize("function", [plain, weight_first, square_by_product, cast_like_llama, cast_like_t5])
def test_rms_norm_of_float32(function: Callable[..., Any]) -> None:
    assert rms_norms(convert(function, *_tensors())) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [cast_like_llama, cast_like_t5])
def test_rms_norm_of_half_precision(function: Callable[..., Any], dtype: torch.dtype) -> None:
    program = convert(function, *_tensors(dtype))
    assert rms_norms(program) == 1
    element = element_name(element_of(dtype))
    assert _composite_arguments(program) == [f"tensor<2x3x8x{element}>", f"tensor<8x{element}>"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rms_norm_of_pytorch(dtype: torch.dtype) -> None:
    """`nn.RMSNorm`, which export takes apart, and which rounds once, after the weight."""
    x, w = _tensors(dtype)
    assert rms_norms(convert(lambda x, w: nn.functional.rms_norm(x, (8,), w, 1e-6), x, w)) == 1


def _composite_arguments(program: AIProgram) -> list[str]:
    (graph,) = [graph for graph in program.module.graphs if "priv" in graph.properties]
    return [str(value.type) for value in graph.regions[0].block.args]


def test_rms_norm_keeps_epsilon_and_axis() -> None:
    text = convert(plain, *_tensors()).text()
    assert "{axes = -1 : si64, eps = 1.000000e-06 : f32, version = 1 : si64}" in text


def other_axis(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    square = torch.nn.functional.pad(x, (0, 0, 0, 5))  # 2x8x8: the weight fits both axes
    return square * torch.rsqrt(_mean_square(square, 1) + 1e-6) * w


def two_axes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean((-2, -1), keepdim=True) + 1e-6) * w


def no_keepdim(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    square = x.reshape(6, 8)[:1].expand(8, 8).contiguous()  # 8x8: a mean without keepdim broadcasts along rows
    return square * torch.rsqrt(square.pow(2).mean(-1) + 1e-6) * w


def epsilon_outside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * (torch.rsqrt(_mean_square(x)) + 1e-6) * w


def cube(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.abs().pow(3).mean(-1, keepdim=True) + 1e-6) * w


def other_squared(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(_mean_square(x + 1) + 1e-6) * w


def interior_used(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = torch.rsqrt(_mean_square(x) + 1e-6)
    return x * scale * w, scale


def epsilon_of_each_row(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(_mean_square(x) + torch.tensor([[1e-6], [1e-5], [1e-4]])) * w


def sum_instead_of_mean(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6) * w


NEAR_MISSES = [
    other_axis, two_axes, no_keepdim, epsilon_outside, cube, other_squared, interior_used, epsilon_of_each_row,
    sum_instead_of_mean,
]  # fmt: skip


@pytest.mark.parametrize("function", NEAR_MISSES)
def test_what_is_no_rms_norm_stays(function: Callable[..., Any]) -> None:
    assert rms_norms(convert(function, *_tensors())) == 0


def test_half_precision_throughout_stays() -> None:
    """The composite computes in float32, where this overflows: 300 ** 2 is infinite in float16."""
    x, w = _tensors(torch.float16)
    program = convert(plain, x.clamp(-0.5, 0.5) * 600, w)
    assert rms_norms(program) == 0


def test_float32_weight_of_half_precision_stays_outside() -> None:
    """The product is float32, and the composite's result is not."""
    x, w = _tensors(torch.float16)
    program = convert(cast_like_llama, x, w.float())
    assert rms_norms(program) == 1
    assert _composite_arguments(program) == ["tensor<2x3x8xf16>", "tensor<8xf16>"]


def test_rounding_before_the_norm_stays_outside() -> None:
    """A cast down and up again rounds, which the composite would not: the rounded value is its input."""

    def rounded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        narrow = x.to(torch.bfloat16).to(torch.float32)
        return (narrow * torch.rsqrt(_mean_square(narrow) + 1e-6)).to(torch.bfloat16) * w.to(torch.bfloat16)

    program = convert(rounded, *_tensors())
    assert rms_norms(program) == 1
    assert _composite_arguments(program) == ["tensor<2x3x8xbf16>", "tensor<8xbf16>"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_llama_of_half_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    example = zoo.llama(layers=2)
    model = example.model.to(dtype)
    exported = torch.export.export(model, example.args).run_decompositions(patcomp.get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert rms_norms(program) == 5, "two in each layer and one at the end"
    with torch.no_grad():
        expected = model(*example.args).float()
    (given,) = program.run(dict(zip(program.input_names(), example.args, strict=True))).values()
    error = float((given.float() - expected).abs().max())
    assert error <= 8 * TOLERANCES[dtype] * float(expected.abs().max())

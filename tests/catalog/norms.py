"""Norms as models write them, and how their conversions are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

import patcomp
from patcomp import TorchConverter
from patcomp.evaluate.element_types import to_tensor
from patcomp.patterns import RuleSet, collect
from patcomp.program.program import AIProgram
from patterns_catalog import default_rules
from patterns_catalog.recover import norm_recovery
from tests.catalog.cases import TOLERANCES
from tests.catalog.recovering import Calling

RECOVERY = tuple(rule.name for rule in collect(norm_recovery))


@cache
def rules_without_recovery() -> RuleSet:
    """The catalog without the rules that recover norms."""
    return default_rules().without(*RECOVERY)


def export(module: nn.Module, tensors: tuple[torch.Tensor, ...], *, default: bool = False) -> ExportedProgram:
    """The decomposed program of a module, with patcomp's table or PyTorch's default one."""
    exported = torch.export.export(module.eval(), tensors)
    return exported.run_decompositions() if default else exported.run_decompositions(patcomp.get_decomp_table())


def convert(exported: ExportedProgram, *, recover: bool = True) -> AIProgram:
    converter = TorchConverter().add_exported_program(exported)
    if not recover:
        converter.rules = rules_without_recovery()
    return converter.to_coreai()


def assert_equal(outputs: Any, expected: torch.Tensor, dtype: torch.dtype, factor: float = 1.0) -> None:
    (given,) = outputs.values()
    given = to_tensor(given)
    assert given.dtype == expected.dtype
    tolerance = factor * TOLERANCES.get(dtype, 2e-5)
    torch.testing.assert_close(given.float(), expected.float(), rtol=tolerance, atol=tolerance)


def check(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...], composites: dict[str, int]) -> AIProgram:
    """The composites of a function's program, which agrees with eager with and without them."""
    module = Calling(function)
    exported = export(module, tensors)
    program = convert(exported)
    assert program.composites == composites
    with torch.no_grad():
        expected = module(*tensors)
    inputs = dict(zip(program.input_names(), tensors, strict=True))
    dtype = tensors[0].dtype
    # half precision is rounded at other places without the composite, up to three times
    assert_equal(program.run(inputs), expected, dtype, 2.0)
    written_out = convert(exported, recover=False)
    assert written_out.composites == {}
    assert_equal(written_out.run(inputs), expected, dtype, 2.0)
    return program


def arguments(program: AIProgram) -> list[str]:
    """The operand types of the only composite."""
    (graph,) = [graph for graph in program.module.graphs if "composite_decl" in graph.attributes | graph.properties]
    return [str(value.type) for value in graph.regions[0].block.args]


def uniform(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Numbers whose mean is not 0."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 3 - 1).to(dtype)


@dataclass(frozen=True)
class Form:
    """How a norm is written."""

    variance: str = "var"
    root: str = "rsqrt"
    rounding: str = "end"
    """Whether half precision is cast back before the weight or at the end."""
    weights: str = "both"
    weight_first: bool = False
    dtype: torch.dtype = torch.float32
    eps: float = 1e-5

    def over_root(self, x: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        square = square + self.eps
        match self.root:
            case "rsqrt":
                return torch.rsqrt(square) * x if self.weight_first else x * torch.rsqrt(square)
            case "divide":
                return x / torch.sqrt(square)
            case "power":
                return x * torch.pow(square, -0.5)
            case "half power":
                return x / square**0.5
            case _:
                return x * (1.0 / torch.sqrt(square))

    def standardized(self, x: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
        match self.variance:
            case "var":
                centered = x - x.mean(axes, keepdim=True)
                variance = x.var(axes, unbiased=False, keepdim=True)
            case "var_mean":
                variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
                centered = x - mean
            case "product":
                centered = x - x.mean(axes, keepdim=True)
                variance = (centered * centered).mean(axes, keepdim=True)
            case "power":
                mean = x.mean(axes, keepdim=True)
                variance = (x - mean).pow(2).mean(axes, keepdim=True)
                centered = x - mean
            case _:
                variance = (x - x.mean(axes, keepdim=True)).square().mean(axes, keepdim=True)
                centered = x - x.mean(axes, keepdim=True)
        return self.over_root(centered, variance)

    def affine(self, normal: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if self.rounding == "before":
            normal = normal.to(self.dtype)
        else:
            w, b = w.to(normal.dtype), b.to(normal.dtype)
        if self.weights != "none":
            normal = w * normal if self.weight_first else normal * w
        if self.weights == "both":
            normal = normal + b
        return normal.to(self.dtype)


def tensors(form: Form, shape: tuple[int, ...], size: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return uniform(shape, form.dtype), uniform(size, form.dtype, 1) + 1, uniform(size, form.dtype, 2)

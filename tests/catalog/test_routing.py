"""The choice of experts for the GPU: one softmax of the chosen scores, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram, TorchConverter


class Program(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def converted(function: Callable[[Tensor], Any], x: Tensor) -> AIProgram:
    exported = torch.export.export(Program(function), (x,))
    return TorchConverter().add_exported_program(exported).to_coreai(target="gpu")


def routed(x: Tensor) -> tuple[Tensor, Tensor]:
    weights, experts = torch.softmax(x, -1, dtype=torch.float32).topk(2, -1)
    return weights / weights.sum(-1, keepdim=True), experts


def shapes(program: AIProgram) -> list[str]:
    """The result types of every softmax."""
    lines = [line for line in str(program).splitlines() if "coreai.softmax" in line]
    return [line.rsplit("tensor<", 1)[1].removesuffix(">") for line in lines]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_softmax_is_of_the_chosen(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (5 * torch.randn(50, 8)).to(dtype)
    program = converted(routed, x)
    assert shapes(program) == ["50x2xf32"]
    assert "divide" not in str(program)
    program.verify_against(Program(routed), (x,), backends=["evaluator"]).check()


def test_scores_that_are_nan_or_infinite() -> None:
    x = torch.randn(4, 8)
    x[1, 5], x[2, 3], x[3, 1] = torch.nan, torch.inf, -torch.inf
    weights, _ = routed(x)
    made = torch.as_tensor(next(iter(converted(routed, x).run({"x": x}).values())))
    torch.testing.assert_close(made, weights, equal_nan=True)


def other_sum(x: Tensor) -> Tensor:
    weights, _ = torch.softmax(x, -1).topk(2, -1)
    return weights / weights.sum(0, keepdim=True)


def not_renormalized(x: Tensor) -> Tensor:
    return torch.softmax(x, -1).topk(2, -1)[0]


def also_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    probabilities = torch.softmax(x, -1)
    weights, _ = probabilities.topk(2, -1)
    return weights / weights.sum(-1, keepdim=True), probabilities


def other_axis(x: Tensor) -> Tensor:
    weights, _ = torch.softmax(x, 0).topk(2, -1)
    return weights / weights.sum(-1, keepdim=True)


def missing_numbers(x: Tensor) -> Tensor:
    return torch.softmax(x, -1).isnan()


@pytest.mark.parametrize("function", [other_sum, not_renormalized, also_returned, other_axis, missing_numbers])
def test_other_choices_stay(function: Callable[[Tensor], Any]) -> None:
    x = torch.randn(6, 8)
    if function is missing_numbers:
        x[1, 2] = torch.nan
    program = converted(function, x)
    assert shapes(program) == ["6x8xf32"]
    program.verify_against(Program(function), (x,), backends=["evaluator"]).check()

"""The toolchain dies when it folds GELU of numbers that it computes from constants alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from patcomp import TorchConverter

WEIGHT = torch.linspace(-4, 4, 700).reshape(350, 2)
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a weight": lambda x: x + functional.gelu(WEIGHT),
    "tanh": lambda x: x + functional.gelu(WEIGHT, approximate="tanh"),
    "sigmoid": lambda x: x + WEIGHT.exp() * torch.sigmoid(1.702 * WEIGHT.exp()),
    "a call": lambda x: x + functional.gelu(functional.layer_norm(WEIGHT, (2,), WEIGHT[0], eps=0.25)),
}


class Model(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.function = FUNCTIONS[name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gelu_of_constants(name: str) -> None:
    pytest.importorskip("coreai")
    model, x = Model(name), torch.ones(350, 2)
    program = TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()
    assert "coreai.gelu" not in str(program)
    program.verify_against(model, (x,)).check()


def test_gelu_of_an_input_stays() -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.GELU())
    program = TorchConverter().add_exported_program(torch.export.export(model, (torch.ones(2, 4),))).to_coreai()
    assert "coreai.gelu" in str(program)

"""The toolchain dies of some ops, or computes them wrongly, where it folds numbers computed from constants alone."""

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

SPECIAL = torch.tensor([0.5, 1.0, 1.0000001, 0.99999994, -0.0, 0.0, 1e-8, 2.5, torch.inf, -torch.inf, torch.nan, -3.0])
"""Numbers that are equal up to rounding, or that no other number is equal to."""
LEFT, RIGHT = SPECIAL.repeat_interleave(12).repeat(3), SPECIAL.repeat(12).repeat(3)
ROWS = torch.cat([LEFT, SPECIAL[:8].repeat(12)]).reshape(-1, 2)


def _selected(function: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.where(x, function(LEFT, RIGHT), 0)


PAIRS = (
    torch.eq, torch.ne, torch.le, torch.lt, torch.ge, torch.gt, torch.maximum, torch.minimum, torch.fmax, torch.fmin,
    torch.hypot, torch.atan2,
)  # fmt: skip
EXACT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{function.__name__: _selected(function) for function in PAIRS},
    "eq of float16": lambda x: x & (LEFT.half() == RIGHT.half()),
    "maximum of float16": lambda x: torch.where(x, torch.maximum(LEFT.half(), RIGHT.half()), 0.0),
    "isinf": lambda x: x & LEFT.abs().isinf(),
    "relu": lambda x: torch.where(x, LEFT.relu(), 0.0),
    "expm1": lambda x: torch.where(x, (40 * LEFT).expm1(), 0.0),
    "amax": lambda x: torch.where(x[: len(ROWS)], ROWS.amax(-1), 0.0),
    "amin": lambda x: torch.where(x[: len(ROWS)], ROWS.amin(-1), 0.0),
    "a call": lambda x: x & (functional.layer_norm(LEFT.reshape(-1, 2), (2,), eps=0.25).flatten() == RIGHT),
}


class Model(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gelu_of_constants(name: str) -> None:
    pytest.importorskip("coreai")
    model, x = Model(FUNCTIONS[name]), torch.ones(350, 2)
    program = TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()
    assert "coreai.gelu" not in str(program)
    program.verify_against(model, (x,)).check()


@pytest.mark.parametrize("name", EXACT)
def test_comparisons_of_constants(name: str) -> None:
    pytest.importorskip("coreai")
    model, x = Model(EXACT[name]), torch.ones(len(LEFT), dtype=torch.bool)
    program = TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()
    program.verify_against(model, (x,)).check()


def test_gelu_of_an_input_stays() -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.GELU())
    program = TorchConverter().add_exported_program(torch.export.export(model, (torch.ones(2, 4),))).to_coreai()
    assert "coreai.gelu" in str(program)

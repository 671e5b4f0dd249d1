"""Models that keep tensors between runs in plain attributes, models that are TorchScript, and Python's `assert`."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import patcomp
from patcomp.errors import ConversionWarning, ExportError

pytestmark = [
    pytest.mark.filterwarnings("ignore:The tensor attribute:UserWarning"),  # PyTorch about the same attributes
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


class Within(nn.Module):
    """A model inside of another."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Any:
        return self.part(x)


class Summing(nn.Module):
    """The sum of all inputs until now."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(3)
        self.totals = [torch.zeros(3)]

    def forward(self, x: Tensor) -> Tensor:
        self.total = self.total + x
        return self.total * 2


class InAList(Summing):
    def forward(self, x: Tensor) -> Tensor:
        self.totals[0] = self.totals[0] + x
        return self.totals[0] * 2


class InPlace(Summing):
    def forward(self, x: Tensor) -> Tensor:
        self.total += x
        return self.total * 2


@pytest.mark.parametrize(
    ("model", "name"),
    [(Summing(), "total"), (InAList(), "totals[0]"), (InPlace(), "total"), (Within(Summing()), "part.total")],
)
def test_state_that_is_no_buffer_is_refused_by_name(model: nn.Module, name: str) -> None:
    part = getattr(model, "part", model)
    before = part.total, *part.totals
    with pytest.raises(ExportError, match=rf"keeps {re.escape(name)} from one run to the next.*\n.*register_buffer"):
        patcomp.export(model, (torch.ones(3),))
    assert all(one is other and not one.any() for one, other in zip((part.total, *part.totals), before, strict=True))


def test_state_in_buffers_and_tables_of_constants_are_exported() -> None:
    class Tables(nn.Module):
        """Moves a table, as many models do, keeps what nobody reads, and has a state that is a buffer."""

        def __init__(self) -> None:
            super().__init__()
            self.table = torch.tensor([1.0, float("nan"), 3.0])
            self.last = torch.zeros(3)
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.table = self.table.to(x.device) * 1
            self.total = self.total + x
            self.last = x * 2
            return self.last + self.table + self.total

    x = torch.ones(3)
    program = patcomp.export(Tables(), (x,)).module()
    for total in (1.0, 2.0):
        expected = torch.tensor([1.0, float("nan"), 3.0]) + 2 + total
        torch.testing.assert_close(program(x), expected, equal_nan=True)


def test_torchscript_is_named() -> None:
    model = Within(nn.Sequential(torch.jit.script(nn.Linear(3, 3)), nn.ReLU()))
    with pytest.raises(ExportError, match=r"the model is TorchScript.*in module part.0\)\n.*was scripted or traced"):
        patcomp.export(model, (torch.ones(2, 3),))


def test_an_assertion_is_no_decision() -> None:
    class Checking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            padded = nn.functional.pad(x, (1, 1))
            assert (padded[..., 1:-1] == x).all()
            return padded * 2

    x = torch.ones(2, 3)
    with (
        pytest.warns(ConversionWarning, match="exported by torch.export.draft_export"),
        pytest.warns(ConversionWarning, match=r"`assert .padded.* the program assumes True"),
    ):
        program = patcomp.export(Checking(), (x,))
    torch.testing.assert_close(program.module()(x), Checking()(x))

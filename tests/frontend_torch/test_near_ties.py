"""Choices between values that differ by rounding: no rule is blamed for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.authoring import Coreai, OpView
from patcomp.ir.value import Value
from patcomp.patterns import RuleSet, lowering
from patcomp.program import running, verifying


class Called(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@lowering("aten.mul.Tensor", name="inexact mul")
def inexact_mul(op: OpView, c: Coreai) -> Value:
    return c.broadcasting_mul(c.broadcasting_mul(op["self"], 1 + 1e-6 * NUDGE), op["other"])


NUDGE = torch.tensor([[1.0, -1.0, 0.0, 0.0]])


class Chooses(nn.Module):
    """A module with a near tie between the first two elements, on which an operator decides."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.scale, self.choice = Called(lambda x: x * NUDGE.abs().add(1.0)), Called(function)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.choice(self.scale(x))


CHOICES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "topk": lambda x: torch.topk(x, 2, dim=-1).indices,
    "argmax": lambda x: x.argmax(-1),
    "argmax of all": lambda x: x.argmax(),
    "sort": lambda x: torch.sort(x, dim=-1, descending=True).indices,
    "comparison": lambda x: x[:, :1] < x[:, 1:2],
    "comparison with a number": lambda x: x > 2.0000005,
    "floor": lambda x: torch.floor(x - 2.0000005 + 3.0),
}
TIED = torch.tensor([[1.0, 1.0000005, 0.25, -1.0]])


@pytest.mark.parametrize("name", CHOICES)
def test_a_near_tie_is_no_wrong_rule(name: str) -> None:
    """A rule with another rounding is not blamed for the choice that it turns."""
    model = Chooses(CHOICES[name])
    exported = torch.export.export(model, (TIED,))
    program = TorchConverter(catalog=[RuleSet([inexact_mul])]).add_exported_program(exported).to_coreai()
    verification = program.verify_against(model, (TIED,), backends=["evaluator"], by="module")
    departure = verification.departure
    assert not verification
    assert departure is not None
    assert (departure.stage, departure.rule, departure.module) == ("lower", "", "choice")
    assert departure.near_tie is not None
    assert 4e-7 < departure.near_tie < 1e-6
    assert "the numbers first depart in a near tie: module choice, node %" in str(departure)
    assert f"decides between values that differ by {departure.near_tie:.3g}, and the tolerance" in str(departure)


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_between_other_values_is_a_wrong_rule(name: str) -> None:
    """The rule turns the sign, so that choices turn whose values are far apart."""

    @lowering("aten.neg", name="wrong neg")
    def wrong_neg(op: OpView, c: Coreai) -> Value:
        return op["self"]

    model, x = nn.Sequential(Called(torch.neg), Called(CHOICES[name])), torch.tensor([[-3.0, -1.0, 0.25, 4.0]])
    converter = TorchConverter(catalog=[RuleSet([wrong_neg])])
    program = converter.add_exported_program(torch.export.export(model, (x,))).to_coreai()
    departure = program.verify_against(model, (x,), backends=["evaluator"], by="module").departure
    assert departure is not None
    assert (departure.rule, departure.near_tie) == ("wrong neg", None)


@lowering("aten.argmax", name="wrong argmax")
def wrong_argmax(op: OpView, c: Coreai) -> Value:
    op.ignore("self", "dim", "keepdim", because="this rule is wrong")
    return c.constant(torch.tensor([2], dtype=torch.int32).numpy())


def test_a_rule_that_chooses_wrongly_is_found() -> None:
    model = Chooses(CHOICES["argmax"])
    converter = TorchConverter(catalog=[RuleSet([wrong_argmax])])
    program = converter.add_exported_program(torch.export.export(model, (TIED,))).to_coreai()
    departure = program.verify_against(model, (TIED,), backends=["evaluator"], by="module").departure
    assert departure is not None
    assert (departure.rule, departure.near_tie) == ("wrong argmax", None)


@pytest.mark.parametrize(("second", "is_tie"), [(2.0, True), (1.75, False)])
def test_a_choice_between_equal_numbers_is_a_tie_without_a_tolerance(second: float, is_tie: bool) -> None:
    model, x = Called(CHOICES["argmax"]), torch.tensor([[1.0, 2.0, second]])
    converter = TorchConverter(catalog=[RuleSet([wrong_argmax])])
    program = converter.add_exported_program(torch.export.export(model, (x,))).to_coreai()
    found = program.verify_against(model, (x,), backends=["evaluator"], by="module", tolerance=0.0).departure
    assert found is not None
    assert found.near_tie == (0.0 if is_tie else None)


def test_a_near_tie_on_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime is played by an evaluator of a program with another rounding."""
    model, run = Chooses(CHOICES["topk"]), running.run_entry_point
    exported = torch.export.export(model, (TIED,))
    program = TorchConverter().add_exported_program(exported).to_coreai()

    def run_on(
        program: AIProgram, values: Any, entrypoint: str, state: Any, backend: str, **options: Any
    ) -> dict[str, Any]:
        moved = TIED * (1 + 1e-6 * NUDGE) if backend == "runtime" else TIED
        return run(program, dict.fromkeys(values, moved), entrypoint, state, "evaluator")

    monkeypatch.setattr(verifying, "run_entry_point", run_on)
    departure = program.verify_against(model, (TIED,), backends=["evaluator", "runtime"], by="module").departure
    assert departure is not None
    assert (departure.stage, departure.module) == ("runtime", "choice")
    assert departure.near_tie == pytest.approx(9.5e-7, rel=0.1)

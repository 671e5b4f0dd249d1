"""Rules for ops that devices compute wrongly: right also where the op is wrong, as a device's is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from patcomp import AIProgram, TorchConverter
from patcomp.evaluate.registry import EvaluatedOp, implementations
from patcomp.targets import GPU, Target
from tests.frontend_torch.models import Function

ROUNDING = Target("rounding", rules=("halves to even numbers",))
NUMBERS = torch.tensor(
    [0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.0, -0.0, 0.25, -0.25, 0.49999997, 4194303.5, 8388608.0, 1e30, -1e30, 3.7,
     float("inf"), -float("inf"), float("nan")]
)  # fmt: skip


def _away_from_zero(op: EvaluatedOp, x: Tensor) -> Tensor:
    whole = x.abs().trunc()
    return op.result(torch.copysign(whole + ((x.abs() - whole) >= 0.5), x))


def _converted(function: object, *inputs: Tensor, target: Target) -> AIProgram:
    return (
        TorchConverter().add_exported_program(torch.export.export(Function(function), inputs)).to_coreai(target=target)
    )


def _same(made: Tensor, wanted: Tensor) -> bool:
    """Equal bits, but for those of NaN."""
    return torch.equal(made.isnan(), wanted.isnan()) and torch.equal(
        made.nan_to_num(7.0).view(torch.int32), wanted.nan_to_num(7.0).view(torch.int32)
    )


@pytest.mark.parametrize("defective", [False, True])
def test_halves_become_even(defective: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _converted(torch.round, NUMBERS, target=ROUNDING)
    if defective:
        monkeypatch.setitem(implementations(), "coreai.round", _away_from_zero)
    assert _same(torch.as_tensor(program.run(NUMBERS)), torch.round(NUMBERS))


@given(st.lists(st.integers(-(2**24), 2**24), min_size=8, max_size=8))
def test_halves_of_any_size(halves: list[int]) -> None:
    x = torch.tensor(halves).float() / 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(implementations(), "coreai.round", _away_from_zero)
        assert _same(torch.as_tensor(ROUNDED.run(x)), torch.round(x))


ROUNDED = _converted(torch.round, torch.ones(8), target=ROUNDING)


@pytest.mark.parametrize("function", [torch.floor, torch.ceil, torch.trunc, lambda x: torch.round(x) == x])
def test_floors_and_tests_stay(function: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are right for either neighbour of a half, so the rule leaves them as they are."""
    x = NUMBERS[:-3]
    program = _converted(function, x, target=ROUNDING)
    assert program.module.op_count() == _converted(function, x, target=Target("none")).module.op_count()
    monkeypatch.setitem(implementations(), "coreai.round", _away_from_zero)
    assert torch.equal(torch.as_tensor(program.run(x)), function(x))  # type: ignore[operator]


def test_what_a_user_does_with_a_rounded_number_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = torch.round(x)
        return x - y, y > x, torch.where(y == x, y, y + 1), 2 * x - y

    x = NUMBERS[:-5]
    program = _converted(function, x, target=GPU)
    monkeypatch.setitem(implementations(), "coreai.round", _away_from_zero)
    for made, wanted in zip(program.run(x), function(x), strict=True):
        assert torch.equal(torch.as_tensor(made), wanted)


@pytest.mark.parametrize("target", ["gpu", "neural_engine"])
def test_no_argmax_is_left(target: str) -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [-1.0, -1.0, -2.0]])
    for function in (lambda x: x.argmax(1), lambda x: x.max(1).indices, lambda x: x.argmin()):
        program = _converted(function, x, target=target)  # type: ignore[arg-type]
        assert "coreai.argmax" not in program.text()
        assert torch.equal(torch.as_tensor(program.run(x)), function(x).to(torch.int32))


def test_argmax_of_an_open_size() -> None:
    x, more = torch.randn(2, 5), torch.randn(2, 9)
    exported = torch.export.export(
        Function(lambda x: x.argmax(1)), (x,), dynamic_shapes=(({1: torch.export.Dim("n", min=2, max=64)},),)
    )
    program = TorchConverter().add_exported_program(exported).to_coreai(target="gpu")
    assert "coreai.argmax" not in program.text()
    for each in (x, more):
        assert torch.equal(torch.as_tensor(program.run(each)), each.argmax(1).to(torch.int32))

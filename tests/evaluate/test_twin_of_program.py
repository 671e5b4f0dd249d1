"""The twin of a program: the evaluator computes in a wider type what the program computes in its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.evaluate.expectation import Expectation
from patcomp.evaluate.twin import twins_of_program


class Everything(nn.Module):
    """Moves, gathers, pads and sorts, so that the twin meets ops that copy bits; and writes a state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("kept", torch.rand(2, 3))
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.kept.mul_(x[:, :3])
        y = torch.cat([torch.sort(self.linear(x)).values, x[index], nn.functional.pad(self.kept, (2, 3))])
        y = torch.where(y > 0, y, y.flip(0) * 3).softmax(-1)
        return y.cumsum(-1), y.gather(1, index[:, None])


INPUTS = {"x": torch.linspace(-1, 2, 16).reshape(2, 8), "index": torch.tensor([1, 0])}


def converted(dtype: torch.dtype) -> tuple[AIProgram, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    model = Everything().to(dtype)
    inputs = {"x": INPUTS["x"].to(dtype), "index": INPUTS["index"]}
    exported = torch.export.export(model, tuple(inputs.values()))
    program = TorchConverter().add_exported_program(exported, ["x", "index"], ["sums", "picked"], ["kept"]).to_coreai()
    return program, {**inputs, "index": inputs["index"].int()}, {"kept": model.kept.clone()}


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.float64)],
)
def test_it_computes_what_the_model_does_in_the_wider_type(dtype: torch.dtype, wide: torch.dtype) -> None:
    program, inputs, states = converted(dtype)
    twins = twins_of_program(program.module, inputs, states, "main")
    model = Everything().to(dtype).double()
    sums, picked = model(inputs["x"].double(), inputs["index"].long())
    assert twins.keys() == {"sums", "picked", "kept"}
    assert {name: twin.value.dtype for name, twin in twins.items()} == {"sums": wide, "picked": wide, "kept": dtype}
    assert {twin.of for twin in twins.values()} == {dtype}
    for name, exact in (("sums", sums), ("picked", picked)):
        torch.testing.assert_close(twins[name].value.double(), exact, rtol=0, atol=10 * torch.finfo(wide).eps)


def test_it_changes_neither_the_program_nor_what_it_is_given() -> None:
    program, inputs, states = converted(torch.float16)
    text, before = str(program), {name: value.clone() for name, value in {**inputs, **states}.items()}
    first = program.run({**inputs}, state={**states})
    twins_of_program(program.module, inputs, states, "main")
    assert str(program) == text
    assert all(torch.equal(value, before[name]) for name, value in {**inputs, **states}.items())
    again = program.run({**inputs}, state={**states})
    assert all(torch.equal(value, again[name]) for name, value in first.items())


@pytest.mark.parametrize("times", [1, 2, 4])
def test_another_backend_may_be_three_times_as_far_from_it(times: int) -> None:
    """The runtime is judged as a program is beside PyTorch: by the evaluator's own distance from the twin."""
    program, inputs, states = converted(torch.float16)
    expectation = Expectation.of_program(program.module, inputs, states, "main")
    twin, exact = expectation.twins["sums"].value, expectation.references["sums"]
    moved = times * max(float((exact - twin).abs().max()), 4 * 2**-10 * float(twin.abs().max()) / 3)

    def run(values: Any, contents: dict[str, Any]) -> dict[str, Any]:
        contents["kept"] = expectation.references["kept"]
        return {**expectation.references, "sums": (twin + 0.99 * moved).half()}

    found = {error.name: error for error in expectation.errors("runtime", run, None)}
    assert found["sums"].passed == (times < 4)
    assert found["picked"].passed
    assert found["kept"].passed

"""What a conversion shows of itself: the stages as a table, the summary, and options that type checkers know."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 32)
        self.norm = nn.LayerNorm(32)
        self.mixed = nn.Parameter(torch.randn(32, 32).half())
        self.register_buffer("count", torch.zeros(()))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1.0)
        x = self.norm(self.table(tokens))
        return x, x.half() @ self.mixed


TOKENS = torch.arange(6).reshape(2, 3)


@pytest.fixture(scope="module")
def program() -> AIProgram:
    rows = torch.export.Dim("rows", min=2, max=8)
    exported = torch.export.export(Net().eval(), (TOKENS,), dynamic_shapes=({0: rows},))
    return TorchConverter().add_exported_program(exported).to_coreai()


def test_stages_print_as_a_table(program: AIProgram) -> None:
    lines = str(program.stages).splitlines()
    assert repr(program.stages) == str(program.stages)
    assert lines[2].split("|")[1].strip() == "stage"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.count("|") == 7][1:]
    assert [row[0] for row in rows] == ["normalize", "recover", "lower", "target", "outline", "state", "optimize"]
    for row, report in zip(rows, program.reports, strict=True):
        assert row[1:5] == [
            str(report.ops_before),
            str(report.ops_after),
            str(len(report.statistics.fired)),
            str(report.statistics.rewrites),
        ]


def test_printing_the_stages_does_not_convert_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = TorchConverter().add_exported_program(torch.export.export(nn.ReLU(), (torch.ones(3),))).to_coreai()
    monkeypatch.setattr("patcomp.program.history.run_pipeline", None)
    assert "normalize" in str(program.stages)


def test_the_summary(program: AIProgram) -> None:
    verification = program.verify_against(Net().eval(), (TOKENS,), backends=["evaluator"])
    summary = program.summary(verification)
    assert summary.weights == {"f32": 64 * 32 * 4, "f16": 32 * 32 * 2}
    text = str(summary).splitlines()
    assert text[0] == "@main"
    assert text[1:3] == ["  input  tokens: [rows]x3xsi32", "  state  b_count: f32"]
    assert f"ops        {program.module.op_count():,}" in text
    assert "composites 1 x layer_norm" in text
    assert "weights    10.2 kB (8.2 kB f32, 2.0 kB f16)" in text
    assert program.seconds > sum(report.seconds for report in program.reports) > 0
    assert text[-1].startswith("verified   FAILED, largest difference ")
    assert not str(program.summary()).splitlines()[-1].startswith("verified")
    data = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert data["verification"]["passed"] is False
    assert data["signatures"]["main"]["inputs"][0]["shape"] == ["rows", 3]


@pytest.mark.parametrize(
    ("function", "name", "choices"),
    [
        (TorchConverter.__init__, "int64", {"narrow", "keep", "error"}),
        (TorchConverter.__init__, "float64", {"narrow", "keep", "error"}),
        (TorchConverter.add_exported_program, "mutated_inputs", {"state", "output"}),
        (TorchConverter.add_pytorch_module, "mutated_inputs", {"state", "output"}),
        (AIProgram.verify_against, "by", {"output", "module"}),
    ],
)
def test_type_checkers_know_the_options(function: Any, name: str, choices: set[str]) -> None:
    """mypy then refuses `int64="nope"`."""
    hint = get_type_hints(function, localns={"Asset": Any, "Verification": Any})[name]
    assert get_origin(hint) is Literal
    assert set(get_args(hint)) == choices

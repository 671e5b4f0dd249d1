"""Wrong arguments in rules: the message has the call, what the op takes, and the line of a rule's function."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.authoring import AtenSource, AtenTarget
from patcomp.errors import RuleError, StageError, UnsupportedError
from patcomp.ir.namespaces import aten_namespace
from patcomp.patterns import Attr, Capture, Rewrite, lowering, rule


class Var(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.var(x, [1], correction=0, keepdim=True)


def converted(entry: Any, model: nn.Module, monkeypatch: pytest.MonkeyPatch, strict: bool = True) -> Any:
    catalog = ModuleType("catalog")
    catalog.entry = entry  # type: ignore[attr-defined]
    if strict:
        monkeypatch.setenv("PATCOMP_STRICT", "1")
    exported = torch.export.export(model, (torch.arange(16.0).reshape(2, 8),))
    return TorchConverter(catalog=[catalog]).add_exported_program(exported).to_coreai()


def test_a_name_means_the_overload_that_takes_the_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mean(x, [1], True)` is `mean.dim`; `mean` alone takes a tensor and a dtype."""

    @rule(into=aten_namespace, stage="normalize", example={"x": "2x8xf32", "axis": 1})
    def var_by_squares(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
        m = c.mean(x, [axis], True)
        return Rewrite(
            a.op("var.correction", x, [axis], correction=0, keepdim=True),
            to=c.sub(c.mean(c.mul(x, x), [axis], True), c.mul(m, m)),
        )

    program = converted(var_by_squares, Var(), monkeypatch)
    x = torch.arange(16.0).reshape(2, 8)
    assert "var_by_squares" in program.reports[0].statistics.fired
    torch.testing.assert_close(program.run(x), Var()(x))


def test_the_message_has_the_call_and_what_the_op_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    @rule(into=aten_namespace, stage="normalize", example={"x": "2x8xf32", "axis": 1})
    def wrong(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
        return Rewrite(a.op("var.correction", x, [axis], correction=0, keepdim=True), to=c.neg(c.mean(x, [axis])))

    said = r"aten\.mean\(x, \[axis\]\) cannot be built: .*; aten\.mean takes self, dtype"
    with pytest.raises(StageError, match=said):
        converted(wrong, Var(), monkeypatch)


def test_the_message_has_the_line_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    @lowering("aten.sinh", name="broken sinh")
    def broken(op: Any, c: Any) -> Any:
        return c.sinh(op["self"]) + None  # the line of the message

    class Sinh(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sinh()

    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "the line of the message" in text)
    with pytest.raises((StageError, UnsupportedError, RuleError), match=rf"test_wrong_arguments\.py:{line}\)"):
        converted(broken, Sinh(), monkeypatch)


def test_arguments_of_older_versions() -> None:
    with pytest.raises(TypeError, match="rule has no argument 'target'; into= names the dialect"):
        rule(target=aten_namespace)  # type: ignore[call-overload]

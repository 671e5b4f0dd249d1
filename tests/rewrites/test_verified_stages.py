"""Invalid IR ends a conversion with one error that names the stage and the rule that made it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from patcomp import TorchConverter
from patcomp.errors import RuleError, StageError
from patcomp.ir import coreai
from patcomp.ir.module import IRModule
from patcomp.ir.value import Value
from patcomp.ir.xdsl import StringAttr, ops_inside
from patcomp.patterns import OpView, Rule, RuleSet, op_rule
from patcomp.patterns.statistics import Statistics
from patcomp.rewrites import pipeline
from patcomp.rewrites.pipeline import STAGES


@pytest.fixture(params=["", "all"])
def verified(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the default, and with a verification after each stage."""
    monkeypatch.setenv("PATCOMP_VERIFY", request.param)
    return str(request.param)


class Gelu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.nn.functional.gelu(x))


def convert(*rules: Rule) -> Any:
    exported = torch.export.export(Gelu(), (torch.randn(2, 3),))
    return TorchConverter(catalog=[RuleSet(rules)]).add_exported_program(exported).to_coreai()


def _spoils(stage: str) -> Rule:
    """A rule whose result has the right type, but is made by an op with a property that it cannot have."""
    source = "coreai.tanh" if stage == "optimize" else "aten.tanh"

    @op_rule(stage, source, name=f"spoils in {stage}")
    def spoils(op: OpView, target: Any) -> Value | None:
        if "speed" in op.operation.properties:
            return None
        x = op[op.arguments[0]]
        made: Value = target.tanh(x) if target is coreai else target.tanh(op.result.attribute, x)
        made.ssa.owner.properties["speed"] = StringAttr("high")
        return made

    return spoils


@pytest.mark.parametrize("stage", ["normalize", "recover", "lower", "optimize"])
def test_a_rule_that_makes_invalid_ir_is_named_with_its_stage(stage: str, verified: str) -> None:
    with pytest.raises(StageError, match=rf"(?s)stage {stage}: .*`speed` \(made by spoils in {stage}\)") as caught:
        convert(_spoils(stage))
    assert caught.value.stage == stage
    assert re.search(r"the IR before this stage is in \S*\.mlir$", str(caught.value))


@pytest.mark.parametrize("stage", ["outline", "state"])
def test_a_stage_without_rules_is_named(stage: str, verified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = getattr(pipeline, stage)

    def spoils(module: IRModule) -> Statistics:
        statistics: Statistics = run(module)
        next(op for op in ops_inside(module.op) if op.name == "coreai.tanh").properties["speed"] = StringAttr("high")
        return statistics

    monkeypatch.setattr(pipeline, stage, spoils)
    with pytest.raises(StageError, match=rf"(?s)stage {stage}: .*`speed`") as caught:
        convert()
    assert caught.value.stage == stage


def test_a_later_stage_that_fails_for_it_is_not_blamed(verified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the outline stage spoils is not verified by default, so the state stage sees it."""
    run = pipeline.outline

    def spoils(module: IRModule) -> Statistics:
        statistics = run(module)
        next(op for op in ops_inside(module.op) if op.name == "coreai.tanh").properties["speed"] = StringAttr("high")
        return statistics

    def stumbles(module: IRModule) -> Statistics:
        if any("speed" in op.properties for op in ops_inside(module.op)):
            raise RuleError("an op has a property that is unknown here")
        return Statistics()

    monkeypatch.setattr(pipeline, "outline", spoils)
    monkeypatch.setattr(pipeline, "state", stumbles)
    with pytest.raises(StageError, match=r"(?s)stage outline: .*`speed`"):
        convert()


def test_which_stages_are_verified(verified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(pipeline, "verify", lambda module, runtime, finished: seen.append(runtime))
    convert()
    assert seen == ([stage.lowered for stage in STAGES] if verified == "all" else [False, True])

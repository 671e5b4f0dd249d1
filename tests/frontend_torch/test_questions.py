"""`program.explain` and `program.why_not`: from an op back to the model, and to the match that did not happen."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from tests.frontend_torch.models import export


class Norm(nn.Module):
    """RMSNorm as models write it; `eps_inside=False` is the mistake that must not be taken for it."""

    def __init__(self, eps_inside: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8) + 0.5)
        self.eps_inside = eps_inside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        square = x.pow(2).mean(-1, keepdim=True)
        factor = torch.rsqrt(square + 1e-6) if self.eps_inside else torch.rsqrt(square) + 1e-6
        return self.weight * (x * factor)


def converted(eps_inside: bool) -> AIProgram:
    model = nn.Sequential(Norm(eps_inside))
    return TorchConverter().add_exported_program(export(model, torch.randn(2, 8))).to_coreai()


def test_explain_leads_from_a_composite_to_rule_module_and_line() -> None:
    program = converted(eps_inside=True)
    assert program.composites == {"rms_norm": 1}
    text = program.explain(f"%{program.output_names()[0]}")
    assert "made by rule rms_norm" in text
    assert "in 0 at" in text
    assert "test_questions.py:" in text


def test_explain_finds_ops_by_source_line() -> None:
    program = converted(eps_inside=True)
    line = Norm.forward.__code__.co_firstlineno + 3
    assert "made by rule rms_norm" in program.explain(f"test_questions.py:{line}")


def test_explain_describes_each_graph_and_rule_once() -> None:
    model = nn.Sequential(*(Norm(eps_inside=True) for _ in range(3)))
    program = TorchConverter().add_exported_program(export(model, torch.randn(2, 8))).to_coreai()
    text = program.explain(f"test_questions.py:{Norm.forward.__code__.co_firstlineno + 3}")
    assert text.count("made by rule rms_norm") == 2
    assert "ops of @rms_norm_" in text
    assert "3 ops of @main: " in text
    assert "  and from 8 more places" in text


def test_explain_says_a_place_once() -> None:
    text = converted(eps_inside=True).explain(f"test_questions.py:{Norm.forward.__code__.co_firstlineno + 3}")
    groups = [line for line in text.splitlines() if not line.startswith(" ")]
    places = [line for line in text.splitlines() if line.startswith("  from ")]
    assert len(groups) > 1
    assert len(places) == len(set(places))


def test_explain_of_something_unknown() -> None:
    with pytest.raises(KeyError, match="nothing_like_it"):
        converted(eps_inside=True).explain("nothing_like_it")


def test_why_not_quotes_the_nearest_miss() -> None:
    program = converted(eps_inside=False)
    assert program.composites == {}
    answer = program.why_not("rms_norm")
    assert answer.startswith("rms_norm: matched ")
    assert "aten.add.Tensor" in answer or "aten.rsqrt" in answer
    line = Norm.forward.__code__.co_firstlineno + 3
    places = [place for place in answer.splitlines()[1:] if place.startswith("  %mul")]
    assert [place.partition(" is from ")[2] for place in places] == [
        f"%mul_1 in 0 at tests/frontend_torch/test_questions.py:{line}"
    ]


def test_why_not_of_a_rule_that_matched_or_does_not_exist() -> None:
    program = converted(eps_inside=True)
    line = Norm.forward.__code__.co_firstlineno + 3
    assert f"rms_norm matches at %mul_1 = aten.mul.Tensor (%mul_1 in 0 at test_questions.py:{line})" in " ".join(
        program.why_not("rms_norm").replace("tests/frontend_torch/", "").split()
    )
    assert "there is no aten.pixel_shuffle" in program.why_not("pixel_shuffle")
    with pytest.raises(KeyError, match="no_such_rule"):
        program.why_not("no_such_rule")


def test_statistics_say_what_changed_the_program_without_a_rule() -> None:
    """Folding, common subexpressions and dead ops are counted like the rewrites of rules."""

    def repeated(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + torch.sin(x) * torch.arange(3).float()

    program = TorchConverter().add_exported_program(export(repeated, torch.randn(2, 3))).to_coreai()
    (optimize,) = (report for report in program.reports if report.name == "optimize")
    assert optimize.ops_after < optimize.ops_before
    assert optimize.statistics.fired["common subexpressions"] >= 1
    assert optimize.statistics.fired["constant folding"] >= 1
    for report in program.reports:
        assert report.ops_before == report.ops_after or report.statistics.fired

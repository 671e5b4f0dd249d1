"""A declarative rule of the lower stage rewrites a pattern of several ops to Core AI ops before each op is lowered."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from patcomp import TorchConverter
from patcomp.ir.namespaces import coreai_namespace
from patcomp.patterns import Rewrite, RuleSet, rule
from patcomp_lab.proof.examination import examine
from patterns_catalog import default_rules

OVERFLOWS = {"large numbers": "an infinity times zero was NaN", "infinities and zeros": "so it was there"}


@rule(stage="lower", into=coreai_namespace, example={"x": "2x3xf32", "y": "2x3xf32"}, unspecified=OVERFLOWS)
def product_of_exponentials(a: Any, c: Any, x: Any, y: Any) -> Rewrite:
    "exp(x) * exp(y) -> exp(x + y)"
    return Rewrite(a.exp(x) * a.exp(y), to=c.exp(c.broadcasting_add(x, y)), where=[x.dtype == "f32", y.dtype == "f32"])


class Exponentials(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(x) * torch.exp(y) + torch.exp(x)


class Products(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(x) * torch.exp(y)


@pytest.mark.parametrize(("model", "exponentials"), [(Products(), 1), (Exponentials(), 2)])
def test_the_pattern_is_lowered_as_a_whole(model: torch.nn.Module, exponentials: int) -> None:
    """Unless one of its values is used outside."""
    inputs = (torch.randn(2, 3), torch.randn(2, 3))
    converter = TorchConverter(catalog=[RuleSet([product_of_exponentials])])
    program = converter.add_exported_program(torch.export.export(model, inputs)).to_coreai()
    assert str(program).count("coreai.exp ") == exponentials
    assert program.verify_against(model, inputs, backends=["evaluator"])


def test_its_declaration_implies_tests() -> None:
    checks = examine(product_of_exponentials, default_rules(), programs=1)
    assert [check.failure for check in checks] == [None] * len(checks)
    assert sum(check.runs for check in checks) > 10

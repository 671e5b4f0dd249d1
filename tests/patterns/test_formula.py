"""Formulas: one op, a function of its arguments under conditions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from patcomp import TorchConverter
from patcomp.errors import RuleError, UnsupportedError
from patcomp.patterns import RuleSet, Stage, example, formula
from patcomp.patterns.conditions import is_floating
from patterns_catalog import default_rules

LIKE = {"dtype": "the result type has it"}


def declared(function: Any, *ops: str, **parts: Any) -> Any:
    return formula("lower", *ops, **parts)(function)


MISTAKES = [
    (lambda c, self: self, ["aten.cumsum"], {}, "aten.cumsum has the argument dim, which is no parameter"),
    (lambda c, self, dims: self, ["aten.cumsum"], {}, "dims is no argument of aten.cumsum; did you mean dim?"),
    (lambda c, self, dim: self, ["aten.cumsum"], {"ignored": {"dtype": ""}}, "dtype is ignored without a reason"),
    (lambda c, self, dim: self, ["aten.prod", "aten.prod.dim_int"], {}, "aten.prod has no argument dim, which needs"),
    (lambda c, self: self, ["aten.cumsun"], {}, "aten has no op 'aten.cumsun'; did you mean cumsu"),
    (lambda c, self: self, ["aten.relu"], {"where": lambda x: []}, "x is no argument of aten.relu"),
    (lambda c, self: self, ["aten.relu"], {"where": lambda self: [True]}, "where= gives True, which is not a condit"),
]


@pytest.mark.parametrize(("function", "ops", "parts", "message"), MISTAKES, ids=[m[3][:30] for m in MISTAKES])
def test_a_wrong_declaration_is_an_error(function: Any, ops: list[str], parts: Any, message: str) -> None:
    with pytest.raises(RuleError, match=r"test_formula\.py") as error:
        declared(function, *ops, **parts)
    assert message in str(error.value)


def _converted(model: Any, inputs: tuple[torch.Tensor, ...], *rules: Any) -> Any:
    own = [rule.name for rule in default_rules() if "aten.cumsum" in rule.ops and rule.stage is Stage.LOWER]
    exported = torch.export.export(model, inputs)
    return TorchConverter(catalog=[RuleSet(rules)], without=own).add_exported_program(exported).to_coreai()


class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 1)


floats = declared(
    lambda c, self, dim, result: c.scan(c.cast(self, result.element_type), dim % self.rank, False, scan_op="sum"),
    "aten.cumsum", name="sums of floats", ignored=LIKE, examples=[example("2x3xf32", 1)],
    where=lambda self, dim, result: [
        is_floating(result), self.rank > 1, (dim >= 0).says("axis {} of {} counts from the end", dim, self.rank),
    ],
)  # fmt: skip
integers = declared(
    lambda c, self, results: c.scan(self, 1, False, scan_op="sum"),
    "aten.cumsum", name="sums of integers", ignored=LIKE,
    where=lambda self, dim: [~is_floating(self), (dim == 1).says("only axis 1"), self.dtype == "si32"],
)  # fmt: skip


def test_conditions_choose_among_formulas() -> None:
    for inputs in ((torch.randn(2, 3),), (torch.arange(6, dtype=torch.int32).reshape(2, 3),)):
        program = _converted(Sums(), inputs, integers, floats)
        assert program.verify_against(Sums(), inputs, backends=["evaluator"])


class Last(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.cumsum(x, -1)


def test_a_user_reads_the_reason_of_a_condition_and_no_choice() -> None:
    with pytest.raises(UnsupportedError, match="axis -1 of 2 counts from the end") as error:
        _converted(Last(), (torch.randn(2, 3),), integers, floats)
    assert "floats" not in str(error.value)


def test_a_call_that_no_formula_is_for_says_what_does_not_hold() -> None:
    with pytest.raises(UnsupportedError, match="`result has floats` does not hold"):
        _converted(Sums(), (torch.arange(6, dtype=torch.int32).reshape(2, 3),), floats)


def test_a_parameter_with_a_default_may_be_absent() -> None:
    product = declared(
        lambda c, self, dim=None, result=None: (dim, result), "aten.prod", "aten.prod.dim_int",
        ignored=LIKE | {"keepdim": "not here"},
    )  # fmt: skip
    assert product.is_formula
    assert product.function.parameters["dim"] is None
    assert product.ops == ("aten.prod", "aten.prod.dim_int")

"""A rule that breaks its promise ends the conversion with an error that names rule, op and argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from patcomp import ConversionWarning, TorchConverter
from patcomp.authoring import Aten, Coreai
from patcomp.errors import RuleError, StageError, UnsupportedError
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rule, RuleSet, lowering, normalization, op_rule
from patterns_catalog import default_rules
from tests.catalog.cases import compile_case, make_case


@lowering("aten.gelu")
def forgets_an_argument(op: OpView, c: Coreai) -> Value:
    return c.gelu(op["self"], approximate="none")


@normalization("aten.gelu", name="normalize forgetfully")
def forgets_in_normalize(op: OpView, a: Any) -> Value:
    return op["self"]


@lowering("aten.gelu")
def gives_another_element_type(op: OpView, c: Coreai) -> Value:
    op.ignore("approximate", because="this rule is wrong anyway")
    return c.cast(op["self"], "f16")


@lowering("aten.gelu")
def gives_another_shape(op: OpView, c: Coreai) -> Value:
    op.ignore("approximate", because="this rule is wrong anyway")
    return c.expand_dims(op["self"], [0])


@lowering("aten.gelu")
def gives_two_values(op: OpView, c: Coreai) -> list[Value]:
    op.ignore("approximate", because="this rule is wrong anyway")
    return [op["self"], op["self"]]


@lowering("aten.gelu")
def builds_an_invalid_op(op: OpView, c: Coreai) -> Value:
    op.ignore("approximate", because="this rule is wrong anyway")
    return c.broadcasting_add(op["self"], c.constant([1.0, 2.0]))


@normalization("aten.gelu", name="normalize to another shape")
def changes_the_shape_in_normalize(op: OpView, aten: Aten) -> Value:
    op.ignore("approximate", because="this rule is wrong anyway")
    return aten.unsqueeze(tensor((1, 2, 3), "f32"), op["self"], dim=0)


DEFECTS = [
    (forgets_an_argument, "lower", "does not account for argument approximate of aten.gelu"),
    (forgets_in_normalize, "normalize", "does not account for argument approximate of aten.gelu"),
    (
        changes_the_shape_in_normalize,
        "normalize",
        "gives tensor<1x2x3xf32> for result 0 of aten.gelu",
    ),
    (gives_another_element_type, "lower", r"gives tensor<2x3xf16> for result 0 of aten.gelu, which is tensor<2x3xf32>"),
    (gives_another_shape, "lower", r"gives tensor<1x2x3xf32> for result 0 of aten.gelu, which is tensor<2x3xf32>"),
    (gives_two_values, "lower", "the function returned 2 values, but aten.gelu has 1 results"),
    (builds_an_invalid_op, "lower", "built an invalid op for aten.gelu"),
]


@pytest.mark.parametrize(("rule", "stage", "message"), DEFECTS, ids=[rule.name for rule, *_ in DEFECTS])
def test_defect_is_reported(rule: Rule, stage: str, message: str) -> None:
    case = make_case("aten.gelu", ("2x3xf32",), {"approximate": "tanh"})
    with pytest.raises(StageError, match=message) as caught:
        compile_case(case, default_rules().preceded_by([rule]))
    assert caught.value.stage == stage
    assert isinstance(caught.value.__cause__, RuleError)
    assert rule.name in str(caught.value)
    assert "test_defects.py" in str(caught.value)


def test_rejecting_all_rules_lists_their_reasons() -> None:
    @lowering("aten.gelu")
    def wants_more(op: OpView, c: Coreai) -> Value:
        op.reject(f"a gelu of {op['self'].dtype} that is approximated by {op.approximate}")

    case = make_case("aten.gelu", ("2x3xf32",), {"approximate": "tanh"})
    with pytest.raises(UnsupportedError) as caught:
        compile_case(case, default_rules().without("gelu").preceded_by([wants_more]))
    (problem,) = caught.value.problems
    assert problem.op == "aten.gelu"
    assert problem.message == "a gelu of f32 that is approximated by tanh"


def test_next_rule_is_tried_where_one_rejects() -> None:
    @lowering("aten.gelu")
    def takes_nothing(op: OpView, c: Coreai) -> Value:
        op.reject("not today")

    case = make_case("aten.gelu", ("2x3xf32",))
    compilation = compile_case(case, default_rules().preceded_by([takes_nothing]))
    lowered = next(report for report in compilation.reports if report.name == "lower").statistics
    assert (lowered.rules["takes_nothing"].tries, lowered.rules["takes_nothing"].rewrites) == (1, 0)
    assert lowered.fired["gelu"] == 1


def test_what_a_rejecting_rule_built_is_taken_back() -> None:
    """Its constants too, which the next rule may want again."""

    @lowering("aten.gelu")
    def changes_its_mind(op: OpView, c: Coreai) -> Value:
        c.broadcasting_mul(op["self"], c.constant(0.25))
        op.reject("not today")

    @lowering("aten.gelu")
    def scales(op: OpView, c: Coreai) -> Value:
        op.ignore("approximate", because="this rule is wrong anyway")
        return c.broadcasting_mul(op["self"], c.constant(0.25))

    case = make_case("aten.gelu", ("2x3xf32",))
    compilation = compile_case(case, default_rules().preceded_by([changes_its_mind, scales]))
    ops = [op.name for op in compilation.module.graph("main").regions[0].block.ops]
    assert ops == ["coreai.constant", "coreai.decomposable.broadcasting_mul", "coreai.output"]


def test_op_without_rule_is_refused() -> None:
    case = make_case("aten.gelu", ("2x3xf32",))
    with pytest.raises(UnsupportedError, match="no lowering rule for this op"):
        compile_case(case, default_rules().without("gelu"))


def _fails(stage: str) -> Rule:
    @op_rule(stage, "aten.gelu" if stage != "optimize" else "coreai.gelu", name=f"fails in {stage}")
    def fails(op: OpView, c: Coreai) -> Value:
        raise IndexError("the rule asks for an axis that is not there")

    return fails


class Gelus(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(torch.nn.functional.gelu(x))


def _gelus(*failing: Rule) -> TorchConverter:
    exported = torch.export.export(Gelus(), (torch.randn(2, 3),))
    return TorchConverter(catalog=[RuleSet(failing)]).add_exported_program(exported)


def test_a_rule_that_fails_is_skipped_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATCOMP_STRICT")
    converter = _gelus(*map(_fails, ("normalize", "recover", "optimize")))
    with pytest.warns(ConversionWarning) as warned:
        program = converter.to_coreai()
    messages = [str(warning.message) for warning in warned]
    assert messages == [str(problem) for problem in program.diagnostics]
    for stage, op, message in zip(
        ("normalize", "recover", "optimize"), ("aten", "aten", "coreai"), messages, strict=True
    ):
        assert message.startswith(f"rule fails in {stage} (catalog/test_defects.py:")
        assert "failed: IndexError: the rule asks for an axis that is not there (at catalog/test_defects.py:" in message
        assert f" (op {op}.gelu, node %gelu" in message
        assert "test_defects.py:" in message.partition("node")[2]
        assert message.endswith("the conversion went on without it; tell the rule's author")
    assert messages[0] in str(program.report())
    assert program.verify_against(Gelus(), (torch.randn(2, 3),), backends=["evaluator"])


@pytest.mark.parametrize(
    ("stage", "strict"), [("normalize", True), ("recover", True), ("optimize", True), ("lower", True), ("lower", False)]
)
def test_an_error_where_a_failing_rule_is_not_skipped(
    stage: str, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not strict:
        monkeypatch.delenv("PATCOMP_STRICT")
    with pytest.raises(
        StageError, match=rf"rule fails in {stage} \(catalog/test_defects.py:\d+\) failed: IndexError"
    ) as caught:
        _gelus(_fails(stage)).to_coreai()
    assert caught.value.stage == stage
    assert "gelu, node %gelu" in str(caught.value)

"""`patcomp.supports`: ops, nodes and programs, without converting."""

from __future__ import annotations

import json

import pytest
import torch

import patcomp
from patcomp.frontend_torch.support import MEASURED, op_support, supported_ops
from patcomp_lab.commands.ops_page import ops_pages
from patterns_catalog import default_rules
from tests.frontend_torch.models import export


def test_an_op_by_name_overload_and_packet() -> None:
    for what in ("aten.relu", "aten::relu", "aten.relu.default", torch.ops.aten.relu, torch.ops.aten.relu.default):
        support = patcomp.supports(what)
        assert support
        assert support.op == "aten.relu"
        assert "lowered" in support.how
        assert support.rules == ("relu",)


def test_decomposed_and_unknown_ops() -> None:
    assert patcomp.supports("aten.addbmm").how == ("decomposed",)
    assert "composite" in patcomp.supports("aten.scaled_dot_product_attention").how
    assert not patcomp.supports("aten.rand")
    assert not patcomp.supports("aten.add_")


@pytest.mark.parametrize("what", ["aten.add", "aten::add", "add", "torch.ops.aten.add", torch.ops.aten.add])
def test_a_packet_answers_for_all_overloads(what: object) -> None:
    support = patcomp.supports(what)
    assert support
    assert support.op == "aten.add"
    assert [overload.op for overload in support.overloads] == ["aten.add.Scalar", "aten.add.Tensor"]
    assert all(support.overloads)
    assert {"rewritten", "lowered"} <= set(support.how)
    assert "float32" in support.dtypes


def test_a_packet_of_which_some_overloads_are_not_converted() -> None:
    support = patcomp.supports(torch.ops.aten.index)
    assert support
    unsupported = ["aten.index.Tensor_hacked_twin", "aten.index.list_Tensor"]
    assert [overload.op for overload in support.overloads if not overload] == unsupported
    assert not patcomp.supports(torch.ops.aten.index.list_Tensor)
    assert not patcomp.supports(torch.ops.aten.rand)
    assert not patcomp.supports(torch.ops.aten.add_)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aten.addd", "PyTorch has no operator aten.addd; similar names are .*aten.add"),
        ("aten.softmaxx", "similar names are .*aten.softmax"),
        ("aten.add.Tensr", "aten.add has no overload 'Tensr'; its overloads are aten.add.Scalar, aten.add.Tensor"),
        ("my_library.scale", "PyTorch has no operator my_library.scale; import the module that registers it first"),
        ("", "PyTorch has no operator"),
    ],
)
def test_misspelt_names_are_errors(name: str, message: str) -> None:
    with pytest.raises(LookupError, match=message):
        patcomp.supports(name)


def test_a_node_and_a_program() -> None:
    good = export(lambda x: torch.relu(x) + 1, torch.randn(2, 3))
    assert all(patcomp.supports(node) for node in good.graph.nodes if node.op == "call_function")
    assert patcomp.supports(good)
    bad = export(lambda x: torch.rand_like(x) + x, torch.randn(2, 3))
    answer = patcomp.supports(bad)
    assert not answer
    assert [problem.op for problem in answer.problems] == ["aten.rand_like"]
    assert "aten.rand_like" in str(answer)


def test_something_else() -> None:
    with pytest.raises(TypeError, match="an op, a node or an ExportedProgram, got int"):
        patcomp.supports(3)


def test_every_op_of_a_rule_is_listed() -> None:
    listed = {support.op for support in supported_ops()}
    assert {op for rule in default_rules().stage("lower").procedural() for op in rule.ops} <= listed


def test_the_samples_of_an_op_are_told() -> None:
    support = op_support("aten.addmm")
    assert "float32" in support.dtypes
    assert 2 in support.ranks


def test_the_page_has_a_row_for_each_op_and_each_element_type() -> None:
    table = json.loads(MEASURED.read_text())
    page = "".join(ops_pages(supported_ops(), table["sweep"]).values())
    assert page.count("\n| `") == len(supported_ops())
    assert all(f"| {dtype} |" in page for dtype in table["sweep"])

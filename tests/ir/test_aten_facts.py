"""The table of facts: its form, its names, and that no op of the rules lacks a fact by oversight."""

from __future__ import annotations

from importlib.resources import files

import pytest
import torch

from patcomp.frontend_torch.functional.views import CHANGED
from patcomp.ir import aten
from patcomp.ir.aten_facts import OpFacts, facts_of, operators_where, ops_where
from patcomp.ir.extents import SOURCES
from patcomp.ir.traits import Elementwise, SameShape, Selection, View
from patcomp.narrowing.transfer_functions import TRANSFER
from patterns_catalog import default_rules

VALUES = {
    "float": {"exact", "decision", "relative", "sum", "function"},
    "index": {"along_dim", "by_axis", "rows"},
    "places": {"first", "any", "distinct"},
    "memory": {"shared", "either", "new", "undeclared", "unless_train"},
    "complex": {"imported", "lowered", "stays"},
    "decomposition": {"kept", "replaced", "refused", "real"},
    "sizes": {*SOURCES},
    "range": {*TRANSFER},
    "written": {"same", *CHANGED},
}


def rows() -> list[tuple[list[str], str]]:
    lines = files("patcomp.ir").joinpath("aten_facts.txt").read_text().splitlines()
    split = [line.partition("  # ")[0].partition(": ") for line in lines if not line.startswith("#")]
    return [(names.split(","), words) for names, _, words in split]


def test_a_row_is_of_one_operator_and_an_op_has_one_row() -> None:
    names = [name for row, _ in rows() for name in row]
    assert len(names) == len({*names})
    assert all(len({name.partition(".")[0] for name in row}) == 1 for row, _ in rows() if "::" not in row[0])
    assert [row for row, _ in rows()] == sorted(row for row, _ in rows())


def test_rows_are_of_operators_that_pytorch_has() -> None:
    for row, _ in rows():
        for name in (each for each in row if "::" not in each):
            operator, _, overload = name.partition(".")
            assert hasattr(getattr(torch.ops.aten, operator), overload or "default"), name


def test_words_mean_something() -> None:
    for row, words in rows():
        facts = facts_of(f"aten.{row[0]}" if "::" not in row[0] else row[0].replace("::", "."))
        for fact, known in VALUES.items():
            assert getattr(facts, fact) in {"", *known}, row
        assert not facts.parts or facts.parts == "rows" or facts.parts in aten.op_class(f"aten.{row[0]}").SCHEMA.names
        assert {*filter(None, facts.unknown.split(","))} <= {"sizes", "range", "float"}, row
        assert not any(getattr(facts, fact) for fact in filter(None, facts.unknown.split(","))), row
        assert words == " ".join(dict.fromkeys(words.split())), row


@pytest.mark.parametrize(("fact", "functions"), [("written", CHANGED), ("sizes", SOURCES)])
def test_each_function_has_an_op(fact: str, functions: dict[str, object]) -> None:
    assert {getattr(facts_of(name), fact) for name in ops_where(fact)} - {"same"} == {*functions}


def test_ops_of_rules_lack_no_fact_by_oversight() -> None:
    """A rule stops silently where an analysis knows nothing of an op, so that the op's row has to say so."""
    stages = ("normalize", "recover", "lower")
    taken = {op for stage in stages for rule in default_rules().stage(stage) for op in rule.ops if "aten." in op}
    assert len(taken) > 200
    implied = {
        "sizes": aten.overloads_with(Elementwise) | aten.overloads_with(SameShape),
        "range": aten.overloads_with(Selection),
        "float": ops_where("elements") | ops_where("complex") | {"aten._to_copy"},
    }
    for fact, without in implied.items():
        for op in taken - without:
            facts = facts_of(op)
            assert getattr(facts, fact) or fact in facts.unknown.split(","), f"{op} needs {fact}= or unknown={fact}"


def test_an_op_without_a_row_has_no_facts_and_a_name_is_of_one_overload() -> None:
    assert facts_of("my_library.op") == facts_of("aten.nothing") == OpFacts()
    assert facts_of("aten.max.dim").range != facts_of("aten.max").range
    assert "add" in operators_where("commutes")
    assert "aten.add.Scalar" not in ops_where("commutes")


def test_views_follow_from_pytorchs_schemas() -> None:
    """The row says which elements an op selects; whether the result may share memory, the schema says."""
    assert {"aten.slice.Tensor", "aten.reshape", "aten.contiguous"} <= aten.overloads_with(View)
    assert not {"aten.clone", "aten.flip", "aten.gather", "aten.view.dtype"} & aten.overloads_with(View)

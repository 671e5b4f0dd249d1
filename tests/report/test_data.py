"""What a report says, as data: the same for the same model, and without names of the model in release mode."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.errors import Problem
from patcomp.program.program import AIProgram
from tests.report.conftest import Model, converted, data_of


def test_data(program: AIProgram, report: Path) -> None:
    data = data_of(report)
    assert [stage["name"] for stage in data["stages"]] == [name for name in program.stages if name != "emit"]
    last = data["stages"][-1]
    assert last["count"] == program.module.op_count() == sum(len(graph["ops"]["name"]) for graph in last["graphs"])
    text = str(program)
    for graph in last["graphs"]:
        assert all(data["texts"][number] in text for number in graph["ops"]["text"])
    assert {call[0] for call in data["composites"]} == set(program.composites)
    weights = {key.replace(".", "_"): size for key, _, size, *_ in data["costs"][0]["weights"]}
    assert weights["first_linear_weight"] == 64 * 8 * 4
    assert data["verification"]["passed"] is True


def test_same_model_gives_the_same_bytes(
    program: AIProgram, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = str(program)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(24 * 60 * 60))
    plain = program.html(tmp_path / "a.html").read_bytes()
    assert plain == converted(Model()).html(tmp_path / "b.html").read_bytes()
    assert b">1970-01-02</span>" in plain
    assert str(program) == text
    timed = data_of(program.html(tmp_path / "c.html", times=True))
    assert timed["stages"][1]["seconds"] > 0
    assert data_of(report)["stages"][1]["seconds"] is None


def test_release_mode_shows_no_places(program: AIProgram, report: Path, tmp_path: Path) -> None:
    exported = torch.export.export(Model().eval(), (torch.ones(2, 8),))
    released = TorchConverter(mode=TorchConverter.Mode.RELEASE).add_exported_program(exported).to_coreai()
    check = released.verify_against(Model().eval(), (torch.ones(2, 8),), backends=["evaluator"], by="module")
    warning = Problem("a warning", "aten.add", node="add", module_path="first", source="conftest.py:3")
    released = replace(released, diagnostics=(warning,))
    path = released.html(tmp_path / "released.html", verification=check)
    assert "conftest.py:" in report.read_text(encoding="utf-8")
    titles = [each.read_text("utf-8").partition("<title>")[2].partition("</title>")[0] for each in (report, path)]
    assert titles == ["Model", "main"]
    assert not {"conftest.py:", "first.linear"} & set(re.findall(r"conftest.py:|first.linear", path.read_text("utf-8")))
    data, named = data_of(path), data_of(report)
    assert len(data["places"]) == len(named["places"])  # they stay apart
    texts = {data["texts"][number] for place in data["places"] if place and place[0] is None for number in place[1:]}
    assert texts == {""}
    assert data["verification"]["modules"] == []
    assert data["notes"] == [["warning", "a warning (op aten.add)"]]
    misses = [answer for _, answer in data["nearMisses"]]
    assert misses
    assert all("unknown source" in answer for answer in misses)
    assert "conftest.py:" in named["nearMisses"][0][1]


def facts_in(path: Path, stage: str, op: str) -> tuple[list[str], list[str]]:
    """The attributes of the first op of a name, and the names of its operands."""
    data = data_of(path)
    graphs = next(each["graphs"] for each in data["stages"] if each["name"] == stage)
    texts = data["texts"]
    ops, number = next(
        (graph["ops"], number)
        for graph in graphs
        for number, name in enumerate(graph["ops"]["name"])
        if texts[name] == op
    )
    return texts[ops["facts"][number]].split("\n"), texts[ops["takes"][number]].split(",")


def test_ops_have_their_attributes_and_the_names_of_their_operands(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), nn.MaxPool2d(2), nn.GELU("tanh"))
    path = converted(model, torch.ones(1, 4, 16, 16)).html(tmp_path / "report.html")
    attributes, operands = facts_in(path, "import", "aten.convolution")
    assert attributes[:2] == ["stride [2, 2]", "padding [1, 1]"]
    assert attributes[-1] == "groups 2"
    assert operands == ["input", "weight", "bias"]
    assert facts_in(path, "optimize", "coreai.gelu") == (["approximate tanh"], ["input"])
    assert facts_in(path, "optimize", "coreai.conv2d")[1] == ["input", "weight", "stride", "dilation", "groups"]
    data = data_of(path)
    constants = {data["texts"][fact] for graph in data["stages"][-1]["graphs"] for fact in graph["ops"]["facts"]}
    assert {"[2, 2]", "8x2x3x3 f32"} <= constants


def test_composites_have_the_attributes_of_their_declaration(report: Path) -> None:
    attributes, operands = facts_in(report, "optimize", "coreai.invoke")
    assert "eps 1e-06" in attributes
    assert operands == ["input", "scale"]


def test_an_operand_inside_a_region_is_the_value_that_the_region_takes(report: Path) -> None:
    data = data_of(report)
    graph = next(stage for stage in data["stages"] if stage["name"] == "recover")["graphs"][-1]
    names = [data["texts"][name] for name in graph["ops"]["name"]]
    inside = [number for number, parent in enumerate(graph["ops"]["parent"]) if parent >= 0]
    around = {graph["ops"]["parent"][number] for number in inside}
    assert all(names[number] == "patcomp.region" for number in around)
    assert not any(set(graph["ops"]["inputs"][number]) & around for number in inside)


def test_only_composites_that_came_close_are_named(tmp_path: Path) -> None:
    class Attention(nn.Module):  # its products and views are also in gather_mm, pixel_shuffle and others
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = x.cos().view(2, 3, 2, 4).transpose(1, 2)
            attended = nn.functional.scaled_dot_product_attention(heads, heads, heads)
            return attended.transpose(1, 2).reshape(2, 3, 8) * x.sigmoid()  # a gate, and no silu

    path = converted(Attention(), torch.ones(2, 3, 8)).html(tmp_path / "report.html")
    assert data_of(path)["nearMisses"] == []


def test_findings_of_audits_name_their_ops(program: AIProgram, report: Path) -> None:
    data = data_of(report)
    found = {each["target"]: each["findings"] for each in data["audits"]}
    assert list(found) == ["cpu", "gpu", "neural_engine"]
    assert found["cpu"] == []
    half = next(each for each in found["neural_engine"] if each["what"] == "f32 values")
    ops = [
        data["stages"][-1]["graphs"][graph]["ops"]["value"][number]
        for graph, numbers in half["ops"]
        for number in numbers
    ]
    assert ops
    assert all(data["texts"][type_].endswith("f32>") for _, type_ in ops)
    assert half["count"] == next(
        each.count for each in program.audit("neural_engine").findings if each.what == "f32 values"
    )


def test_page_needs_nothing_else(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", page)
    assert "Copyright (c) 2012-2014 Chris Pettitt" in page


def test_notebook_summary(program: AIProgram) -> None:
    shown = program._repr_html_()
    assert "<script" not in shown
    assert "rms_norm" in shown
    assert "tensor&lt;2x8xf32&gt;" in shown or "@main" in shown

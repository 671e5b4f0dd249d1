"""Two programs side by side: from assets, texts, models and reports."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from patcomp import PatcompError, TorchConverter
from patcomp.ir.locations import origins
from patcomp.ir.xdsl import ops_inside
from patcomp.program.program import AIProgram
from patcomp.report import difference_page, program_in
from patcomp.report.differences import short_names
from tests.helpers.command import Command
from tests.report.conftest import Model, converted, data_of

NETS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, activation):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.activation, self.last = nn.Linear(4, 8), activation, nn.Linear(8, 300)

    def forward(self, x):
        return self.last(self.activation(self.first(x)))


def relu():
    return Net(nn.ReLU()).eval(), (torch.ones(2, 4),)


def tanh():
    return Net(nn.Tanh()).eval(), (torch.ones(2, 4),)
"""


class Changed(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        return self.last(torch.relu(h)).softmax(-1)


@pytest.fixture(scope="module")
def difference(program: AIProgram, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("difference") / "difference.html"
    modules = program.module, converted(Changed()).module
    path.write_text(difference_page(("model", "changed"), modules, ({}, {})), encoding="utf-8")
    return path


def test_data_has_the_partners_and_the_differences(difference: Path) -> None:
    data = data_of(difference)
    found = data["difference"]
    names = [[data["texts"][name] for name in stage["graphs"][-1]["ops"]["name"]] for stage in data["stages"]]
    graphs = [len(stage["graphs"]) - 1 for stage in data["stages"]]
    pairs = {mine[1]: its[1] for mine, its in found["pairs"] if (mine[0], its[0]) == tuple(graphs)}
    assert pairs
    assert all(names[0][mine] == names[1][its] for mine, its in pairs.items())
    added = [line for line in found["lines"] if line[0] == "+"]
    assert any("coreai.relu" in text for _, text, _, _ in added)
    assert all(first is None and second is not None for _, _, first, second in added)
    assert found["totals"][0]["weights"] == found["totals"][1]["weights"]
    assert found["totals"][0]["ops"] > found["totals"][1]["ops"]


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ("/a/b/x.html", "/a/b/y.html", ("x.html", "y.html")),
        ("/a/b/x.html", "/c/b/x.html", ("a/b/x.html", "c/b/x.html")),
        ("old.aimodel/", "new.aimodel", ("old.aimodel/", "new.aimodel")),
        ("x", "x", ("x", "x")),
    ],
)
def test_names_are_the_ends_of_paths_that_differ(first: str, second: str, shown: tuple[str, str]) -> None:
    assert short_names(first, second) == shown


def test_page_shows_both_programs_at_the_first_difference(difference: Path, opened: Callable[..., Any]) -> None:
    page = opened(difference)
    assert page.problems == []
    assert page.inner_text("#stage") == "changed"
    assert page.locator("#other-stage option:checked").inner_text().startswith("model ")
    assert page.locator("#drawing .node.added").count() == 1
    assert "It has no such op." in page.inner_text("#details")
    page.locator("#panel .removed .link", has_text="tanh").first.click()
    assert page.locator("#other-drawing .node.removed").count() >= 1
    assert page.locator("#other-drawing .node.selected").count() == 1
    page.evaluate("() => goToOp(opsOf(1, main.graph).find((op) => op.shortName === 'softmax'))")
    assert "softmax" in page.locator("#other-drawing .node.op.marked").first.text_content()
    page.close()


def test_page_shows_the_costs_of_both_programs(difference: Path, opened: Callable[..., Any]) -> None:
    page = opened(difference)
    page.evaluate("() => showView('map')")
    assert page.locator("#map h3").all_inner_texts() == data_of(difference)["difference"]["names"]
    of_programs = page.locator("#map .maps").evaluate_all(
        "maps => maps.map(map => [...map.querySelectorAll('.area')].map(area => area.children.length))"
    )
    assert len(of_programs) == 2
    assert all(count > 0 for areas in of_programs for count in areas)
    page.evaluate("() => zoomMap('first')")
    figures = page.locator("#details table tbody tr:first-child td:nth-child(2)").all_inner_texts()
    assert figures[0] == figures[1]  # the weights of the module in both
    assert page.problems == []
    page.close()


def test_the_same_program_has_no_differences(program: AIProgram, tmp_path: Path, opened: Callable[..., Any]) -> None:
    path = tmp_path / "same.html"
    modules = program.module, converted(Model()).module
    path.write_text(difference_page(("a", "b"), modules, ({}, {})), encoding="utf-8")
    page = opened(path, viewport={"width": 390, "height": 844})
    page.get_by_role("button", name="Lists").click()
    assert "the same structure" in page.inner_text("#panel .verdict")
    assert page.problems == []
    page.close()


def test_a_report_has_its_program_and_the_places_of_its_ops(program: AIProgram, report: Path) -> None:
    found = program_in(report)
    assert found.text() == program.module.text()
    pairs = zip(found.graphs, program.module.graphs, strict=True)
    for mine, its in (ops for graphs in pairs for ops in zip(*map(ops_inside, graphs), strict=True)):
        assert origins(mine.location) == origins(its.location)


def test_the_program_in_a_report_of_release_mode_names_nothing(tmp_path: Path) -> None:
    exported = torch.export.export(Model().eval(), (torch.ones(2, 8),))
    released = TorchConverter(mode=TorchConverter.Mode.RELEASE).add_exported_program(exported).to_coreai()
    path = released.html(tmp_path / "released.html")
    text = zlib.decompress(base64.b64decode(data_of(path)["program"])).decode()
    assert "first" not in text
    assert not any(origins(op.location) for graph in program_in(path).graphs for op in ops_inside(graph))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<html></html>", "no report of a program"),
        ('<script id="data" type="application/json">[1]</script>', "no report of a program"),
        ('<script id="data" type="application/json">{</script>', "damaged"),
        ('<script id="data" type="application/json">{"program": "eNo="}</script>', "cut off"),
        ('<script id="data" type="application/json">{"program": "AAAA"}</script>', "damaged"),
    ],
)
def test_other_files_are_no_reports(content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text(content)
    with pytest.raises(PatcompError, match=reason):
        program_in(tmp_path / "x.html")


def test_the_command_compares_reports_and_writes_a_page(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    for name in ("relu", "tanh"):
        assert patcomp("convert", f"nets.py:{name}", "--text", f"{name}.mlir", "--html", f"{name}.html", "-q").code == 0
    same = patcomp("diff", "relu.html", "nets.py:relu")
    assert (same.code, same.out) == (0, "the programs have the same structure\n")
    assert "note: the values of weights are not compared, because relu.html has none" in same.err
    done = patcomp("diff", "relu.html", "tanh.mlir", "--html", "pages/difference.html")
    assert done.code == 3
    assert "+ coreai.tanh" in done.out
    page = tmp_path / "pages" / "difference.html"
    assert data_of(page)["difference"]["names"] == ["relu.html", "tanh.mlir"]
    assert "patcomp diff relu.html tanh.mlir --html pages/difference.html" in page.read_text().partition("</h1>")[2]
    report = (tmp_path / "relu.html").read_text()
    assert "<title>Net</title>" in report
    assert "patcomp convert nets.py:relu --text relu.mlir --html relu.html -q</span>" in report


def test_wrong_uses_of_the_command(patcomp: Command, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    missing = patcomp("diff", "none.html", "nets.py:relu")
    assert missing.code == 1
    assert missing.err.startswith("error: there is no file or folder none.html; a model is a file that")
    folder = patcomp("diff", "nets.py:relu", "nets.py:relu", "--html", ".")
    assert (folder.code, folder.err) == (2, "error: --html . is a folder; name a file\n")
    (tmp_path / "relu.html").write_text("<p>")
    other = patcomp("diff", "relu.html", "nets.py:relu")
    assert other.code == 1
    assert other.err == "error: relu.html is no report of a program; patcomp convert MODEL --html FILE writes one\n"

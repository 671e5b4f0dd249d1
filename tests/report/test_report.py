"""The HTML report: what its data says, and the page in a headless Chromium."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.compression import Alternative
from patcomp.emit.compressed import with_alternatives
from patcomp.emit.program import AIProgram
from patcomp.errors import Problem


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8, eps=1e-6)
        self.linear = nn.Linear(8, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(self.norm(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = Block(), nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        almost_gelu = 0.5 * h * (1 + torch.tanh(0.7 * (h + 0.05 * h**3)))
        return self.last(almost_gelu).softmax(-1)


def _program(model: nn.Module) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model.eval(), (torch.ones(2, 8),))).to_coreai()


@pytest.fixture(scope="module")
def program() -> AIProgram:
    return _program(Model())


@pytest.fixture(scope="module")
def report(program: AIProgram, tmp_path_factory: pytest.TempPathFactory) -> Path:
    check = program.verify_against(Model().eval(), (torch.ones(2, 8),), backends=["evaluator"], by="module")
    return program.html(tmp_path_factory.mktemp("report") / "new" / "report.html", verification=check)


def _data(path: Path) -> dict[str, Any]:
    found = re.search(r'type="application/json">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_data(program: AIProgram, report: Path) -> None:
    data = _data(report)
    assert [stage["name"] for stage in data["stages"]] == [name for name in program.stages if name != "emit"]
    last = data["stages"][-1]
    assert last["count"] == program.module.op_count() == sum(len(graph["ops"]["name"]) for graph in last["graphs"])
    text = str(program)
    for graph in last["graphs"]:
        assert all(data["texts"][number] in text for number in graph["ops"]["text"])
    assert {call[0] for call in data["composites"]} == set(program.composites)
    assert ["first_linear_weight", 64 * 8 * 4] in [[key.replace(".", "_"), size] for key, _, size, _ in data["weights"]]
    assert data["verification"]["passed"] is True


def test_same_model_gives_the_same_bytes(program: AIProgram, report: Path, tmp_path: Path) -> None:
    text = str(program)
    plain = program.html(tmp_path / "a.html").read_bytes()
    assert plain == _program(Model()).html(tmp_path / "b.html").read_bytes()
    assert str(program) == text
    timed = _data(program.html(tmp_path / "c.html", times=True))
    assert timed["stages"][1]["seconds"] > 0
    assert _data(report)["stages"][1]["seconds"] is None


def test_release_mode_shows_no_places(program: AIProgram, report: Path, tmp_path: Path) -> None:
    exported = torch.export.export(Model().eval(), (torch.ones(2, 8),))
    released = TorchConverter(mode=TorchConverter.Mode.RELEASE).add_exported_program(exported).to_coreai()
    check = released.verify_against(Model().eval(), (torch.ones(2, 8),), backends=["evaluator"], by="module")
    warning = Problem("a warning", "aten.add", node="add", module_path="first", source="test_report.py:3")
    released = replace(released, diagnostics=(warning,))
    path = released.html(tmp_path / "released.html", verification=check)
    assert "test_report.py:" in report.read_text(encoding="utf-8")
    assert "test_report.py:" not in path.read_text(encoding="utf-8")
    data, named = _data(path), _data(report)
    assert len(data["places"]) == len(named["places"])  # they stay apart
    texts = {data["texts"][number] for place in data["places"] if place and place[0] is None for number in place[1:]}
    assert texts == {""}
    assert data["verification"]["modules"] == []
    assert data["notes"] == [["warning", "a warning (op aten.add)"]]
    misses = [answer for _, answer in data["nearMisses"]]
    assert misses
    assert all("unknown source" in answer for answer in misses)
    assert "test_report.py:" in named["nearMisses"][0][1]


def test_page_needs_nothing_else(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", page)
    assert "Copyright (c) 2012-2014 Chris Pettitt" in page


def test_notebook_summary(program: AIProgram) -> None:
    shown = program._repr_html_()
    assert "<script" not in shown
    assert "rms_norm" in shown
    assert "tensor&lt;2x8xf32&gt;" in shown or "@main" in shown


CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def page(report: Path) -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
    if CHROMIUM is None:
        pytest.skip("the page is tested in Chromium, which is not installed: apt-get install chromium")
    options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=options)
        opened = browser.new_page(viewport={"width": 1400, "height": 900})
        opened.problems = []
        opened.requests = []
        opened.on("pageerror", lambda error: opened.problems.append(str(error)))
        opened.on("console", lambda said: opened.problems.append(said.text) if said.type == "error" else None)
        opened.on("request", lambda request: opened.requests.append(request.url))
        opened.goto(report.as_uri())
        opened.wait_for_selector("body[data-ready]")
        yield opened
        browser.close()


def test_page_opens_without_network(page: Any, report: Path) -> None:
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith("data:")] == [report.as_uri()]
    assert page.locator("#stages button").count() == len(_data(report)["stages"])


def test_module_expands_by_keyboard(page: Any) -> None:
    page.keyboard.press("1")
    page.click("#collapse")
    before = page.locator("#drawing .node").count()
    page.locator("#drawing .node.module:not(.open)").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#drawing .node").count() > before
    page.keyboard.press("Enter")
    assert page.locator("#drawing .node").count() == before


def test_op_shows_its_rule_and_origin(page: Any, program: AIProgram) -> None:
    page.locator("#stages button", has_text="optimize").click()
    page.fill("#search", "softmax")
    page.locator("#panel .link", has_text="coreai.softmax").first.click()
    details = page.inner_text("#details")
    assert "Made by" in details
    assert "test_report.py:" in details
    assert "Before, in state" in details
    assert page.locator("#drawing .node.selected").count() == 1
    assert page.inner_text("#details pre.ir") in str(program)


def test_rule_shows_what_it_consumed_and_produced(page: Any) -> None:
    page.fill("#search", "")
    page.locator("#stages button", has_text="recover").click()
    page.get_by_role("button", name="rms_norm", exact=True).first.click()
    details = page.inner_text("#details")
    assert "normalize: consumed" in details
    assert "recover: produced" in details
    produced = page.locator("#details .sides").first.locator("div").nth(1).inner_text()
    assert "patcomp.region" in produced


@pytest.mark.parametrize(("rule", "reason"), [("gelu of tanh", "not 0.044715"), ("layer_norm", "program.why_not")])
def test_rule_that_rewrote_nothing_says_why(page: Any, rule: str, reason: str) -> None:
    page.fill("#search", rule)
    page.locator("#panel").get_by_role("button", name=rule, exact=True).click()
    page.fill("#search", "")
    details = page.inner_text("#details")
    assert "It rewrote nothing" in details
    assert reason in details


def test_two_stages_side_by_side(page: Any) -> None:
    page.locator("#stages button", has_text="recover").click()
    page.get_by_role("button", name="rms_norm", exact=True).first.click()
    assert page.locator("#other-stage option:checked").inner_text().startswith("normalize ")
    assert page.inner_text("#stage") == "recover"
    assert "aten.pow" in page.locator("#other-drawing .node.op.marked").first.text_content()
    assert "rms_norm" in page.locator("#drawing .node.op.marked").first.text_content()
    page.select_option("#other-stage", "3")  # lower, which the selected op has a counterpart in
    page.locator("#drawing .node.op.marked").first.click()
    assert page.locator("#other-drawing .node.op.marked").count() >= 1
    page.locator("#other-drawing .node.op.marked").first.click()
    assert "Before, in recover" in page.inner_text("#details")
    assert page.locator("#drawing .node.op.marked").count() == 1
    page.keyboard.press("c")
    assert page.locator("#other-drawing").is_hidden()
    assert page.locator("#drawing .node.marked").count() == 0
    assert page.problems == []


def test_only_what_is_in_sight_is_drawn(page: Any) -> None:
    page.locator("#stages button", has_text="import").click()
    every = (
        """(node) => node.items.flatMap((item) => [item, ...(item.isGroup ? (item.expanded = true, all(item)) : [])])"""
    )
    count = page.evaluate(f"() => {{ const all = {every}; return all(main.drawing.root).length; }}")
    page.evaluate(
        "() => { forget(main.drawing.root); main.drawing.toggle(main.drawing.root.items.find((i) => i.isGroup)); }"
    )
    page.evaluate("() => { main.drawing.scale = 4; main.drawing.x = main.drawing.y = 0; main.drawing.draw(); }")
    few = page.locator("#drawing .node").count()
    assert 0 < few < count
    page.locator("#drawing").press("0")
    assert page.locator("#drawing .node").count() > few


def test_tab_moves_the_drawing_to_the_focus(page: Any) -> None:
    page.locator("#stages button", has_text="import").click()
    page.click("#collapse")
    page.evaluate("() => { main.drawing.scale = 4; main.drawing.draw(); }")
    last = page.locator("#drawing .node").last
    last.evaluate("(node) => node.focus()")
    page.wait_for_function("() => main.drawing.pending === false")
    box, view = page.locator("#drawing .node:focus").bounding_box(), page.locator("#drawing").bounding_box()
    assert view["x"] <= box["x"] + box["width"] / 2 <= view["x"] + view["width"]
    assert view["y"] <= box["y"] + box["height"] / 2 <= view["y"] + view["height"]
    page.click("#fit")


def test_modules_with_other_numbers(page: Any, program: AIProgram, tmp_path: Path) -> None:
    check = program.verify_against(Model().eval(), (torch.ones(2, 8),), backends=["evaluator"], by="module")
    *others, last = check.modules
    check = replace(check, modules=(*others, replace(last, error=replace(last.error, max_abs=1.0))))
    path = program.html(tmp_path / "failed.html", verification=check)
    opened = page.context.browser.new_page()
    opened.set_default_timeout(5000)
    opened.goto(path.as_uri())
    opened.locator("#stages button", has_text="import").click()
    assert "last" in opened.locator("#drawing .node.module.failed").first.text_content()
    opened.get_by_role("tab", name="Check", exact=True).click()
    opened.locator("#panel").get_by_role("button", name="last", exact=True).click()
    assert opened.inner_text("#details h2") == "last"
    assert "FAILED" in opened.inner_text("#details")
    assert "last" in opened.locator("#drawing .node.selected").text_content()
    opened.close()


def test_compressed_weights(page: Any, program: AIProgram, tmp_path: Path) -> None:
    small = program.compress({"scheme": "w4", "threshold": 0}, inputs=(torch.ones(2, 8),))
    path = small.html(tmp_path / "small.html")
    assert _data(path)["stages"][-1]["name"] == "compress"
    assert [rule[0] for rule in _data(path)["stages"][-1]["rules"]] == ["compress w4"]
    opened = page.context.browser.new_page()
    opened.set_default_timeout(5000)
    opened.goto(path.as_uri())
    opened.get_by_role("tab", name="Weights", exact=True).click()
    shown = opened.inner_text("#panel")
    assert "first.linear.weight" in shown
    assert "w4" in shown
    assert "dB against the program before" in shown
    opened.get_by_role("tab", name="Rules", exact=True).click()
    opened.locator("#panel").get_by_role("button", name="compress w4", exact=True).click()
    assert "blockwise_shift_scale" in opened.inner_text("#details")
    opened.close()


def test_a_loaded_program_has_a_plot_of_what_was_measured(page: Any, program: AIProgram, tmp_path: Path) -> None:
    small = AIProgram(program.module).compress({"scheme": "w4", "threshold": 0})
    tried = [Alternative("before", 2048, 2.0), Alternative("w8", 512, 2.001), Alternative("w4", 300, 2.1)]
    path = with_alternatives(small, tried).html(tmp_path / "small.html")
    assert [stage["name"] for stage in _data(path)["stages"]] == ["program"]
    opened = page.context.browser.new_page()
    opened.set_default_timeout(5000)
    opened.goto(path.as_uri())
    opened.get_by_role("tab", name="Weights", exact=True).click()
    points = opened.locator("svg.plot circle")
    assert points.count() == 2
    assert "w4: 300 B, loss 2.1000" in opened.locator("svg.plot").inner_html()
    (left, low), (right, high) = ([float(points.nth(at).get_attribute(axis)) for axis in ("cx", "cy")] for at in (1, 0))
    assert left < right  # w4 is smaller than w8, and loses more
    assert low < high
    opened.close()


def test_lists(page: Any) -> None:
    for tab, wanted in {
        "Weights": "2.0 kB",
        "Composites": "rms_norm",
        "Notes": "not 0.044715",
        "Check": "passed",
    }.items():
        page.get_by_role("tab", name=tab, exact=True).click()
        assert wanted in page.inner_text("#panel")
    assert page.problems == []

"""The page of a report in a headless Chromium: on a desktop, on a phone, in light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from patcomp.compression import Alternative
from patcomp.program.compressed import with_alternatives
from patcomp.program.program import AIProgram
from tests.report.conftest import Model, converted, data_of


@pytest.fixture(scope="module")
def page(report: Path, opened: Callable[..., Any]) -> Iterator[Any]:
    found = opened(report)
    yield found
    found.close()


def test_page_opens_without_network(page: Any, report: Path) -> None:
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith("data:")] == [report.as_uri()]
    assert page.locator("#stages button").count() == len(data_of(report)["stages"])


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
    page.locator("#panel .found", has_text="softmax").first.click()
    details = page.inner_text("#details")
    assert "Made by" in details
    assert "conftest.py:" in details
    assert "Before, in state" in details
    assert page.locator("#drawing .node.selected").count() == 1
    assert page.inner_text("#details pre.ir") in str(program)


def test_rule_shows_what_it_consumed_and_produced(page: Any) -> None:
    page.get_by_role("tab", name="Rules", exact=True).click()
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
    page.locator("#panel .found", has_text=rule).first.click()
    details = page.inner_text("#details")
    assert "It rewrote nothing" in details
    assert reason in details


def test_two_stages_side_by_side(page: Any) -> None:
    page.get_by_role("tab", name="Rules", exact=True).click()
    page.locator("#stages button", has_text="recover").click()
    page.get_by_role("button", name="rms_norm", exact=True).first.click()
    assert page.locator("#other-stage option:checked").inner_text().startswith("normalize ")
    assert page.inner_text("#stage") == "recover"
    assert "pow" in page.locator("#other-drawing .node.op.marked").first.text_content()
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


def test_modules_with_other_numbers(opened: Callable[..., Any], program: AIProgram, tmp_path: Path) -> None:
    check = program.verify_against(Model().eval(), (torch.ones(2, 8),), backends=["evaluator"], by="module")
    *others, last = check.modules
    check = replace(check, modules=(*others, replace(last, error=replace(last.error, max_abs=1.0))))
    path = program.html(tmp_path / "failed.html", verification=check)
    page = opened(path)
    page.locator("#stages button", has_text="import").click()
    assert "last" in page.locator("#drawing .node.module.failed").first.text_content()
    page.get_by_role("tab", name="Check", exact=True).click()
    page.locator("#panel").get_by_role("button", name="last", exact=True).click()
    assert page.inner_text("#details h2") == "last"
    assert "FAILED" in page.inner_text("#details")
    assert "last" in page.locator("#drawing .node.selected").text_content()
    page.close()


def test_compressed_weights(opened: Callable[..., Any], program: AIProgram, tmp_path: Path) -> None:
    small = program.compress({"scheme": "w4", "threshold": 0}, inputs=(torch.ones(2, 8),))
    path = small.html(tmp_path / "small.html")
    assert data_of(path)["stages"][-1]["name"] == "compress"
    assert [rule[0] for rule in data_of(path)["stages"][-1]["rules"]] == ["compress w4"]
    page = opened(path)
    page.get_by_role("tab", name="Weights", exact=True).click()
    shown = page.inner_text("#panel")
    assert "first.linear.weight" in shown
    assert "w4" in shown
    assert "dB against the program before" in shown
    page.get_by_role("tab", name="Rules", exact=True).click()
    page.locator("#panel").get_by_role("button", name="compress w4", exact=True).click()
    assert "blockwise_shift_scale" in page.inner_text("#details")
    modules = "opsOf(LAST, main.graph).filter((op) => op.shortName === 'blockwise_shift_scale').map(pathOf)"
    assert page.evaluate(modules) == ["first.linear", "last"]  # those that read the weights
    page.close()


def test_a_loaded_program_has_a_plot_of_what_was_measured(
    opened: Callable[..., Any], program: AIProgram, tmp_path: Path
) -> None:
    small = AIProgram(program.module).compress({"scheme": "w4", "threshold": 0})
    tried = [Alternative("before", 2048, 2.0), Alternative("w8", 512, 2.001), Alternative("w4", 300, 2.1)]
    path = with_alternatives(small, tried).html(tmp_path / "small.html")
    assert [stage["name"] for stage in data_of(path)["stages"]] == ["program"]
    page = opened(path)
    page.get_by_role("tab", name="Weights", exact=True).click()
    points = page.locator("svg.plot circle")
    assert points.count() == 2
    assert "w4: 300 B, loss 2.1000" in page.locator("svg.plot").inner_html()
    (left, low), (right, high) = ([float(points.nth(at).get_attribute(axis)) for axis in ("cx", "cy")] for at in (1, 0))
    assert left < right  # w4 is smaller than w8, and loses more
    assert low < high
    page.close()


def test_lists(page: Any) -> None:
    for tab, wanted in {
        "Summary": "The numbers are PyTorch's",
        "Audit": "f32 values",
        "Weights": "2.0 kB",
        "Composites": "rms_norm",
        "Notes": "not 0.044715",
        "Check": "passed",
    }.items():
        page.get_by_role("tab", name=tab, exact=True).click()
        assert wanted in page.inner_text("#panel")
    assert page.problems == []


def test_the_summary_comes_first(page: Any) -> None:
    page.get_by_role("tab", name="Summary", exact=True).click()
    first, *figures = page.locator("#panel .verdict b, #panel .figure b").all_inner_texts()
    assert first == "✓ The numbers are PyTorch's"
    numbers = 8 * 64 + 64 * 4  # of the products' weights, each used for two rows
    assert figures[1] == f"{2 * numbers / 1000:.1f} k"
    assert figures[0].endswith(" kB")


def test_an_op_shows_its_constants_as_lines_and_its_operands_by_name(page: Any) -> None:
    page.locator("#stages button", has_text="optimize").click()
    page.click("#collapse")
    page.fill("#search", "softmax")
    page.locator("#panel .found", has_text="softmax").first.click()
    assert "axis 1" in page.locator("#drawing .node.selected").text_content()
    assert "constant" not in page.locator("#drawing").text_content()
    operands = page.locator("#details h3", has_text="Operands").locator("xpath=following-sibling::ul[1]").inner_text()
    assert operands.startswith("input %")
    assert "constant" not in operands
    page.fill("#search", "add")
    page.evaluate("() => goToOp(opsOf(main.stage, main.graph).find((op) => op.name.endsWith('broadcasting_mul')))")
    assert page.locator("#drawing .operand").all_inner_texts() or page.locator("#drawing .edge.input").count() > 0


def test_an_edge_reaches_the_port_of_an_open_box(page: Any) -> None:
    page.locator("#stages button", has_text="optimize").click()
    page.evaluate("() => showModule('first.linear')")
    page.evaluate("() => { const node = main.drawing.selected; if (!node.expanded) main.drawing.toggle(node); }")
    ports = page.evaluate(
        """() => {
          const node = main.drawing.selected, around = node.parent;
          const edge = layOut(around).edges.find(({ to }) => to === node);
          const inner = layOut(node).edges.find(({ from }) => !from);
          const end = edge.points.at(-1), start = inner.points[0];
          return [end.x - node.spot.x, end.y - node.spot.y, start.x, start.y];
        }"""
    )
    assert ports[:2] == pytest.approx(ports[2:])
    assert page.locator("#drawing .port").count() >= 2


def test_search_is_grouped_and_has_no_constants(page: Any) -> None:
    page.locator("#stages button", has_text="optimize").click()
    page.fill("#search", "linear")
    headings = page.locator("#panel h3").all_inner_texts()
    assert [heading.split()[1].rstrip("s") for heading in headings] == ["module", "op", "weight", "rule"]
    shown = page.inner_text("#panel")
    assert "constant" not in shown
    assert "2x64 f32" in shown
    page.fill("#search", "no such thing")
    assert "Nothing is called no such thing" in page.inner_text("#panel")
    page.fill("#search", "")


def test_a_link_leads_to_the_op_that_it_was_copied_from(page: Any, report: Path, opened: Callable[..., Any]) -> None:
    page.locator("#stages button", has_text="recover").click()
    page.fill("#search", "softmax")
    page.locator("#panel .found", has_text="softmax").first.click()
    page.fill("#search", "")
    address, details = page.evaluate("() => location.hash"), page.inner_text("#details")
    assert address.startswith("#recover/")
    other = opened(report, address)
    assert other.inner_text("#stage") == "recover"
    assert other.inner_text("#details") == details
    other.evaluate("() => { location.hash = '#lower/module=first.norm'; }")
    other.wait_for_function("() => at('stage').textContent === 'lower'")
    assert other.inner_text("#details h2") == "first.norm"
    other.evaluate("() => { location.hash = '#lower/no_such_op'; }")
    other.wait_for_function("() => main.message.textContent === 'lower has no op no_such_op'")
    other.close()


def test_another_stage_is_shown_at_the_same_place(page: Any) -> None:
    page.locator("#stages button", has_text="lower").click()
    page.evaluate("() => { showModule('first.linear'); main.drawing.scale = 1.5; main.drawing.draw(); }")
    top = (
        "() => main.drawing.y + placeOf(modulesOf(main.drawing.root, true).get('first.linear')).y * main.drawing.scale"
    )
    before = page.evaluate(top)
    page.locator("#stages button", has_text="outline").click()
    assert page.evaluate("() => main.drawing.scale") == 1.5
    assert page.evaluate(top) == pytest.approx(before, abs=40)
    width = page.evaluate("() => main.drawing.svg.clientWidth / 2 - main.drawing.x")
    page.keyboard.press("c")
    assert page.evaluate("() => main.drawing.scale") == 1.5
    assert page.evaluate("() => main.drawing.svg.clientWidth / 2 - main.drawing.x") == pytest.approx(width, abs=1)
    assert page.evaluate("() => other.drawing.scale") == 1.5
    page.keyboard.press("c")


def test_where_the_bytes_and_the_work_are(page: Any) -> None:
    page.get_by_role("button", name="Bytes and work").click()
    titles = page.locator("#map figcaption").all_inner_texts()
    assert [title.rsplit(" ", 2)[0].split()[0] for title in titles] == ["Weights", "Multiply-adds", "Tensors"]
    shares = page.evaluate(
        r"""() => [...document.querySelectorAll('#map figure:nth-child(1) .box:not(.module)')].map(
          (box) => [box.title.split('\n')[0], box.offsetWidth * box.offsetHeight])"""
    )
    areas = dict(shares)
    linear = next(area for title, area in areas.items() if "64x8" in title or "8x64" in title)
    last = next(area for title, area in areas.items() if "64x4" in title or "4x64" in title)
    assert 1.6 < linear / last < 2.4  # 512 and 256 numbers
    page.locator("#map figure:nth-child(3) .box.module").first.click(position={"x": 6, "y": 6})
    assert len(page.locator("#map .crumbs .link").all()) == 2
    page.locator("#map .box:not(.module)").first.click()
    page.get_by_role("button", name="Show it in the graph").click()
    assert page.locator("#map").is_hidden()


def test_a_finding_of_the_audit_is_drawn_on_the_graph(page: Any) -> None:
    page.locator("#stages button", has_text="optimize").click()
    page.get_by_role("tab", name="Audit", exact=True).click()
    finding = page.locator("#panel .finding .link", has_text="f32 values")
    finding.click()
    assert page.locator("#drawing .node.flagged").count() > 0
    assert page.locator("#drawing .flag").count() > 0
    page.keyboard.press("m")
    assert page.locator("#map figure:nth-child(3) .box.flagged").count() > 0
    page.keyboard.press("m")
    finding.click()
    assert page.locator("#drawing .flag").count() == 0


def test_the_minimap_moves_the_drawing(page: Any) -> None:
    page.locator("#stages button", has_text="import").click()
    page.click("#fit")
    page.evaluate("() => { main.drawing.scale = 3; main.drawing.draw(); }")
    assert page.locator("#minimap").is_visible()
    before = page.evaluate("() => main.drawing.y")
    box = page.locator("#minimap").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 3)
    assert page.evaluate("() => main.drawing.y") < before
    page.evaluate("() => { main.drawing.scale = 0.05; main.drawing.x = main.drawing.y = 20; main.drawing.draw(); }")
    assert page.locator("#minimap").is_hidden()


def test_a_phone_shows_one_part_at_a_time(report: Path, opened: Callable[..., Any]) -> None:
    page = opened(report, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    view = page.locator("#drawing").bounding_box()
    assert view["width"] == 390
    assert view["height"] > 500
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    page.get_by_role("button", name="Lists").click()
    page.locator("#panel .verdict").wait_for()
    page.locator("#search").fill("softmax")
    page.locator("#panel .found", has_text="softmax").first.click()
    selected, sheet = page.locator("#drawing .node.selected").bounding_box(), page.locator("#details").bounding_box()
    assert selected["y"] + selected["height"] < sheet["y"]
    page.get_by_role("button", name="Close the details").click()
    assert page.locator("#details").is_hidden()
    page.get_by_role("button", name="Bytes and work").click()
    widths = page.locator("#map .area").evaluate_all("(areas) => areas.map((area) => area.clientWidth)")
    assert all(width > 300 for width in widths)
    assert page.problems == []
    page.close()


def test_two_fingers_zoom_and_one_moves(page: Any) -> None:
    moved = page.evaluate(
        """() => {
          const { drawing } = main, { left, top } = drawing.svg.getBoundingClientRect();
          const touch = (kind, pointerId, x, y) => (kind === 'pointerdown' ? drawing.svg : window).dispatchEvent(
            new PointerEvent(kind, { pointerId, clientX: left + x, clientY: top + y, bubbles: true }));
          drawing.fit();
          const { scale, x } = drawing;
          touch('pointerdown', 1, 100, 100);
          touch('pointermove', 1, 130, 100);
          const moved = drawing.x - x;
          touch('pointerdown', 2, 230, 100);
          touch('pointermove', 2, 330, 100);
          touch('pointerup', 1, 130, 100);
          touch('pointerup', 2, 330, 100);
          const zoomed = drawing.scale / scale;
          touch('pointermove', 1, 0, 0);
          return [moved, zoomed, drawing.scale / scale];
        }"""
    )
    assert moved == [30, 2, 2]
    page.click("#fit")


def test_dark_pages_are_dark(report: Path, opened: Callable[..., Any]) -> None:
    page = opened(report, color_scheme="dark")
    brightness = r"""(element) => {
      const parts = getComputedStyle(element)[%r].match(/\d+/g).slice(0, 3);
      return parts.reduce((sum, part) => sum + Number(part), 0) / 3;
    }"""
    assert page.locator("body").evaluate(brightness % "backgroundColor") < 60
    assert page.locator("body").evaluate(brightness % "color") > 180
    assert page.locator("#drawing .node .card").first.evaluate(brightness % "fill") < 90
    page.close()


def test_check_breaks_no_words(page: Any) -> None:
    page.get_by_role("tab", name="Check", exact=True).click()
    heights = page.locator("#panel td.number, #panel .good").evaluate_all(
        "(cells) => cells.map((cell) => cell.getClientRects().length)"
    )
    assert heights
    assert set(heights) == {1}


class Shared(nn.Module):
    """An activation that is called several times, and a value that every layer reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.activation = nn.ModuleList(nn.Linear(4, 4) for _ in range(6)), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.cos()
        for layer in self.layers:
            y = self.activation(layer(y)) * x
        return y


def test_edges_go_down_and_values_of_many_readers_along_a_lane(opened: Callable[..., Any], tmp_path: Path) -> None:
    path = converted(Shared(), torch.ones(2, 4)).html(tmp_path / "shared.html")
    page = opened(path, "#import")
    level = """() => {
      const root = main.drawing.root, edges = layOut(root).edges;
      const sets = lanesOf(root);
      return {
        boxes: root.items.filter((item) => item.path === 'activation').length,
        up: edges.filter(({ from, to }) => from.spot.y >= to.spot.y).length,
        lanes: [...sets.values()].map(({ readers }) => readers.size),
      };
    }"""
    assert page.evaluate(level) == {"boxes": 6, "up": 0, "lanes": [6]}
    assert page.problems == []
    page.close()


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(11))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def test_equal_layers_are_laid_out_once_and_as_alone(opened: Callable[..., Any], tmp_path: Path) -> None:
    page = opened(converted(nn.Sequential(Layers())).html(tmp_path / "layers.html"))
    assert page.locator("#map").is_visible()
    numbers = [str(number) for number in range(11)]
    assert page.locator("#details tbody .link").all_inner_texts() == [f"0.layers.{number}" for number in numbers]
    boxes = page.locator("#map figure").nth(1).locator(".module span").all_inner_texts()
    titles = [title.split()[0] for title in boxes]
    assert [title for title in titles if title.isdecimal()] == numbers
    assert page.evaluate("() => main.drawing.root.items.filter((item) => item.expanded).map(({ path }) => path)") == [
        "0"
    ]
    groups, spots, levels, alone = page.evaluate(
        """() => {
          const groups = [], open = (node) => node.items.filter((item) => item.isGroup).forEach((item) => {
            groups.push(item);
            item.expanded = true;
            item.layout = null;
            open(item);
          });
          open(main.drawing.root);
          forget(main.drawing.root);
          layOut(main.drawing.root);
          const spots = JSON.stringify(groups.map(({ spot }) => spot)), levels = arrangements.size;
          for (const group of groups) group.layout = null;
          for (const group of groups.reverse()) arrangements.clear(), layOut(group);
          forget(main.drawing.root);
          layOut(main.drawing.root);
          return [groups.length, spots, levels, JSON.stringify(groups.reverse().map(({ spot }) => spot))];
        }"""
    )
    assert groups >= 11 * 3
    assert levels < groups / 2
    assert spots == alone
    page.close()

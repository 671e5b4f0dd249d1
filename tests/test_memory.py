"""Weights that are mapped from a file are neither copied nor read by a conversion."""

import json
from pathlib import Path

import pytest

from tests.helpers import warm

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux reports what a process has read")

_MODEL = """
import sys
import torch
from torch import nn

path, width, layers, way = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

def resident():
    "the kilobytes of the file that this process has touched, and those of its own memory"
    touched, mapped = 0, False
    for line in open("/proc/self/smaps"):
        first = line.split()[0]
        if not first.endswith(":"):
            mapped = line.rstrip().endswith(path)
        elif first == "Rss:" and mapped:
            touched += int(line.split()[1])
    own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))
    return touched, own

if way == "torch":
    weights = torch.load(path, mmap=True)
else:
    from safetensors.torch import load_file
    weights = load_file(path)
with torch.device("meta"):
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers))).eval()
model.load_state_dict(weights, assign=True)
from patcomp import TorchConverter
small = torch.export.export(nn.Linear(2, 2).eval(), (torch.ones(1, 2),))
TorchConverter().add_exported_program(small).to_coreai()  # what the first conversion of a process imports and makes
exported = torch.export.export(model, (torch.ones(1, width),))
before = resident()
program = TorchConverter().add_exported_program(exported).to_coreai()
text = program.text()
after = resident()
assert text.count("dense_resource") == layers, text
print(after[0], after[1] - before[1])
"""


def _write_sparse(path: Path, width: int, layers: int) -> None:
    """A safetensors file whose weights have one element that is not 0. It takes no space on the disk."""
    size = 4 * width * width
    entries = {
        f"{index}.weight": {
            "dtype": "F32", "shape": [width, width], "data_offsets": [index * size, (index + 1) * size],
        }
        for index in range(layers)
    }  # fmt: skip
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(layers):
            file.seek(size - 1, 1)
            file.write(b"\x40")


def _measure(path: Path, width: int, layers: int, way: str) -> tuple[int, int]:
    """The kilobytes of the file that a process touches when it converts the model, and those that it allocates."""
    script = path.with_name("script.py")
    script.write_text(_MODEL)
    done = warm.run(path.parent, script.name, str(path), str(width), str(layers), way)
    assert done.returncode == 0, done.stderr
    touched, allocated = map(int, done.stdout.split())
    return touched, allocated


def _check(path: Path, width: int, layers: int, way: str) -> None:
    weights = 4 * width * width * layers // 1024
    touched, allocated = _measure(path, width, layers, way)
    assert touched < weights * 0.05 + 1024  # a page that is read brings its neighbours
    assert allocated < weights * 0.05 + 10_000


def test_torch_load(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "weights.pt"
    torch.save({f"{index}.weight": torch.rand(2048, 2048) for index in range(4)}, path)
    _check(path, 2048, 4, "torch")


def test_safetensors(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "weights.safetensors"
    _write_sparse(path, 2048, 8)
    _check(path, 2048, 8, "safetensors")


@pytest.mark.slow
def test_eight_gigabytes(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "weights.safetensors"
    _write_sparse(path, 8192, 32)
    _check(path, 8192, 32, "safetensors")

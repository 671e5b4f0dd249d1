"""`--fix NAME=SIZE`: sizes of a model's open dimensions, for the devices that take fixed sizes only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.command import Command
from tests.models.tasks.folders import folder

NETS = """
import torch
from torch.export import Dim


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, x, y, times: int):
        return self.linear(x) * times + y.sum(0), y[: x.shape[0]]


def net():
    batch = Dim("batch", min=2, max=16)
    shapes = {"x": {0: batch}, "y": {0: 2 * batch}, "times": Dim.DYNAMIC(min=2, max=9)}
    return torch.export.export(Net().eval(), (torch.rand(3, 64), torch.rand(6, 64), 3), dynamic_shapes=shapes)
"""


@pytest.fixture
def nets(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)


@pytest.mark.usefixtures("nets")
def test_programs_and_files(patcomp: Command, tmp_path: Path) -> None:
    """A smaller and a larger size than the example's, with derived sizes and a number."""
    open_size = patcomp("convert", "nets.py:net", "--text", "a.mlir", "--target", "neural_engine")
    assert open_size.code == 1
    assert (
        "fix each of them, such as fixed={'batch': 16} (--fix batch=16):\n  1. the dimension batch (2 to 16): x, y"
        in (open_size.err)
    )
    assert not (tmp_path / "a.mlir").exists()
    for size in (2, 7):
        options = ("--target", "neural_engine", "--fix", f"batch={size}", "--fix", "s0=4", "--verify", "--quiet")
        done = patcomp("convert", "nets.py:net", "--text", "a.mlir", *options)
        assert done.code == 0, done.err
        text = (tmp_path / "a.mlir").read_text()
        assert f"%x: tensor<{size}x64xf16>" in text
        assert f"%y: tensor<{2 * size}x64xf16>" in text
        assert "?" not in text


@pytest.mark.usefixtures("nets")
def test_other_commands(patcomp: Command) -> None:
    done = patcomp("audit", "nets.py:net", "--target", "neural_engine", "--run", "--fix", "batch=4", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["clean"]
    done = patcomp("audit", "nets.py:net", "--target", "neural_engine")
    assert (done.code, "(--fix batch=16)" in done.err) == (1, True)
    done = patcomp("compress", "nets.py:net", "--target", "neural_engine", "--fix", "batch=4", "--check", "inputs")
    assert done.code == 0, done.err
    assert patcomp("convert", "nets.py:net", "--text", "a.mlir", "--fix", "batch=4", "--quiet").code == 0
    done = patcomp("audit", "a.mlir", "--target", "neural_engine", "--fix", "batch=4")
    assert (done.code, done.err) == (
        2, "error: --fix goes with a model, whose sizes are fixed when it is converted; a.mlir is converted\n",
    )  # fmt: skip


@pytest.mark.usefixtures("nets")
def test_several_sizes(patcomp: Command, tmp_path: Path) -> None:
    """Each size is an entry point, which is compared with the model on inputs of its size, and audited."""
    options = ("--target", "neural_engine", "--fix", "s0=4", "--sizes", "batch=2,7")
    done = patcomp("convert", "nets.py:net", "--text", "a.mlir", "--verify", *options)
    assert done.code == 0, done.err
    assert done.err.count("against eager PyTorch: passed") == 2, done.err
    assert [f"main_{size}  neural_engine: " in done.err for size in (2, 7)] == [True, True]
    assert "coreai.graph @main_7(%x: tensor<7x64xf16>" in (tmp_path / "a.mlir").read_text()
    done = patcomp("audit", "nets.py:net", "--json", *options)
    assert (done.code, {name: each["clean"] for name, each in json.loads(done.out).items()}) == (
        0, {"main_2": True, "main_7": True},
    )  # fmt: skip


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("fix", "code", "message"),
    [
        (("batch",), 2, "--fix batch must have the form NAME=SIZE, such as length=128"),
        (("batch=2.5",), 2, "--fix batch=2.5 must have the form NAME=SIZE, such as length=128"),
        (("batch=\u0665",), 2, "--fix batch=\u0665 must have the form NAME=SIZE, such as length=128"),
        (("batch=2", "batch=3"), 2, "--fix gives two sizes to batch, 2 and 3"),
        (("batch=17",), 1, "batch cannot be 17; there are batch (2 to 16), s0 (2 to 9)"),
        (("length=2",), 1, "no dimension is called 'length'; there are batch (2 to 16), s0 (2 to 9)"),
    ],
)
def test_what_is_refused(fix: tuple[str, ...], code: int, message: str, patcomp: Command, tmp_path: Path) -> None:
    done = patcomp("convert", "nets.py:net", "--text", "a.mlir", *[part for each in fix for part in ("--fix", each)])
    assert (done.code, done.err) == (code, f"error: {message}\n")
    assert not (tmp_path / "a.mlir").exists()


def test_a_folder(patcomp: Command, tmp_path: Path) -> None:
    folder(tmp_path / "bert", "BertForTokenClassification")
    convert = ("convert", "bert", "--text", "a.mlir", "--target", "neural_engine", "--quiet")
    assert "the dimension length (2 to 64): input_ids, attention_mask" in patcomp(*convert).err
    done = patcomp(*convert, "--fix", "length=24")
    assert done.code == 0, done.err
    assert "tensor<1x24x2xf16>" in (tmp_path / "a.mlir").read_text()


@pytest.mark.slow
def test_a_folder_of_several_functions(patcomp: Command, tmp_path: Path) -> None:
    """Whose caches have open sizes; each function takes the sizes that it has."""
    folder(tmp_path / "t5", "T5ForConditionalGeneration")
    sizes = ("length=24", "new=1", "total=8", "key_capacity=32", "value_capacity=32")
    options = [part for each in sizes for part in ("--fix", each)]
    done = patcomp("convert", "t5", "-o", "t5.aimodel", "--target", "neural_engine", "--verify", *options)
    assert done.code == 0, done.err
    assert done.err.count("against eager PyTorch: passed") == 2, done.err

"""What `convert --verify` and `verify` say of half precision, of compressed weights and of fixed sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from patcomp.program import verifying
from tests.helpers.command import Command

NETS = """
import torch
from torch import nn
from torch.export import Dim


class Overflows(nn.Module):
    def forward(self, x):
        y = x * 400.0
        return x + (y * y / 60000.0 - y * y * 0.0)


class Far(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("far", torch.full((1, 4), -1e6))

    def forward(self, x):
        return torch.where(x > 9, self.far, x)


def overflows(): return Overflows(), (torch.linspace(-2, 2, 8).reshape(1, 8),)
def far(): return Far(), (torch.rand(1, 4),)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)).eval(), (torch.randn(4, 256),)


def other():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)).eval(), (torch.randn(4, 256),)


class Open(nn.Module):
    def forward(self, x, y):
        return x * 2 + y.reshape(2, -1).sum(0)


def opened():
    length = Dim("length", min=2, max=16)
    return Open(), (torch.rand(3), torch.rand(6)), ({0: length}, {0: 2 * length})
"""


@pytest.fixture(autouse=True)
def nets(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)


def test_half_precision_that_overflows_is_not_written(patcomp: Command, tmp_path: Path) -> None:
    done = patcomp("convert", "nets.py:overflows", "--half", "--verify", "-o", "a.aimodel", "--json")
    assert done.code == 3
    assert "half precision first overflows in coreai.decomposable.broadcasting_mul (%mul_1 at nets.py:" in done.err
    assert "--keep-float32 mul_1 (keep=['mul_1'])" in done.err
    assert json.loads(done.out)["asset"] is None
    assert not (tmp_path / "a.aimodel").exists()
    assert patcomp("verify", "nets.py:overflows", "--half").code == 3


def test_ops_are_kept_in_float32(patcomp: Command, tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    convert = ("convert", "nets.py:overflows", "--half", "--verify", "-o", "a.aimodel")
    done = patcomp(*convert, "--keep-float32", "auto")
    assert done.code == 0, done.err
    assert "in float32  %" in done.err
    assert patcomp("verify", "nets.py:overflows", "a.aimodel", "--half").code == 0
    named = done.err.partition("in float32  ")[2].splitlines()[0].split(", ")
    done = patcomp(*convert, "--quiet", *[part for name in named for part in ("--keep-float32", name)])
    assert (done.code, done.err) == (0, "")
    done = patcomp(*convert, "--keep-float32", named[0])
    assert done.code == 3
    done = patcomp(*convert, "--keep-float32", "auto", "--keep-float32", named[0])
    assert (done.code, done.err) == (2, "error: --keep-float32 auto finds all ops; give no others\n")
    done = patcomp("convert", "nets.py:net", "--text", "a.mlir", "--keep-float32", "auto")
    assert "in float32  no op: nothing overflows" in done.err


def test_weights_that_half_precision_cannot_hold_are_named(patcomp: Command) -> None:
    done = patcomp("convert", "nets.py:far", "--half", "--text", "a.mlir")
    assert "note: float16 cannot hold numbers of far, which become infinite" in done.err


def test_what_is_written_is_verified(patcomp: Command, tmp_path: Path) -> None:
    """The loss of 1 bit is too large, that of 8 bits is said, and both commands say the same."""
    pytest.importorskip("coreai")
    convert = ("convert", "nets.py:net", "--verify", "-o", "net.aimodel", "--compress")
    done = patcomp(*convert, "pal1")
    assert done.code == 3
    assert "against eager PyTorch, before compression: passed" in done.err
    assert "against its own weights on the evaluator: passed" in done.err
    assert "LOST" in done.err
    assert done.err.rstrip().endswith("% of output 'linear_1'; net.aimodel is not written")
    assert not (tmp_path / "net.aimodel").exists()
    assert patcomp(*convert[:2], "-o", "bad.aimodel", "--compress", "pal1").code == 0
    done = patcomp("verify", "nets.py:net", "bad.aimodel", "--json")
    loss = json.loads(done.out)["loss"][0]
    assert (done.code, loss["passed"], loss["rms"] > 0.5) == (3, False, True)
    done = patcomp(*convert, "w8")
    assert done.code == 0, done.err
    assert "kept" in done.err
    assert patcomp("verify", "nets.py:net", "net.aimodel").code == 0
    assert patcomp("verify", "nets.py:net", "net.aimodel", "--tolerance", "1e-6").code == 3
    assert patcomp("verify", "nets.py:other", "net.aimodel").code == 3


def test_the_asset_itself_runs(patcomp: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both backends run the draft of the asset, whose place is taken only afterwards."""
    pytest.importorskip("coreai")
    seen: list[tuple[str, str, bool]] = []
    run = verifying.run_entry_point

    def watched(program: Any, values: Any, entry: str, state: Any, backend: str, **options: Any) -> Any:
        seen.append((backend, options["asset"].path.name, (tmp_path / "net.aimodel").exists()))
        return run(program, values, entry, state, backend, **options)

    monkeypatch.setattr(verifying, "run_entry_point", watched)
    assert patcomp("convert", "nets.py:net", "--verify", "-o", "net.aimodel").code == 0
    assert seen == [("evaluator", "new.aimodel", False), ("runtime", "new.aimodel", False)]
    assert patcomp("convert", "nets.py:net", "-o", "plain.aimodel").code == 0
    files = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("net.aimodel", "plain.aimodel")]
    assert files[0] == files[1]


def test_an_asset_of_fixed_sizes_is_verified_with_its_model(patcomp: Command) -> None:
    pytest.importorskip("coreai")
    for fixed in ((), ("--fix", "length=7")):
        assert patcomp("convert", "nets.py:opened", "-o", "a.aimodel", *fixed).code == 0
        done = patcomp("verify", "nets.py:opened", "a.aimodel")
        assert done.code == 0, done.err
    assert patcomp("verify", "nets.py:opened", "a.aimodel", "--fix", "length=7").code == 0
    done = patcomp("verify", "nets.py:opened", "a.aimodel", "--fix", "length=5")
    assert (done.code, done.err.splitlines()[-1]) == (1, "error: --fix length=5: a.aimodel has length 7")
    assert patcomp("verify", "nets.py:opened", "--fix", "length=5").code == 0
    done = patcomp("verify", "a.aimodel", "--fix", "length=7")
    assert (done.code, done.err.startswith("error: --fix goes with a model, and a.aimodel is an asset")) == (2, True)


def test_an_asset_alone_is_verified_in_float32(patcomp: Command) -> None:
    """Without a model, the program itself in float32 judges."""
    pytest.importorskip("coreai")
    assert patcomp("convert", "nets.py:overflows", "--half", "-o", "a.aimodel").code == 0
    done = patcomp("verify", "a.aimodel")
    assert done.code == 3
    assert "half precision first overflows in coreai.decomposable.broadcasting_mul" in done.out

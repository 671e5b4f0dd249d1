"""`patcomp bench`: times of the functions of an asset, on a runtime that may abort or hang."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import TorchConverter
from patcomp.emit.native import Native, NativeError
from patcomp.emit.timing import Timing, timed
from patcomp.emit.toolchain.compute_units import placement, specialization_options
from patcomp.errors import EvaluationError
from tests.helpers.command import Command


class Counter(nn.Module):
    """Whose state decides the result, so that calls with another state are seen."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.mul_(2)
        return x * self.total


@pytest.fixture
def asset(tmp_path: Path) -> Path:
    """Two functions of one dynamic size."""
    converter = TorchConverter()
    for name in ("first", "second"):
        exported = torch.export.export(
            Counter(), (torch.rand(3, 4),), dynamic_shapes={"x": {0: Dim("rows", min=0, max=8)}}
        )
        converter.add_exported_program(exported, entrypoint_name=name)
    return converter.to_coreai().save_asset(tmp_path / "counter.aimodel").path


@pytest.mark.usefixtures("asset")
def test_each_function(patcomp: Command, native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patcomp.emit.native.Native", lambda: native)  # starting one takes longer than the test
    monkeypatch.setattr(native, "close", lambda: None)
    done = patcomp("bench", "counter.aimodel", "--calls", "4", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["machine"].keys() == {"system", "processor", "coreai-core", "patcomp"}
    assert [*found["functions"]] == ["first", "second"]
    for each in found["functions"].values():
        assert len(each["call_seconds"]) == 4
        assert 0 < each["least_seconds"] <= each["p50_seconds"] <= each["p99_seconds"] == each["most_seconds"]
        assert min(each["load_seconds"], each["first_seconds"]) > 0
        assert 1 << 20 < each["memory_before"] <= each["memory_loaded"] <= each["memory_called"]
        assert each["placement"] is None
    done = patcomp("bench", "counter.aimodel", "--entrypoint", "second", "--size", "x:0=9", "--json")
    assert done.code == 0, done.err  # an asset does not know that 8 is the most


@pytest.mark.usefixtures("asset")
def test_a_function_that_aborts_or_hangs_does_not_end_the_command(patcomp: Command) -> None:
    """The runtime aborts in `x * y` where a dynamic size is 0."""
    one = ("bench", "counter.aimodel", "--entrypoint", "first")
    done = patcomp(*one, "--size", "x:0=0")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: first: the runtime died of SIG")
    done = patcomp(*one, "--calls", "100000000", "--patience", "1")
    assert (done.code, done.err.splitlines()[-1]) == (1, "error: first: the runtime gave no answer within 1 s")


@pytest.mark.usefixtures("asset")
def test_the_others_are_timed(patcomp: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def time(_: Native, asset: Path, inputs: object, state: object, entry: str, **options: object) -> Timing:
        if entry == "first":
            raise NativeError("RuntimeError", "no kernel\nat 3")
        return Timing(0.0123, 0.002, (0.004, 0.003), 1, 1, 2_000_001, None)

    monkeypatch.setattr(Native, "time", time)
    done = patcomp("bench", "counter.aimodel")
    assert (done.code, done.err.splitlines()[-1]) == (1, "error: first: RuntimeError: no kernel")
    row = next(line for line in done.out.splitlines() if "second" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "second", "12.3", "2", "3", "3", "4", "4", "0 bytes", "2.0 MB",
    ]  # fmt: skip
    assert json.loads(patcomp("bench", "counter.aimodel", "--json").out)["functions"]["first"] == {
        "error": "RuntimeError: no kernel"
    }


@pytest.mark.usefixtures("asset")
def test_what_is_refused(patcomp: Command) -> None:
    for options, code, message in (
        (("--entrypoint", "third"), 2, "--entrypoint third: there is no such function; there are first, second"),
        (("--size", "x:0=4"), 2, "choose the function for these inputs with --entrypoint: first, second"),
        (("--component", "encoder"), 2, "--component goes with a bundle, and counter.aimodel is an asset"),
        (("--unit", "gpu"), 1, f"coreai-core lets its caller choose a compute unit on macOS alone, and this is "
         f"{sys.platform}; leave --unit out"),
    ):  # fmt: skip
        done = patcomp("bench", "counter.aimodel", *options)
        assert (done.code, done.err.splitlines()[-1]) == (code, f"error: {message}")


def test_percentiles() -> None:
    timing = Timing(1.0, 2.0, tuple(float(each) for each in (3, 1, 2, 4)), 0, 0, 0, None)
    assert [timing.percentile(percent) for percent in (0, 25, 26, 50, 99, 100)] == [1, 1, 2, 2, 4, 4]
    assert timing.to_dict()["mean_seconds"] == 2.5


def test_each_call_starts_from_the_same_states(asset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[float]] = []
    call = sys.modules["patcomp.emit.timing"].LoadedModel.call

    def watched(loaded: object, function: object, inputs: object, buffers: dict[str, object]) -> object:
        seen.extend(buffer.numpy().tolist() for buffer in buffers.values())  # type: ignore[attr-defined]
        return call(loaded, function, inputs, buffers)

    monkeypatch.setattr("patcomp.emit.timing.LoadedModel.call", watched)
    timed(asset, {"x": np.ones((2, 4), np.float32)}, {}, "first", 2)
    assert seen == [[1.0] * 4] * 3


def test_compute_units_of_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the type stubs of coreai-core state them; the runtime for Linux has none."""
    import coreai.runtime as runtime

    made = SimpleNamespace(
        cpu_only=lambda: "cpu only", from_preferred_compute_unit_kind=lambda kind: f"preferred {kind}"
    )
    monkeypatch.setattr(runtime, "SpecializationOptions", made)
    assert specialization_options(None) is None
    assert specialization_options("cpu") == "cpu only"
    with pytest.raises(EvaluationError, match=r"has no coreai.runtime.ComputeUnitKind to choose gpu by"):
        specialization_options("gpu")
    kinds = SimpleNamespace(gpu=lambda: "GPU", neural_engine=lambda: "NE")
    monkeypatch.setattr(runtime, "ComputeUnitKind", kinds, raising=False)
    assert specialization_options("neural_engine") == "preferred NE"
    options = SimpleNamespace(allowed_compute_unit_kinds=["CPU", "NE"], preferred_compute_unit_kind=None)
    found = placement(SimpleNamespace(specialization_options=options))
    assert found == {"allowed": ["CPU", "NE"], "preferred": None}
    assert placement(SimpleNamespace(specialization_options=None)) is None

"""What patcomp computes does not depend on the settings and modes of PyTorch around its calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

import patcomp
from patcomp import AIProgram, TorchConverter
from patcomp.pytorch import FakeTensorMode, TorchDispatchMode, default_settings, has_default_settings


class Model(nn.Module):
    """Products, decomposed ops, a folded constant and a buffer that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)
        self.register_buffer("total", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        scores = nn.functional.scaled_dot_product_attention(x[None], x[None], self.linear(x)[None])[0]
        self.total += scores.sum(0)
        return self.norm(
            nn.functional.glu(torch.cat([scores, scores], -1))
            + torch.linspace(0, 1, 64, dtype=x.dtype, device=x.device) ** 2
        )


class Example(NamedTuple):
    model: nn.Module
    x: Tensor
    exported: ExportedProgram
    program: AIProgram


@cache
def example() -> Example:
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(8, 64)
    exported = torch.export.export(model, (x,))
    return Example(model, x, exported, TorchConverter().add_exported_program(exported).to_coreai())


class _Refusing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"the user's mode sees {func}")


class _Doubling(TorchDispatchMode):
    """Doubles every result."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if isinstance(result, Tensor) and result.is_floating_point() else result


@contextmanager
def _chosen(choose: Callable[[Any], object], value: Any, usual: Any) -> Iterator[None]:
    choose(value)
    try:
        yield
    finally:
        choose(usual)


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "FakeTensorMode": lambda: FakeTensorMode(allow_non_fake_inputs=True),
    "default dtype": lambda: _chosen(torch.set_default_dtype, torch.float64, torch.float32),
    "default device": lambda: _chosen(torch.set_default_device, "meta", None),
    "device": lambda: torch.device("meta"),
    "inference mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "deterministic": lambda: _chosen(torch.set_deterministic_debug_mode, 2, 0),
    "precision": lambda: _chosen(torch.set_float32_matmul_precision, "medium", "highest"),
    "attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "function mode": _Refusing,
    "dispatch mode": _Doubling,
}


def _bits(values: dict[str, Any]) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(value).tobytes() for name, value in values.items()}


def _ran(program: AIProgram) -> dict[str, bytes]:
    state = program.new_state()
    outputs = program.run({"x": example().x}, state=state)
    with default_settings():  # what a test does with tensors is up to the mode as well
        return _bits({**outputs, **state})


def _converted(_: Path) -> Any:
    program = TorchConverter().add_exported_program(example().exported).to_coreai()
    return str(program), program.stages["import"], [str(each) for each in program.diagnostics]


def _saved(folder: Path) -> Any:
    asset = example().program.save_asset(folder / "model.aimodel", writer="python")
    return {
        file.name: file.read_bytes()
        for file in sorted(asset.path.rglob("*"))
        if file.suffix in {".mlirb", ".safetensors"}
    }


def _loaded(folder: Path) -> Any:
    path = folder / "model.aimodel"
    with default_settings():
        example().program.save_asset(path, writer="python")
    return _bits(patcomp.load(path).evaluate({"x": example().x}))


def _compressed(_: Path) -> Any:
    small = example().program.compress("w4_block32", inputs=(example().x,))
    return str(small), _ran(small), str(small.compression)


def _verified(_: Path) -> Any:
    return str(example().program.verify_against(example().model, (example().x,), backends=["evaluator"], by="module"))


def _exported(_: Path) -> Any:
    program = patcomp.export(example().model, (example().x,))
    with default_settings():
        return str(TorchConverter().add_exported_program(program).to_coreai())


def _asked(_: Path) -> Any:
    program = example().program
    return program.why_not("rms_norm"), str(program.audit("neural_engine", (example().x,)))


ENTRY_POINTS: dict[str, Callable[[Path], Any]] = {
    "convert": _converted,
    "run": lambda _: _ran(example().program),
    "verify": _verified,
    "save": _saved,
    "load": _loaded,
    "compress": _compressed,
    "export": _exported,
    "ask": _asked,
}


@cache
def _outside(entry_point: str) -> Any:
    with TemporaryDirectory() as folder:
        return ENTRY_POINTS[entry_point](Path(folder))


OFTEN = ("autocast", "FakeTensorMode", "default dtype", "default device", "precision", "function mode", "dispatch mode")
"""The settings under which CI runs all entry points."""


@pytest.mark.parametrize(
    "setting", [pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.slow]) for name in SETTINGS]
)
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_results_do_not_depend_on_settings(
    entry_point: str, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    wanted = _outside(entry_point)
    with SETTINGS[setting]():
        given = ENTRY_POINTS[entry_point](tmp_path)
    assert given == wanted
    assert has_default_settings()


class OwnAutocast(nn.Module):
    """A model that enters autocast itself."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.linear(x)


@pytest.mark.parametrize("export", [torch.export.export, patcomp.export])
def test_autocast_inside_of_a_model_stays(export: Callable[..., ExportedProgram]) -> None:
    model, x = OwnAutocast().eval(), torch.randn(2, 64)
    with torch.autocast("cpu", enabled=False):
        program = TorchConverter().add_exported_program(export(model, (x,))).to_coreai()
    assert program.run(x).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.float16):
        assert program.run(x).dtype == torch.bfloat16
        assert program.verify_against(model, (x,), backends=["evaluator"])


class OfDefaults(nn.Module):
    """A model that makes a tensor of the default dtype and device."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[torch.dtype, str]] = []

    def forward(self, x: Tensor) -> Tensor:
        ones = torch.ones(3)
        self.made.append((ones.dtype, ones.device.type))
        return x + 1.0


def test_a_model_makes_tensors_of_the_callers_default_dtype_and_device() -> None:
    model, x = OfDefaults(), torch.randn(3, dtype=torch.float16)
    with _chosen(torch.set_default_dtype, torch.float16, torch.float32), torch.device("meta"):
        program = TorchConverter().add_exported_program(patcomp.export(model, (x,))).to_coreai()
        assert program.verify_against(model, (x,), backends=["evaluator"])
        assert torch.get_default_dtype() == torch.float16
    # the call to compare with, and its twin in a wider type; the export restores the model's attributes
    assert model.made == [(torch.float16, "meta"), (torch.float32, "meta")]


def test_settings_of_the_process_return_when_the_last_thread_leaves() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with default_settings():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with _chosen(torch.set_default_dtype, torch.float64, torch.float32):
        with default_settings():
            thread.start()
            assert inside.wait(60)
        assert torch.get_default_dtype() == torch.float32  # the other thread still computes
        leave.set()
        thread.join()
        assert torch.get_default_dtype() == torch.float64


def test_settings_return_after_an_error() -> None:
    with torch.autocast("cpu", torch.bfloat16), torch.device("meta"), torch.inference_mode():
        with pytest.raises(ValueError, match="stop"), default_settings():
            raise ValueError("stop")
        assert torch.is_autocast_enabled("cpu")
        assert torch.is_inference_mode_enabled()
        assert torch.ones(1).device.type == "meta"

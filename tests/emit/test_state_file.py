"""The initial state of an asset: every element type exactly, and never that of another program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.emit.asset import Asset
from patcomp.emit.files.state_file import earlier_state_path, read_state, remove_earlier_state, write_state
from patcomp.evaluate.given import as_array

VALUES = {
    "f32": torch.tensor([1.5, float("nan"), -0.0, float("inf")]),
    "bf16": torch.tensor([[1.1], [-3e38]], dtype=torch.bfloat16),
    "f16": torch.tensor([1e-7, 65504.0], dtype=torch.float16),
    "f8": torch.tensor([0.4, 448.0]).to(torch.float8_e4m3fn),
    "f8 of five bits": torch.tensor([0.4, float("inf")]).to(torch.float8_e5m2),
    "a number": torch.tensor(7, dtype=torch.int32),
    "int64": torch.tensor([2**60, -1]),
    "bool": torch.tensor([True, False]),
    "empty": torch.zeros(0, 3),
    "a name/with: anything é": torch.ones(2),
}


def test_every_element_type_exactly(tmp_path: Path) -> None:
    asset = tmp_path / "model.aimodel"
    asset.mkdir()
    given = {"main": {name: as_array(value) for name, value in VALUES.items()}, "a/b": {"f32": np.ones(2, np.float32)}}
    write_state(asset, given)
    read = read_state(asset)
    assert {name: list(states) for name, states in read.items()} == {"main": list(VALUES), "a/b": ["f32"]}
    for name, array in given["main"].items():
        assert read["main"][name].dtype == array.dtype
        assert read["main"][name].shape == array.shape
        assert read["main"][name].tobytes() == array.tobytes()
    first = (asset / "initial_state.npz").read_bytes()
    write_state(asset, given)
    assert (asset / "initial_state.npz").read_bytes() == first


class Adds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.tensor([1.0, 2.0], dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.total.add_(x) * 2


def converted(model: nn.Module) -> AIProgram:
    exported = torch.export.export(model, (torch.ones(2, dtype=torch.bfloat16),))
    return TorchConverter().add_exported_program(exported).to_coreai()


def move_state_beside(asset: Path) -> Path:
    """Makes an asset one of an earlier version, which wrote the state beside it."""
    return (asset / "initial_state.npz").rename(earlier_state_path(asset))


def test_saved_in_the_asset(tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    path = tmp_path / "model.aimodel"
    saved = converted(Adds()).save_asset(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.aimodel"]
    loaded = Asset.load(path).initial_state
    assert loaded["main"]["b_total"].astype(np.float32).tolist() == [1.0, 2.0]
    assert saved.initial_state["main"]["b_total"].dtype.name == "bfloat16"
    outputs = saved.run({"x": torch.ones(2, dtype=torch.bfloat16)}, loaded["main"])
    assert outputs["mul"].tolist() == [4.0, 6.0]
    converted(nn.ReLU()).save_asset(path)
    assert Asset.load(path).initial_state == {}


def test_the_place_of_earlier_versions_is_read_and_cleared(tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    path = tmp_path / "model.aimodel"
    converted(Adds()).save_asset(path)
    beside = move_state_beside(path)
    assert Asset.load(path).initial_state["main"]["b_total"].astype(np.float32).tolist() == [1.0, 2.0]
    kept = beside.read_bytes()
    converted(nn.ReLU()).save_asset(path)
    assert not beside.exists()
    beside.write_bytes(kept)  # as if the process had been killed before it was removed
    assert Asset.load(path).initial_state == {}


@pytest.mark.parametrize("content", ["text", "", "array", "arrays"])
def test_files_of_others_stay(tmp_path: Path, content: str) -> None:
    """A file of that name that is none of patcomp's is not removed."""
    path = earlier_state_path(tmp_path / "model.aimodel")
    if content == "array":
        with path.open("wb") as file:
            np.save(file, np.ones(2))
    elif content == "arrays":
        np.savez(path, mine=np.ones(2))
    else:
        path.write_text(content)
    remove_earlier_state(tmp_path / "model.aimodel")
    assert path.exists()

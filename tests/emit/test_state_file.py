"""The file of the initial state beside an asset: every element type exactly, and never a stale one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from patcomp import AIProgram, TorchConverter
from patcomp.emit import Asset
from patcomp.emit.asset import as_array
from patcomp.emit.state_file import read_state, state_path, write_state

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
    given = {"main": {name: as_array(value) for name, value in VALUES.items()}, "a/b": {"f32": np.ones(2, np.float32)}}
    write_state(asset, given)
    assert state_path(asset) == tmp_path / "model.state.npz"
    read = read_state(asset)
    assert {name: list(states) for name, states in read.items()} == {"main": list(VALUES), "a/b": ["f32"]}
    for name, array in given["main"].items():
        assert read["main"][name].dtype == array.dtype
        assert read["main"][name].shape == array.shape
        assert read["main"][name].tobytes() == array.tobytes()
    first = state_path(asset).read_bytes()
    write_state(asset, given)
    assert state_path(asset).read_bytes() == first


class Adds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.tensor([1.0, 2.0], dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.total.add_(x) * 2


def converted(model: nn.Module) -> AIProgram:
    exported = torch.export.export(model, (torch.ones(2, dtype=torch.bfloat16),))
    return TorchConverter().add_exported_program(exported).to_coreai()


def test_saved_beside_the_asset_and_removed_when_there_is_none(tmp_path: Path) -> None:
    pytest.importorskip("coreai")
    path = tmp_path / "model.aimodel"
    saved = converted(Adds()).save_asset(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.aimodel", "model.state.npz"]
    loaded = Asset.load(path).initial_state
    assert loaded["main"]["b_total"].astype(np.float32).tolist() == [1.0, 2.0]
    assert saved.initial_state["main"]["b_total"].dtype.name == "bfloat16"
    converted(nn.ReLU()).save_asset(path)
    assert [file.name for file in tmp_path.iterdir()] == ["model.aimodel"]
    assert Asset.load(path).initial_state == {}

"""Rotations by positions: which frequencies have a base, and which tables stay operands."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram, TorchConverter

LENGTH, BATCH = torch.export.Dim("length", min=2, max=32), torch.export.Dim("batch", min=2, max=8)


def powers(base: float, half: int) -> Tensor:
    return 1.0 / base ** (torch.arange(0, 2 * half, 2).float() / (2 * half))


class Rotation(nn.Module):
    """Llama's rotation of (batch, heads, sequence, width), with tables that `options` change."""

    def __init__(self, frequencies: Tensor, **options: Any):
        super().__init__()
        self.frequencies = nn.Buffer(frequencies)
        self.options = options

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        places = positions.half() if "half positions" in self.options else positions
        angles = places[..., None].float() * self.frequencies
        cos, sin = angles.cos(), (angles + 0.1 if "shifted sine" in self.options else angles).sin()
        factor = self.options.get("factor", 1.0)
        cos, sin = ((table * factor).to(x.dtype) for table in (cos, sin))
        axis = 1 if angles.ndim == 3 else 0
        cos, sin = (torch.cat([table, table], -1).unsqueeze(axis) for table in (cos, sin))
        half = self.frequencies.shape[-1]
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def converted(model: nn.Module, inputs: tuple[Tensor, ...], sizes: Any = None) -> AIProgram:
    exported = torch.export.export(model, inputs, dynamic_shapes=sizes)
    return TorchConverter().add_exported_program(exported).to_coreai(target="gpu")


def call(program: AIProgram) -> tuple[list[str], float, float]:
    """The names of the inputs of the one call of rope, its base and its scale."""
    (declared,) = re.findall(r"graph private noinline @rope_\w+.*", str(program))
    names = re.search(r"input_names = \[([^]]*)\]", declared)
    base, scale = re.search(r"base = ([\d.e+-]+)", declared), re.search(r"scale = ([\d.e+-]+)", declared)
    assert names
    assert base
    assert scale
    return re.findall(r'"(\w+)"', names[1]), float(base[1]), float(scale[1])


@pytest.mark.parametrize(
    ("frequencies", "base", "scale"),
    [
        pytest.param(powers(1e4, 8), 1e4, 1.0, id="Llama"),
        pytest.param(powers(1e6, 64), 1e6, 1.0, id="Qwen3"),
        pytest.param(powers(5e5, 32), 5e5, 1.0, id="Llama 3"),
        pytest.param(powers(160000.0, 48), 160000.0, 1.0, id="another base"),
        pytest.param(powers(1e6, 64) / 8, 1e6, 0.125, id="linear scaling"),
    ],
)
def test_bases(frequencies: Tensor, base: float, scale: float) -> None:
    model, half = Rotation(frequencies), frequencies.shape[0]
    inputs = torch.randn(1, 2, 5, 2 * half), torch.arange(5)[None] + 7
    program = converted(model, inputs)
    assert call(program) == (["input", "position_ids"], base, scale)
    program.verify_against(model, inputs, backends=["evaluator"]).check()


@pytest.mark.parametrize("factor", [1.0, 1.3465735912322998])
def test_other_frequencies_are_an_input(factor: float) -> None:
    frequencies = powers(1e4, 8)
    frequencies[3:] /= 32
    model, inputs = Rotation(frequencies, factor=factor), (torch.randn(2, 2, 5, 16), torch.randint(0, 99, (2, 5)))
    program = converted(model, inputs)
    assert call(program) == (["input", "position_ids", "freqs"], 1e4, 1.0)
    program.verify_against(model, inputs, backends=["evaluator"]).check()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tables_of_half_precision(dtype: torch.dtype) -> None:
    model, inputs = Rotation(powers(1e4, 4)), (torch.randn(2, 2, 5, 8).to(dtype), torch.arange(5)[None])
    program = converted(model, inputs)
    assert call(program)[0] == ["input", "position_ids"]
    program.verify_against(model, inputs, backends=["evaluator"]).check()


@pytest.mark.parametrize(
    ("positions", "sizes"),
    [
        pytest.param(torch.arange(5), ({2: LENGTH}, {0: LENGTH}), id="for all examples"),
        pytest.param(torch.arange(10).view(2, 5), ({0: BATCH, 2: LENGTH}, {0: BATCH, 1: LENGTH}), id="for each"),
    ],
)
def test_open_sizes(positions: Tensor, sizes: Any) -> None:
    model, inputs = Rotation(powers(1e4, 4)), (torch.randn(2, 3, 5, 8), positions)
    program = converted(model, inputs, sizes)
    assert call(program)[0] == ["input", "position_ids"]
    program.verify_against(model, inputs, backends=["evaluator"]).check()


@pytest.mark.parametrize(
    ("model", "positions"),
    [
        pytest.param(Rotation(powers(1e4, 4), **{"shifted sine": True}), torch.arange(5)[None], id="other angles"),
        pytest.param(Rotation(powers(1e4, 4), **{"half positions": True}), torch.arange(5)[None], id="half positions"),
        pytest.param(Rotation(powers(1e4, 4)), torch.rand(1, 5), id="positions between integers"),
        pytest.param(Rotation(torch.rand(2, 5, 4)), torch.arange(5)[None], id="frequencies of each place"),
    ],
)
def test_other_tables_stay_operands(model: nn.Module, positions: Tensor) -> None:
    inputs = torch.randn(2, 2, 5, 8), positions
    program = converted(model, inputs)
    assert call(program)[0] == ["input", "cos", "sin"]
    program.verify_against(model, inputs, backends=["evaluator"]).check()

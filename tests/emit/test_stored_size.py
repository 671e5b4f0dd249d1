"""Weights that the toolchain stores larger than they are: said once, with the bytes that the asset really has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram, ConversionWarning, TorchConverter

SHAPE = (256, 256)
COUNT = 256 * 256
X = torch.randn(2, 256)
ROOM = 3000
"""More bytes than an asset has besides the weights."""


class Computes(nn.Module):
    def __init__(self, weight: Tensor, function: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.register_buffer("weight", weight)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight)


def converted(weight: Tensor, function: Callable[[Tensor, Tensor], Tensor]) -> AIProgram:
    exported = torch.export.export(Computes(weight, function), (X,))
    return TorchConverter().add_exported_program(exported).to_coreai()


def asset_bytes(program: AIProgram, folder: Path) -> int:
    pytest.importorskip("coreai")
    path = program.save_asset(folder / "weights.aimodel").path
    return sum(file.stat().st_size for file in path.iterdir())


INT8 = torch.randint(-9, 9, SHAPE, dtype=torch.int8)


@pytest.mark.parametrize(
    ("weight", "function", "stored", "in_asset"),
    [
        (INT8, lambda x, w: x @ (w.float() * torch.arange(1.0, 257.0)[:, None]), COUNT, 4 * COUNT),
        (INT8, lambda x, w: x.half() @ w.half(), COUNT, 2 * COUNT),
        (INT8, lambda x, w: x @ w.float() + x @ w.t().float(), COUNT, 5 * COUNT),
        (torch.rand(SHAPE) > 0.5, lambda x, w: x @ w.float(), COUNT, 4 * COUNT),
        (torch.randn(SHAPE).half(), lambda x, w: x @ w.float(), 2 * COUNT, 4 * COUNT),
    ],
    ids=["int8", "int8 to half", "used twice", "bool", "half"],
)
def test_casts_of_constants_are_stored_as_their_results(
    weight: Tensor, function: Callable[[Tensor, Tensor], Tensor], stored: int, in_asset: int, tmp_path: Path
) -> None:
    with pytest.warns(ConversionWarning, match="the toolchain computes casts of constants"):
        program = converted(weight, function)
    (problem,) = program.diagnostics
    assert f"'weight' takes {in_asset:,} bytes instead of {stored:,}" in problem.message
    assert f"the asset is {in_asset - stored:,} bytes larger" in problem.message
    assert str(program.report()).count("'weight' takes") == 1
    assert in_asset < asset_bytes(program, tmp_path) < in_asset + ROOM


@pytest.mark.parametrize(
    ("weight", "function"),
    [
        (INT8, lambda x, w: x @ w.t().float()),
        (INT8, lambda x, w: x @ (w - 3).float()),
        (INT8, lambda x, w: x.bfloat16() @ w.bfloat16()),
        (torch.randn(SHAPE).bfloat16(), lambda x, w: x @ w.float()),
        (torch.randn(SHAPE).to(torch.float8_e4m3fn), lambda x, w: x @ w.float()),
        (torch.randn(SHAPE), lambda x, w: x @ w),
    ],
    ids=["transposed", "subtracted", "to bfloat16", "bfloat16", "float8", "float"],
)
def test_weights_that_stay_as_they_are(
    weight: Tensor, function: Callable[[Tensor, Tensor], Tensor], tmp_path: Path
) -> None:
    program = converted(weight, function)
    assert program.diagnostics == ()
    assert weight.nbytes < asset_bytes(program, tmp_path) < weight.nbytes + ROOM


def test_small_weights_are_not_worth_saying() -> None:
    program = converted(INT8[:64], lambda x, w: x[:, :64] @ w.float())
    assert program.diagnostics == ()

"""Weights that the toolchain stores larger than they are: said once, with the bytes that the asset really has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram, ConversionWarning, TorchConverter
from patcomp.evaluate.given import as_array

SHAPE = (256, 256)
COUNT = 256 * 256
X = torch.randn(2, 256)
ROOM = 4000
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
INT16 = torch.randint(-999, 999, SHAPE, dtype=torch.int16)
SCALE = torch.rand(256, 1) + 0.1


@pytest.mark.parametrize(
    ("weight", "function", "stored", "in_asset"),
    [
        (INT16, lambda x, w: x @ (w.float() * SCALE), 2 * COUNT, 4 * COUNT),
        (INT16, lambda x, w: x @ w.float() + x @ w.t().float(), 2 * COUNT, 6 * COUNT),
        (torch.rand(SHAPE) > 0.5, lambda x, w: x @ w.float(), COUNT, 4 * COUNT),
        (torch.randn(SHAPE).half(), lambda x, w: x @ w.float(), 2 * COUNT, 4 * COUNT),
    ],
    ids=["int16", "used twice", "bool", "half"],
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
        (INT8, lambda x, w: x @ w.float()),
        (INT8, lambda x, w: x.half() @ w.half()),
        (INT8, lambda x, w: x @ (w.float() * SCALE)),
        (INT8, lambda x, w: x @ ((w.float() - 3) * SCALE).t()),
        (INT8, lambda x, w: x @ (w.float() * SCALE[:, 0])),
        (INT8, lambda x, w: x @ (SCALE * (w.float() - 0.5))),
        (INT8, lambda x, w: x @ (w.float().reshape(256, 8, 32) * SCALE[:, :, None]).reshape(256, 256)),
        (INT8, lambda x, w: (x @ w.float().t()) * SCALE[:, 0]),
        ((INT8 + 9).to(torch.uint8), lambda x, w: x @ (w.float() * 0.5)),
        (INT8, lambda x, w: x @ w.t().float()),
        (INT8, lambda x, w: x @ (w - 3).float()),
        (INT8, lambda x, w: x.bfloat16() @ w.bfloat16()),
        (torch.randn(SHAPE).bfloat16(), lambda x, w: x @ w.float()),
        (torch.randn(SHAPE).to(torch.float8_e4m3fn), lambda x, w: x @ w.float()),
        (torch.randn(SHAPE), lambda x, w: x @ w),
    ],
    ids=[
        "cast",
        "to half",
        "scaled",
        "zero point",
        "scaled columns",
        "zero point of floats",
        "scaled groups",
        "scaled product",
        "number",
        "transposed",
        "subtracted",
        "to bfloat16",
        "bfloat16",
        "float8",
        "float",
    ],
)
def test_weights_that_stay_as_they_are(
    weight: Tensor, function: Callable[[Tensor, Tensor], Tensor], tmp_path: Path
) -> None:
    program = converted(weight, function)
    assert program.diagnostics == ()
    assert weight.nbytes < asset_bytes(program, tmp_path) < weight.nbytes + ROOM
    (made,) = program.run({"x": X}).values()
    wanted = function(X, weight).float()
    floats = torch.as_tensor(as_array(made).astype(np.float32))
    torch.testing.assert_close(floats, wanted, rtol=0, atol=2e-3 * wanted.abs().max().item())


@pytest.mark.parametrize("target", ["cpu", "gpu", "neural_engine"])
def test_weights_stay_bytes_for_a_target(target: str, tmp_path: Path) -> None:
    model = Computes(INT8, lambda x, w: x @ ((w.float() - 3) * SCALE).t())
    program = TorchConverter().add_exported_program(torch.export.export(model, (X,))).to_coreai(target=target)
    assert program.summary().weights["si8"] == COUNT
    assert asset_bytes(program, tmp_path) < COUNT + 2 * ROOM
    (made,) = program.run({"x": X}).values()
    floats, wanted = torch.as_tensor(as_array(made).astype(np.float32)), model(X)
    torch.testing.assert_close(floats, wanted, rtol=0, atol=4e-3 * wanted.abs().max().item())


def test_small_weights_are_not_worth_saying() -> None:
    program = converted(INT8[:64], lambda x, w: x[:, :64] @ w.float())
    assert program.diagnostics == ()

"""Weights that were compressed for Core ML: buffers `_COREML_/...` describe them, and the program stores their bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import ConversionWarning, TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.given import as_array
from patcomp.ir.constants import is_constant
from patcomp.ir.types import element_name
from patcomp.ir.xdsl import DenseResourceAttr, ops_inside
from patcomp.program.program import AIProgram
from tests.frontend_torch.models import without_devices

ROWS, COLUMNS = 256, 128
X = torch.randn(2, COLUMNS, generator=torch.Generator().manual_seed(3))
Described = tuple[Tensor, dict[str, Any]]


def described(module: nn.Module, weight: Tensor, buffers: Mapping[str, Any]) -> nn.Module:
    """A module with a compressed weight and the buffers that describe it."""
    module.weight = nn.Parameter(weight)
    for name, value in buffers.items():
        module.register_buffer(f"_COREML_/weight/{name}", torch.as_tensor(value))
    return module


def linear(weight: Tensor, buffers: Mapping[str, Any]) -> nn.Sequential:
    model = nn.Sequential(described(nn.Linear(*reversed(weight.shape)), weight, buffers), nn.ReLU())
    model.register_buffer("_COREML_/metadata_version", torch.tensor(1))
    return model.eval()


def numbers(*shape: int, low: int, high: int, seed: int = 0) -> Tensor:
    made = torch.randint(low, high + 1, shape, generator=torch.Generator().manual_seed(seed))
    made.view(-1)[0], made.view(-1)[-1] = low, high
    return made


def positive(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 0.02 + 0.01


def quantized(
    bits: int, low: int, high: int, scale: tuple[int, ...] = (ROWS, 1), zero: Any = None, shape: Any = (ROWS, COLUMNS)
) -> Described:
    factor = positive(*scale)
    buffers = {"compression_type": [3], "quantization_n_bits": bits, "quantization_scale": factor}
    wide = factor.reshape([*scale, *[1] * (len(shape) - len(scale))])
    wide = wide.repeat_interleave(shape[1] // wide.shape[1], dim=1) if wide.shape[1] > 1 else wide
    point = 0
    if zero is not None:
        buffers["zero_point"] = torch.full(scale, zero)
        point = zero
    return (numbers(*shape, low=low, high=high) - point) * wide, buffers


def palettized(bits: int, blocks: int = 1, length: int = 1, scaled: bool = False) -> Described:
    table = torch.randn(blocks, 1, 2**bits, length, generator=torch.Generator().manual_seed(2))
    indices = numbers(ROWS // length, COLUMNS, low=0, high=2**bits - 1)
    block = torch.arange(ROWS // length)[:, None] // (ROWS // length // blocks)
    weight = table[block, 0, indices].movedim(-1, 1).flatten(0, 1)
    buffers: dict[str, Any] = {"compression_type": [2], "lut": table}
    if length > 1:
        buffers["vector_axis"] = 0
    if scaled:
        buffers["palettization_scale"] = positive(ROWS, 1)
        weight = weight * buffers["palettization_scale"]
    return weight, buffers


def pruned(share: float) -> Described:
    kept = torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)) < share
    return torch.where(kept, torch.randn(ROWS, COLUMNS), 0.0), {"compression_type": [1]}


SCHEMES: dict[str, tuple[Described, float, str]] = {
    "int8 a channel": (quantized(8, -127, 127), 8, "si8"),
    "int8 of the tensor": (quantized(8, -127, 127, scale=(1, 1)), 8, "si8"),
    "uint8 with a zero point": (quantized(8, 0, 255, zero=128), 8, "ui8"),
    "int4 in blocks": (quantized(4, -8, 7, scale=(ROWS, 4)), 4, "si4"),
    "uint4 with a zero point": (quantized(4, 0, 15, zero=7), 4, "ui4"),
    **{f"palette of {bits} bits": (palettized(bits), bits, f"ui{bits}") for bits in (1, 3, 4, 8)},
    "palettes of groups": (palettized(4, blocks=16), 4, "ui4"),
    "palette of vectors": (palettized(4, length=2), 2, "ui4"),
    "palette with scales": (palettized(4, scaled=True), 4, "ui4"),
    "quantized, its small integers too": (quantized(8, -3, 3), 8, "si8"),
    "pruned": (pruned(0.25), 9, "ui1"),
}


def converted(model: nn.Module, x: Tensor = X) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()


def stored(program: AIProgram) -> list[str]:
    """The element types of the weights that the program reads."""
    constants = [op.properties["value"] for op in ops_inside(program.module.op) if is_constant(op)]
    named = {value.resource_handle.data: value for value in constants if isinstance(value, DenseResourceAttr)}
    return [element_name(value.type.element_type) for value in named.values()]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_described_weight_takes_its_bits(scheme: str, native: Native, tmp_path: Path) -> None:
    (weight, buffers), bits, element = SCHEMES[scheme]
    model = linear(weight, buffers)
    program = converted(model)
    assert not without_devices(program)
    assert element in stored(program)
    wanted = model(X).detach()
    for run in (program.run, lambda inputs: native.run(program.module, inputs)):
        (made,) = run({"input": X}).values()
        torch.testing.assert_close(torch.as_tensor(made), wanted, rtol=0, atol=1e-6 * wanted.abs().max().item())
    program.save_asset(tmp_path / "small.aimodel")
    size = sum(file.stat().st_size for file in (tmp_path / "small.aimodel").rglob("*") if file.is_file())
    floats = sum(value.numel() for value in map(torch.as_tensor, buffers.values()) if value.is_floating_point()) * 4
    assert size <= 1.02 * (bits * ROWS * COLUMNS / 8 + floats) + 16 * 1024


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [lambda: quantized(4, -8, 7, scale=(ROWS, 4)), lambda: palettized(4)])
def test_half_precision(dtype: torch.dtype, make: Any) -> None:
    weight, buffers = make()
    small = weight.to(dtype)
    if "quantization_scale" in buffers:
        scale = buffers["quantization_scale"] = buffers["quantization_scale"].to(dtype)
        small = numbers(ROWS, COLUMNS, low=-8, high=7).to(dtype) * scale.repeat_interleave(COLUMNS // 4, dim=1)
    model = linear(small, buffers).to(dtype)
    program = converted(model, X.to(dtype))
    assert not program.diagnostics
    assert {"si4", "ui4"} & set(stored(program))
    (given,) = program.run({"input": X.to(dtype)}).values()
    made = torch.as_tensor(as_array(given).astype(np.float32))
    torch.testing.assert_close(made, model(X.to(dtype)).detach().float(), rtol=0.02, atol=0.02)


def test_a_convolution_whose_scale_lacks_the_last_axes(native: Native) -> None:
    weight, buffers = quantized(8, -127, 127, scale=(16, 1), shape=(16, 3, 3, 3))
    model = nn.Sequential(described(nn.Conv2d(3, 16, 3), weight, buffers)).eval()
    x = torch.randn(1, 3, 8, 8)
    program = converted(model, x)
    assert "si8" in stored(program)
    (made,) = native.run(program.module, {"input": x}).values()
    torch.testing.assert_close(torch.as_tensor(made), model(x).detach(), rtol=0, atol=1e-5)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        weight, buffers = palettized(3)
        self.embedding = described(nn.Embedding(ROWS, COLUMNS), weight, buffers)
        self.head = nn.Linear(COLUMNS, ROWS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids))


def test_a_tied_weight_is_stored_once() -> None:
    model, ids = Tied().eval(), torch.arange(4)
    program = converted(model, ids)
    assert not program.diagnostics
    assert stored(program) == ["ui3"]
    (made,) = program.run({"ids": ids}).values()
    torch.testing.assert_close(torch.as_tensor(made), model(ids).detach(), rtol=0, atol=1e-5)


def changed(described: Described, **parts: Any) -> Described:
    weight, buffers = described
    return weight, {name: value for name, value in {**buffers, **parts}.items() if value is not None}


def with_nan(described: Described) -> Described:
    described[0][1, 1] = float("nan")
    return described


@pytest.mark.parametrize(
    ("weight", "reason"),
    [
        (changed(quantized(8, -127, 127), quantization_scale=positive(ROWS, 1) * 1.1), r"not \(integer - zero point\)"),
        (changed(quantized(8, -127, 127), quantization_scale=None), "`quantization_scale` is missing"),
        (changed(quantized(8, -127, 127), quantization_scale=positive(3, 1)), "does not divide"),
        (changed(quantized(8, -127, 127), quantization_n_bits=4), "do not fit 4 bits"),
        (changed(quantized(8, -127, 127), compression_type=[7]), r"`compression_type` is \[7\]"),
        (changed(palettized(4), lut=torch.randn(1, 1, 16, 1)), "not in `lut`"),
        (changed(palettized(4), lut=torch.randn(3, 1, 16, 1)), "do not divide"),
        (pruned(1.0), "too few zeros"),
        (with_nan(quantized(8, -127, 127)), "do not fit"),
    ],
)
def test_what_the_buffers_do_not_describe_stays_float(weight: Described, reason: str) -> None:
    model = linear(*weight)
    with pytest.warns(ConversionWarning, match=reason):
        program = converted(model)
    assert "'0.weight' become floats of 131,072 bytes" in str(program.diagnostics[0])
    assert stored(program) == ["f32", "f32"]  # the weight and the bias
    (made,) = program.run({"input": X}).values()
    torch.testing.assert_close(torch.as_tensor(made), model(X).detach(), rtol=0, atol=1e-5, equal_nan=True)

"""Models that coreai-opt and torchao compressed: each weight takes its bits in the asset, and the numbers are eager's.

The modules have the buffers and operators that the libraries leave; `tests/helpers/library_ops.py` stands in for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import ExternalizeSpec, TorchConverter
from patcomp.emit.native import Native
from patcomp.errors import UnsupportedError
from patcomp.evaluate.given import as_array
from patcomp.ir.constants import is_constant
from patcomp.ir.types import element_name
from patcomp.ir.xdsl import DenseResourceAttr, ops_inside
from patcomp.program.program import AIProgram

ROWS, COLUMNS = 256, 128
COREAI, TORCHAO = torch.ops.coreai, torch.ops.torchao
Buffers = Mapping[str, Tensor]
Weight = Callable[[Any], Tensor]


class Layer(nn.Module):
    """A linear layer whose weight an operator computes from buffers."""

    def __init__(self, buffers: Buffers, weight: Weight) -> None:
        super().__init__()
        for name, value in buffers.items():
            self.register_buffer(name, value)
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight(self))


def integers(low: int, high: int, dtype: torch.dtype = torch.int8, shape: tuple[int, ...] = (ROWS, COLUMNS)) -> Tensor:
    made = torch.randint(low, high + 1, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    made.view(-1)[0], made.view(-1)[-1] = low, high
    return made


def floats(*shape: int, seed: int = 1) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 0.02 + 0.01


def block(low: int, high: int, dtype: torch.dtype, stated: torch.dtype, blocks: int = 1) -> tuple[Buffers, Weight]:
    return {
        "data": integers(low, high, dtype),
        "scale": floats(ROWS, blocks),
    }, lambda m: COREAI.constexpr_blockwise_shift_scale(m.data, m.scale, None, None, stated)


def with_zero_point(minval: bool) -> tuple[Buffers, Weight]:
    buffers = {"data": integers(0, 15, torch.uint8), "scale": floats(ROWS, 4), "low": -floats(ROWS, 4, seed=2)}
    buffers["zero"] = integers(0, 15, torch.uint8, (ROWS, 4))
    return buffers, lambda m: COREAI.constexpr_blockwise_shift_scale(
        m.data, m.scale, None if minval else m.zero, m.low if minval else None, torch.uint4
    )


def palette(bits: int, blocks: int = 1, vector: int = 1, table: str = "f32") -> tuple[Buffers, Weight]:
    buffers = {
        "indices": integers(0, 2**bits - 1, torch.uint8, (ROWS // vector, COLUMNS)),
        "table": floats(blocks, 1, 2**bits, vector) if table == "f32" else integers(-99, 99, shape=(1, 1, 2**bits, 1)),
        "scale": floats(1, 1) if table == "tensor" else floats(ROWS, 1),
    }

    def weight(m: Any) -> Tensor:
        if table == "f32":
            return COREAI.lut_to_dense(m.indices, m.table, 0)
        entries = COREAI.constexpr_blockwise_shift_scale(m.table, torch.ones(1, 1, 1, 1))
        return COREAI.constexpr_blockwise_shift_scale(COREAI.lut_to_dense(m.indices, entries, 0), m.scale)

    return buffers, weight


def pruned() -> tuple[Buffers, Weight]:
    mask = torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)) < 0.25
    return {"values": floats(int(mask.sum())), "mask": mask}, lambda m: COREAI.sparse_to_dense(m.values, m.mask)


def affine(low: int, high: int, group: int) -> tuple[Buffers, Weight]:
    buffers = {"data": integers(low, high), "scale": floats(ROWS, COLUMNS // group)}
    buffers["zero"] = torch.zeros(ROWS, COLUMNS // group, dtype=torch.int8)
    return buffers, lambda m: TORCHAO.dequantize_affine(
        m.data, [1, group], m.scale, m.zero, torch.int8, low, high, output_dtype=torch.float32
    )


def float8() -> tuple[Buffers, Weight]:
    data = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn)
    return {"data": data, "scale": floats(ROWS, 1)}, lambda m: COREAI.constexpr_blockwise_shift_scale(m.data, m.scale)


SCHEMES: dict[str, tuple[tuple[Buffers, Weight], float, str]] = {
    "int8 a channel": (block(-127, 127, torch.int8, torch.int8), 8, "si8"),
    "int4 in blocks": (block(-7, 7, torch.int8, torch.int4, 4), 4, "si4"),
    "int2 in blocks": (block(-1, 1, torch.int8, torch.int2, 4), 2, "si2"),
    "uint4 with zero points": (with_zero_point(False), 4, "ui4"),
    "uint4 with minval": (with_zero_point(True), 4, "ui4"),
    "small values that are int8": (block(-7, 7, torch.int8, torch.int8), 8, "si8"),
    "float8": (float8(), 8, "f8E4M3FN"),
    **{f"palette of {bits} bits": (palette(bits), bits, f"ui{bits}") for bits in (1, 2, 3, 4, 6, 8)},
    "palettes of groups": (palette(4, blocks=16), 4, "ui4"),
    "palette of vectors": (palette(4, vector=2), 2, "ui4"),
    "palette of integers, scaled": (palette(4, table="i8"), 4, "ui4"),
    "pruned": (pruned(), 9, "ui1"),
    "torchao, 4 bits a row": (affine(-8, 7, COLUMNS), 4, "si4"),
    "torchao, 3 bits in groups": (affine(-4, 3, 32), 3, "ui3"),
    "torchao, 2 bits in groups": (affine(-2, 1, 32), 2, "si2"),
}
"""The buffers and the operator, how many bits an element takes, and the element type of the data."""
X = torch.randn(2, COLUMNS, generator=torch.Generator().manual_seed(3))


NAMES = {
    "int8 a channel": "w8", "int4 in blocks": "w4_block32", "int2 in blocks": "w2_block32",
    "uint4 with zero points": "u4_block32", "uint4 with minval": "u4_block32", "small values that are int8": "w8",
    "float8": "f8E4M3FN", **{f"palette of {bits} bits": f"pal{bits}" for bits in (1, 2, 3, 4, 6, 8)},
    "palettes of groups": "pal4_group16", "palette of vectors": "pal4_vector2",
    "palette of integers, scaled": "pal4, table w8, scaled", "pruned": "sparse75", "torchao, 4 bits a row": "w4",
    "torchao, 3 bits in groups": "w3_block32", "torchao, 2 bits in groups": "w2_block32",
}  # fmt: skip
"""The scheme that the report names."""


def converted(model: nn.Module, x: Tensor = X) -> AIProgram:
    return TorchConverter().add_exported_program(torch.export.export(model, (x,))).to_coreai()


def stored(program: AIProgram) -> dict[str, str]:
    """The element types of the weights that the program reads, by name."""
    constants = [op.properties["value"] for op in ops_inside(program.module.op) if is_constant(op)]
    return {
        value.resource_handle.data: element_name(value.type.element_type)
        for value in constants if isinstance(value, DenseResourceAttr)
    }  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_compressed_weight_keeps_its_bits(scheme: str, native: Native, tmp_path: Path) -> None:
    (buffers, weight), bits, element = SCHEMES[scheme]
    model = Layer(buffers, weight)
    wanted, program = model(X), converted(model)
    assert element in stored(program).values()
    for run in (program.run, lambda inputs: native.run(program.module, inputs)):
        (made,) = run({"x": X}).values()
        torch.testing.assert_close(torch.as_tensor(made), wanted, rtol=0, atol=1e-6 * wanted.abs().max().item())
    assert program.compression is not None
    (reported,) = program.compression.weights
    assert (reported.scheme, reported.kinds, reported.shape) == (NAMES[scheme], ("matmul",), (ROWS, COLUMNS))
    assert reported.signal is None
    program.save_asset(tmp_path / "small.aimodel")
    size = sum(file.stat().st_size for file in (tmp_path / "small.aimodel").rglob("*") if file.is_file())
    others = sum(value.numel() for value in buffers.values() if value.is_floating_point() and value.dim() > 1) * 4
    assert reported.after <= size <= reported.after + 16 * 1024
    assert size <= 1.02 * (bits * ROWS * COLUMNS / 8 + (0 if element == "f8E4M3FN" else others)) + 16 * 1024


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype, native: Native) -> None:
    data, scale = integers(-7, 7), floats(ROWS, 4).to(dtype)
    model = Layer(
        {"data": data, "scale": scale},
        lambda m: COREAI.constexpr_blockwise_shift_scale(m.data, m.scale, None, None, torch.int4),
    )
    x = X.to(dtype)
    program = converted(model, x)
    assert "si4" in stored(program).values()
    for run in (program.run, lambda inputs: native.run(program.module, inputs)):
        (given,) = run({"x": x}).values()
        made = torch.as_tensor(as_array(given).astype(np.float32))
        torch.testing.assert_close(made, model(x).float(), rtol=0.02, atol=0.02)


def test_a_weight_that_two_layers_read_is_stored_once() -> None:
    class Tied(Layer):
        def forward(self, x: Tensor) -> Tensor:
            hidden = nn.functional.linear(x, self.weight(self))
            return nn.functional.linear(hidden, self.weight(self).t())

    program = converted(Tied(*palette(3)))
    assert list(stored(program).values()) == ["ui3"]


@pytest.mark.parametrize("scheme", ["palette of 3 bits", "int4 in blocks", "pruned"])
def test_a_compressed_weight_inside_an_externalized_module_is_refused(scheme: str) -> None:
    model = nn.Sequential(nn.Linear(COLUMNS, COLUMNS), Layer(*SCHEMES[scheme][0])).eval()
    converter = TorchConverter().add_pytorch_module(
        model, lambda m: torch.export.export(m, (X,)), externalize_modules=[ExternalizeSpec(Layer, "my_layer", [])]
    )
    with pytest.raises(UnsupportedError, match="must be a constant of the model; it goes into an externalized module"):
        converter.to_coreai()


def test_an_int8_weight_inside_an_externalized_module() -> None:
    model = nn.Sequential(nn.Linear(COLUMNS, COLUMNS), Layer(*SCHEMES["int8 a channel"][0])).eval()
    program = (
        TorchConverter()
        .add_pytorch_module(
            model, lambda m: torch.export.export(m, (X,)), externalize_modules=[ExternalizeSpec(Layer, "my_layer", [])]
        )
        .to_coreai()
    )
    assert "si8" in stored(program).values()
    (made,) = program.run({program.input_names()[0]: X}).values()
    torch.testing.assert_close(torch.as_tensor(made), model(X), rtol=0, atol=1e-6 * model(X).abs().max().item())


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (lambda m: COREAI.constexpr_blockwise_shift_scale(m.data, m.scale, None, None, torch.int2), "si2 cannot hold"),
        (lambda m: COREAI.constexpr_blockwise_shift_scale(m.data, m.scale, m.data[:, :1], m.scale, torch.int8),
         "zero_point and minval exclude each other"),
        (lambda m: COREAI.lut_to_dense(m.indices, m.scale.reshape(1, 1, ROWS, 1)[:, :, :5], 0), "entries"),
        (lambda m: COREAI.sparse_to_dense(m.scale.reshape(-1), m.mask), "one value for each place"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(weight: Weight, words: str) -> None:
    buffers = {"data": integers(-7, 7), "scale": floats(ROWS, 1), "indices": integers(0, 4, torch.uint8)}
    buffers["mask"] = torch.ones(ROWS, COLUMNS, dtype=torch.bool)
    with pytest.raises((UnsupportedError, RuntimeError, IndexError), match=words):
        converted(Layer(buffers, weight))

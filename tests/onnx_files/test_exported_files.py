"""Files of PyTorch's exporters and of ONNX Runtime's quantizers: composites, numbers, names, sizes, weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from patcomp.onnx.importing import OnnxError, from_onnx
from tests.onnx_files.helpers import converted, exported, written

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


class Block(nn.Module):
    """Attention as models of transformers write it, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length, width = x.shape
        heads = (each.reshape(batch, length, 2, 8).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(batch, length, width)
        return self.out(attended), F.gelu(attended)


def test_names_and_open_sizes(tmp_path: Path) -> None:
    """Composites are found, names are the file's, and an open size has the file's name."""
    names: dict[str, Any] = {"input_names": ["tokens.1"], "output_names": ["result:0", "second"]}
    path = exported(tmp_path, Block(), (torch.randn(2, 5, 16),), dynamic_axes={"tokens.1": {1: "length"}}, **names)
    found, program = converted(path, torch.randn(2, 7, 16))
    assert found.input_names == ("tokens.1",)
    assert found.output_names == ("result:0", "second")
    assert program.composites == {"layer_norm": 1, "scaled_dot_product_attention": 1}
    assert 'coreai.name = "tokens.1"' in str(program)
    assert program.fix({"length": 7}) if hasattr(program, "fix") else "length" in repr(program.dims["main"])
    _, fixed = converted(path, length=7)
    assert "tensor<2x7x16xf32>" in str(fixed)
    with pytest.raises(OnnxError, match="has no open size 'lenght'; it has length"):
        from_onnx(path, sizes={"lenght": 7})


def test_a_size_that_must_not_be_open(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """<ir_version: 8, opset_import: ["" : 17]>
    net (float[2, n] x) => (float[2, 3] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> { y = Mul (x, w) }""",
    )
    with pytest.raises(OnnxError, match=r"Mul of opset 17: .*must match.*(?s:.)*leaves open .n., fix one: sizes="):
        from_onnx(path)
    converted(path, n=3)
    baked = written(
        tmp_path,
        """<ir_version: 8, opset_import: ["" : 17]>
    net (float[2, n] x) => (float[32] y) <int64[1] size = {32}> { y = Reshape (x, size) }""",
    )
    with pytest.raises(OnnxError, match=r"leaves the size 'n' of 'x' open.*only with 16; fix it: .*--onnx-size n=16"):
        from_onnx(baked)


def test_norms_that_older_exporters_take_apart(tmp_path: Path) -> None:
    """Opset 11: the norm is a mean, a difference, a square, a root and a quotient."""
    path = exported(
        tmp_path, nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 8)), (torch.randn(3, 16),), opset_version=11
    )
    assert "LayerNormalization" not in {node.op_type for node in onnx.load(path).graph.node}
    _, program = converted(path)
    assert program.composites == {"layer_norm": 1}


def test_attention_of_the_newer_exporter(tmp_path: Path) -> None:
    """Keys are transposed as rows of all heads, scores are scaled on both sides, and NaN of the softmax becomes 0."""
    path = written(tmp_path, f"""<ir_version: 8, opset_import: ["" : 20]>
    net (float[2, 4, 5, 8] q, float[2, 4, 5, 8] k, float[2, 4, 5, 8] v, bool[5, 5] shown) => (float[2, 4, 5, 8] y)
    <int64[3] joined = {{8, 5, 8}}, int64[4] split = {{2, 4, 8, 5}}, float factor = {{{math.sqrt(math.sqrt(1 / 8))}}},
     float[1] zero = {{0}}, float[1] hidden = {{-3.4028234663852886e38}}>
    {{
      rows = Reshape (k, joined)
      turned = Transpose <perm = [0, 2, 1]> (rows)
      columns = Reshape (turned, split)
      scaled = Mul (q, factor)
      scaled_columns = Mul (columns, factor)
      scores = MatMul (scaled, scaled_columns)
      mask = Where (shown, zero, hidden)
      masked = Add (scores, mask)
      weights = Softmax <axis = -1> (masked)
      empty = IsNaN (weights)
      safe = Where (empty, zero, weights)
      y = MatMul (safe, v)
    }}""")  # fmt: skip
    _, program = converted(path)
    assert program.composites == {"scaled_dot_product_attention": 1}


def test_constants_of_the_file_are_computed_once(tmp_path: Path) -> None:
    """The tables of a rotary embedding are constants, whose halves are equal."""
    angles = " , ".join(str(n / 10) for n in range(8))
    path = written(tmp_path, f"""<ir_version: 8, opset_import: ["" : 17]>
    net (float[1, 2, 2, 8] x) => (float[1, 2, 2, 8] y) <float[2, 4] half = {{{angles}}},
     int64[1] zero = {{0}}, int64[1] middle = {{4}}, int64[1] end = {{8}}, int64[1] last = {{3}}>
    {{
      both = Concat <axis = -1> (half, half)
      cos = Cos (both)
      sin = Sin (both)
      first = Slice (x, zero, middle, last)
      second = Slice (x, middle, end, last)
      negative = Neg (second)
      other = Concat <axis = -1> (negative, first)
      a = Mul (x, cos)
      b = Mul (other, sin)
      y = Add (a, b)
    }}""")  # fmt: skip
    found, program = converted(path)
    assert program.composites == {"rope": 1}
    assert "half" not in found.module.file.weights


def test_weights_in_another_file_are_mapped(tmp_path: Path) -> None:
    path = exported(tmp_path, nn.Linear(64, 64), (torch.randn(1, 64),))
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    found, _ = converted(path)
    (weight,) = (value for value in found.exported.state_dict.values() if value.dim() == 2)
    ranges = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "weights.bin" in line]
    assert any(int(low, 16) <= weight.data_ptr() < int(high, 16) for low, high in (each.split("-") for each in ranges))


class _Calibration:
    """Three inputs for ONNX Runtime's quantizer."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.batches = iter([{"x": random.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(3)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


def test_quantized_weights_stay_bytes(tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 4))
    path, quantized = exported(tmp_path, module, (torch.randn(1, 3, 8, 8),), input_names=["x"]), tmp_path / "q.onnx"
    types = {"weight_type": quantization.QuantType.QInt8, "activation_type": quantization.QuantType.QUInt8}
    quantization.quantize_static(path, quantized, _Calibration(), per_channel=True, **types)
    _, program = converted(quantized)
    text = str(program)
    assert "tensor<16x3x3x3xsi8>" in text
    assert "tensor<4x576xsi8>" in text
    assert "coreai.dequantize" in text
    assert "coreai.quantize" in text


def test_weights_of_four_bits_stay_four_bits(tmp_path: Path) -> None:
    """`MatMulNBits`, as ONNX Runtime's quantizer writes it."""
    random = np.random.default_rng(0)
    path = written(
        tmp_path,
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    net (float[2, 64] x) => (float[2, 16] y) {
      y = com.microsoft.MatMulNBits <K = 64, N = 16, bits = 4, block_size = 32> (x, packed, scales, points)
    }""",
    )
    model = onnx.load(path)
    parts = {
        "packed": random.integers(0, 256, (16, 2, 16), dtype=np.uint8),
        "scales": random.uniform(0.5, 1, 32).astype(np.float32),
        "points": random.integers(0, 256, 16, dtype=np.uint8),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in parts.items())
    onnx.save(model, path)
    _, program = converted(path)
    assert "tensor<16x64xui4>" in str(program)


def test_recurrent_networks(tmp_path: Path) -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.gru, self.rnn = nn.LSTM(4, 3, bidirectional=True), nn.GRU(6, 3), nn.RNN(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(self.gru(self.lstm(x)[0])[0])[0]  # type: ignore[no-any-return]

    converted(exported(tmp_path, Network(), (torch.randn(5, 2, 4),)))

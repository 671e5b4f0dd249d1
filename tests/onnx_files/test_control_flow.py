"""Branches and loops of files: decided while the file is read, or PyTorch's operators."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from patcomp.onnx.importing import OnnxError, from_onnx
from tests.onnx_files.helpers import converted, written

pytest.importorskip("onnxruntime")

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>'


def test_a_branch_on_data(tmp_path: Path) -> None:
    path = written(tmp_path, f"""{_HEAD}
    net (float[3] x) => (float[3] y) {{
      zero = Constant <value = float {{0.0}}> ()
      total = ReduceSum <keepdims = 0> (x)
      condition = Greater (total, zero)
      y = If (condition) <
        then_branch = yes () => (float[3] a) {{ a = Mul (x, total) }},
        else_branch = no () => (float[3] b) {{ b = Neg (x) }}>
    }}""")  # fmt: skip
    up, down = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, 0.5])
    _, program = converted(path, up)
    assert str(program).count("coreai.if") == 1
    torch.testing.assert_close(program.run({"x": up})["y"], up * 6)
    torch.testing.assert_close(program.run({"x": down})["y"], -down)


def test_a_known_branch_is_taken(tmp_path: Path) -> None:
    path = written(tmp_path, f"""{_HEAD}
    net (float[3] x) => (float[3] y) {{
      shape = Shape (x)
      rank = Size (shape)
      one = Constant <value = int64 {{1}}> ()
      condition = Equal (rank, one)
      y = If (condition) <
        then_branch = yes () => (float[3] a) {{ a = Exp (x) }},
        else_branch = no () => (float[3] b) {{ b = Neg (x) }}>
    }}""")  # fmt: skip
    _, program = converted(path)
    assert "coreai.if" not in str(program)
    assert "coreai.exp" in str(program)


_LOOP = """
      y, stacked = Loop (count, condition, x) <
        body = round (int64 i, bool going, float[2] v) => (bool on, float[2] next, float[2] row) {{
          on = Identity (going)
          step = Cast <to = 1> (i)
          next = Add (v, step)
          row = Mul (next, scale)
        }}>
"""


def test_a_loop_of_known_length_is_written_out(tmp_path: Path) -> None:
    path = written(tmp_path, f"""{_HEAD}
    net (float[2] x) => (float[2] y, float[4, 2] stacked) {{
      count = Constant <value = int64 {{4}}> ()
      condition = Constant <value = bool {{1}}> ()
      scale = Constant <value = float {{0.5}}> ()
      {_LOOP.format()}
    }}""")  # fmt: skip
    _, program = converted(path)
    assert "coreai.while" not in str(program)
    x = torch.tensor([1.0, -1.0])
    assert program.run({"x": x})["stacked"].tolist() == [((x + n) * 0.5).tolist() for n in (0, 1, 3, 6)]


def test_a_loop_until_data_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, f"""{_HEAD}
    net (float[2] x) => (float[2] y) {{
      count = Constant <value = int64 {{50}}> ()
      condition = Constant <value = bool {{1}}> ()
      limit = Constant <value = float {{100.0}}> ()
      y = Loop (count, condition, x) <
        body = round (int64 i, bool going, float[2] v) => (bool on, float[2] next) {{
          next = Add (v, v)
          largest = ReduceMax <keepdims = 0> (next)
          on = Less (largest, limit)
        }}>
    }}""")  # fmt: skip
    _, program = converted(path, torch.tensor([1.0, 3.0]))
    assert str(program).count("coreai.while") == 1
    assert program.run({"x": torch.tensor([1.0, 3.0])})["y"].tolist() == [64.0, 192.0]
    assert program.run({"x": torch.tensor([-1.0, -3.0])})["y"].tolist() == [
        -(2.0**50),
        -3 * 2.0**50,
    ]  # the count ends it


def test_a_loop_that_stacks_an_unknown_number_of_rows_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, f"""{_HEAD}
    net (float[2] x, int64 count) => (float[2] y, float[n, 2] stacked) {{
      condition = Constant <value = bool {{1}}> ()
      scale = Constant <value = float {{0.5}}> ()
      {_LOOP.format()}
    }}""")  # fmt: skip
    with pytest.raises(OnnxError, match=r"Loop of opset 17.*depends on data, and the loop stacks results"):
        from_onnx(path)


def test_a_scan_over_fixed_rows(tmp_path: Path) -> None:
    path = written(tmp_path, f"""{_HEAD}
    net (float[2] start, float[3, 2] rows) => (float[2] last, float[3, 2] sums) {{
      last, sums = Scan <num_scan_inputs = 1,
        body = round (float[2] sum, float[2] row) => (float[2] next, float[2] out) {{
          next = Add (sum, row)
          out = Identity (next)
        }}> (start, rows)
    }}""")  # fmt: skip
    _, program = converted(path)
    rows = torch.arange(6.0).reshape(3, 2)
    assert program.run({"start": torch.zeros(2), "rows": rows})["sums"].tolist() == rows.cumsum(0).tolist()


def test_functions_of_the_file_and_of_onnx(tmp_path: Path) -> None:
    """Attributes of a call, defaults of ONNX's own definitions."""
    path = written(tmp_path, """
    <ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    net (float[2, 3] x) => (float[2, 3] y) {
      doubled = own.scaled <by = 2.0> (x)
      y = MeanVarianceNormalization <axes = [1]> (doubled)
    }
    <domain: "own", opset_import: ["" : 17]>
    scaled <by> (v) => (w) {
      factor = Constant <value_float : float = @by> ()
      w = Mul (v, factor)
    }""")  # fmt: skip
    converted(path)

"""Files that are damaged or name what is not theirs: one clear error each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from patcomp.errors import PatcompError, UnsupportedError
from patcomp.onnx.importing import OnnxError, from_onnx
from tests.onnx_files.helpers import written

onnx = pytest.importorskip("onnx")

_NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[2, 3] x) => (float[2, 4] y)
<float[3, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
{
  product = MatMul (x, w)
  y = Relu (product)
}"""


def _net(place: Path) -> Any:
    return onnx.load(written(place, _NET))


def _external(model: Any, **entries: Any) -> None:
    weight = model.graph.initializer[0]
    weight.ClearField("float_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        weight.external_data.add(key=key, value=str(value))


def _dims(model: Any) -> None:
    model.graph.initializer[0].dims[:] = [2**40, 2**40]


def _huge_input(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**50


def _huge_result(model: Any) -> None:
    shape = onnx.helper.make_tensor("size", onnx.TensorProto.INT64, [2], [2**40, 2**20])
    model.graph.initializer.append(shape)
    model.graph.node.insert(0, onnx.helper.make_node("ConstantOfShape", ["size"], ["z"], name="huge"))
    model.graph.node[-1].input[0] = "z"


def _cycle(model: Any) -> None:
    model.graph.node[0].input[0] = "y"


def _twice(model: Any) -> None:
    model.graph.node[1].output[0] = "product"


def _function_of_itself(model: Any) -> None:
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    call = onnx.helper.make_node("f", ["v"], ["w"], domain="own")
    imports = [onnx.helper.make_opsetid("own", 1)]
    model.functions.append(onnx.helper.make_function("own", "f", ["v"], ["w"], [call], imports))
    model.graph.node.append(onnx.helper.make_node("f", ["x"], ["z"], domain="own"))


def _axis(model: Any) -> None:
    model.graph.node[1].op_type = "Softmax"
    model.graph.node[1].attribute.append(onnx.helper.make_attribute("axis", 7))


def _text_input(model: Any) -> None:
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING


def _negative(model: Any) -> None:
    model.graph.initializer[0].dims[0] = -3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_dims, "damaged"),
        (_negative, "has the shape"),
        (_huge_input, "more than 2147483648 elements"),
        (_huge_result, "huge|elements|memory|bytes"),
        (_cycle, "nothing makes 'y'"),
        (_twice, "'product' is made twice"),
        (_function_of_itself, "the function f calls itself"),
        (_axis, "Softmax of opset 17"),
        (_text_input, "elements that PyTorch lacks"),
        (lambda model: _external(model, location="../weights"), "outside of the folder"),
        (lambda model: _external(model, location="/etc/passwd"), "outside of the folder"),
        (lambda model: _external(model, location="link"), "outside of the folder"),
        (lambda model: _external(model, location="lost"), "there is no such file"),
        (lambda model: _external(model, location="data", offset=40), "which has 48 bytes"),
        (lambda model: _external(model, location="data", offset=-8), "damaged"),
        (lambda model: _external(model, location="data", length=40), "40 bytes, not 48"),
        (lambda model: _external(model, location="data", offset="much"), "damaged"),
        (lambda model: model.opset_import[0].ParseFromString(b"\x10\x05"), "has opset 5, and patcomp knows 9 to"),
        (lambda model: model.graph.ClearField("output"), "has no outputs"),
    ],
)  # fmt: skip
def test_a_broken_file(tmp_path: Path, change: Callable[[Any], None], message: str) -> None:
    place = tmp_path / "folder"
    place.mkdir()
    model = _net(place)
    np.arange(12, dtype=np.float32).tofile(place / "data")
    (tmp_path / "weights").write_bytes(b"\0" * 48)
    (place / "link").symlink_to(tmp_path / "weights")
    change(model)
    path = place / "broken.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PatcompError, match=message) as caught:
        from_onnx(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_all_unknown_ops_are_named_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "own" : 3]>
    net (float[2, 3] x) => (float[2, 3] y) {
      a = Det (x)
      b = com.microsoft.LongformerAttention (x)
      c = own.Secret (b)
      d = own.Secret (c)
      y = Softmax <axis = 1, unheard = 2> (d)
    }""")  # fmt: skip
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(path)
    text = str(caught.value)
    for part in ("ai.onnx::Det of opset 17", "com.microsoft::LongformerAttention of opset 1", "own::Secret of opset 3",
                 "unexpected keyword argument 'unheard'", "domain='own'"):  # fmt: skip
        assert part in text
    assert len(caught.value.problems) == 4


def test_mutated_bytes_end_with_a_clear_error_or_a_program(tmp_path: Path) -> None:
    """Also cut files and nesting; the reader takes no memory by a number that the file only states."""
    data, random = written(tmp_path, _NET).read_bytes(), Random(0)
    path, messages = tmp_path / "mutated.onnx", []
    texts = [data[:count] for count in range(0, len(data), 9)] + [b"", b"PK\3\4", b"\x3a" * 5000, data * 3]
    for _ in range(60):
        made = bytearray(data)
        for _ in range(random.randint(1, 3)):
            made[random.randrange(len(made))] = random.randrange(256)
        texts.append(bytes(made))
    for text in texts:
        path.write_bytes(text)
        try:
            from_onnx(path)
        except PatcompError as error:
            messages.append(str(error))
    assert len(texts) / 2 < len(messages) < len(texts)
    assert all(20 < len(message) < 5000 for message in messages)


def test_deep_nesting(tmp_path: Path) -> None:
    data = onnx.helper.make_graph([], "inner", [], []).SerializeToString()
    for _ in range(2000):  # a graph in an attribute of a node of a graph, each with its length in front
        for tag in (0x32, 0x2A, 0x0A):
            data = bytes([tag, *_varint(len(data))]) + data
    path = tmp_path / "deep.onnx"
    path.write_bytes(b"\x3a" + bytes(_varint(len(data))) + data)
    with pytest.raises(OnnxError, match="not a model of ONNX, or is damaged"):
        from_onnx(path)


def _varint(number: int) -> list[int]:
    made = []
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return [*made, number]

"""Read a file of ONNX: nodes, weights and what is around them, checked.

Nothing in a file runs, and no file outside of its folder is read.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from patcomp.errors import PatcompError, shortened
from patcomp.onnx.importing.graphs import File, FileWeight, OnnxGraph, OnnxInput, OnnxNode, OuterAttribute
from patcomp.onnx.importing.ops.types import TORCH_TYPES
from patcomp.onnx.importing.values import MOST_KNOWN, KnownArray, known_array

OPSETS = (9, 28)
"""The first and the last version of ONNX's own ops that the rows are written for."""
_FEW_FLOATS = 8
"""The elements of the largest tensor of floats that is known numbers, too: factors of a resize. Others are weights."""
_MOST_ELEMENTS = 2**31
"""The elements of the largest input, of which an example is made."""


_TAKEN = frozenset(dir(nn.Module())) | {"file", "constant", "give", "results"}
"""Names that a module uses itself."""


class OnnxError(PatcompError, ValueError):
    """A file is damaged, or has what patcomp does not convert."""


def read(path: Path) -> File:
    """The content of a file.

    Raises:
        OnnxError: it is no model of ONNX, it is damaged, or it names data outside of its folder.
        PatcompError: `onnx` is not installed.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise PatcompError("files of ONNX need the package onnx: pip install 'patcomp[onnx]'") from error
    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, RecursionError, ValueError) as error:
        raise OnnxError(f"{path} is not a model of ONNX, or is damaged: {shortened(str(error), 300)}") from error
    with _damaged(path):
        return _Reader(path, model).file()


@contextmanager
def _damaged(path: Path) -> Iterator[None]:
    """What a library raises about a field of a file as an error about the file."""
    try:
        yield
    except OnnxError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        OverflowError,
        RecursionError,
        AttributeError,
        OSError,
    ) as error:
        reason = f"{type(error).__name__}: {shortened(str(error), 300)}"
        raise OnnxError(f"{path} is damaged: {reason}") from error


@dataclass
class _Reader:
    path: Path
    model: Any
    weights: dict[str, Tensor] = field(default_factory=dict)
    _open: Iterator[int] = field(default_factory=count)

    def file(self) -> File:
        model = self.model
        if not model.graph.node and not model.graph.output:
            raise OnnxError(f"{self.path} is not a model of ONNX: it has no graph")
        opsets = self._opsets(model.opset_import)
        functions = {
            (function.domain, function.name): OnnxGraph(
                tuple(function.input),
                tuple(function.output),
                self._nodes(function.node, f"function {function.name}"),
                {},
                self._opsets(function.opset_import) or opsets,
            )
            for function in model.functions
        }
        graph = self._graph(model.graph, opsets)
        given = {name for name in graph.inputs if name not in graph.constants}
        arguments = tuple(self._argument(each) for each in model.graph.input if each.name in given)
        graph = OnnxGraph(tuple(each.name for each in arguments), graph.outputs, graph.nodes, graph.constants, opsets)
        if not graph.outputs:
            raise OnnxError(f"{self.path} has no outputs")
        if graph.free:
            raise OnnxError(f"{self.path} is damaged: nothing makes {', '.join(map(repr, sorted(graph.free)[:5]))}")
        return File(str(self.path), graph, functions, arguments, self.weights)

    def _opsets(self, imports: Iterable[Any]) -> dict[str, int]:
        found = {("" if each.domain == "ai.onnx" else each.domain): each.version for each in imports}
        version = found.get("", OPSETS[0])
        if not OPSETS[0] <= version <= OPSETS[1]:
            raise OnnxError(
                f"{self.path} has opset {version}, and patcomp knows {OPSETS[0]} to {OPSETS[1]}; "
                "onnx.version_converter.convert_version makes another one of it"
            )
        return found

    def _graph(self, graph: Any, opsets: Mapping[str, int]) -> OnnxGraph:
        constants = {_text(each.name): self._constant(each, each.name) for each in graph.initializer}
        if graph.sparse_initializer:
            raise OnnxError(f"{self.path} has sparse weights, which are not supported; save it with dense ones")
        nodes = self._nodes(graph.node, graph.name)
        made = [name for node in nodes for name in node.outputs if name]
        if len(made) != len({*made}):
            twice = next(name for name in made if made.count(name) > 1)
            raise OnnxError(f"{self.path} is damaged: {twice!r} is made twice")
        inputs, outputs = (tuple(_text(each.name) for each in values) for values in (graph.input, graph.output))
        return OnnxGraph(inputs, outputs, nodes, constants, opsets)

    def _nodes(self, nodes: Iterable[Any], where: str) -> tuple[OnnxNode, ...]:
        return tuple(
            OnnxNode(
                _text(each.op_type),
                "" if each.domain == "ai.onnx" else _text(each.domain),
                _text(each.name),
                _without_empty_ends(each.input),
                _without_empty_ends(each.output),
                {_text(one.name): self._attribute(one, each.name or each.op_type) for one in each.attribute},
            )
            for each in nodes
        )

    def _attribute(self, attribute: Any, where: str) -> Any:
        from onnx import AttributeProto, helper

        if attribute.ref_attr_name:
            return OuterAttribute(attribute.ref_attr_name)
        if attribute.type == AttributeProto.GRAPH:
            return self._graph(attribute.g, {})
        if attribute.type == AttributeProto.TENSOR:
            return self._constant(attribute.t, f"{where}_{attribute.name}")
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, Iterable) and not isinstance(value, str):
            return [each.decode(errors="replace") if isinstance(each, bytes) else each for each in value]
        return value

    # ---- inputs -------------------------------------------------------------------------------------

    def _argument(self, value: Any) -> OnnxInput:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            raise OnnxError(f"{self.path}: the input {value.name!r} is no tensor, and patcomp takes tensors only")
        tensor = value.type.tensor_type
        if tensor.elem_type not in TORCH_TYPES:
            raise OnnxError(f"{self.path}: the input {value.name!r} has elements that PyTorch lacks, such as texts")
        if not tensor.HasField("shape"):
            raise OnnxError(f"{self.path}: the input {value.name!r} has no shape; onnx.shape_inference may write one")
        shape: list[int | str] = []
        for dim in tensor.shape.dim:
            size = dim.dim_value if dim.HasField("dim_value") else _text(dim.dim_param) or f"open_{next(self._open)}"
            if isinstance(size, int) and size < 0:
                raise OnnxError(f"{self.path}: the input {value.name!r} has the size {size}")
            shape.append(size)
        if prod(size for size in shape if isinstance(size, int)) > _MOST_ELEMENTS:
            raise OnnxError(f"{self.path}: the input {value.name!r} has more than {_MOST_ELEMENTS} elements")
        return OnnxInput(value.name, TORCH_TYPES[tensor.elem_type], tuple(shape))

    # ---- tensors ------------------------------------------------------------------------------------

    def _constant(self, tensor: Any, where: str) -> KnownArray | FileWeight:
        """A tensor of the file: a weight, and its numbers where they are few."""
        if tensor.data_type not in TORCH_TYPES:
            raise OnnxError(f"{self.path}: the tensor {where!r} has elements that PyTorch lacks, such as texts")
        if any(size < 0 for size in tensor.dims):
            raise OnnxError(f"{self.path} is damaged: the tensor {where!r} has the shape {list(tensor.dims)}")
        value = self._tensor(tensor, where)
        return with_weight(self.weights, where, value)

    def _tensor(self, tensor: Any, where: str) -> Tensor:
        """The elements, in the memory of the file where it has them as they are."""
        from onnx import TensorProto, numpy_helper

        dtype, shape = TORCH_TYPES[tensor.data_type], list(tensor.dims)
        packed = tensor.data_type in (TensorProto.UINT4, TensorProto.INT4)
        expected = (prod(shape) + 1) // 2 if packed else prod(shape) * dtype.itemsize
        data = None
        if tensor.data_location == TensorProto.EXTERNAL:
            data = self._external(tensor, where, expected)
        elif tensor.HasField("raw_data"):
            data = np.frombuffer(tensor.raw_data, np.uint8)
        if data is None:
            array = numpy_helper.to_array(tensor)
            array = array.view(np.uint16) if dtype == torch.bfloat16 else array
            array = array.astype(np.uint8 if dtype == torch.uint8 else np.int8) if packed else array
            array = array.view(np.uint8) if dtype.itemsize == 1 and dtype.is_floating_point else array
            return torch.from_numpy(np.array(array)).view(dtype).reshape(shape)
        if data.size != expected:
            raise OnnxError(
                f"{self.path} is damaged: the tensor {where!r} of the shape {shape} has {data.size} bytes, "
                f"not {expected}"
            )
        if packed:
            low, high = data & 15, data >> 4
            both = np.stack([low, high], -1).reshape(-1)[: prod(shape)].astype(np.int8)
            both = np.where(both > 7, both - 16, both) if dtype == torch.int8 else both
            return torch.from_numpy(both.astype(np.int8 if dtype == torch.int8 else np.uint8)).reshape(shape)
        if not data.size:
            return torch.zeros(shape, dtype=dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the memory is not written to
            return torch.frombuffer(data, dtype=dtype).reshape(shape)

    def _external(self, tensor: Any, where: str, expected: int) -> np.ndarray:
        """The bytes of a tensor in another file of the folder, mapped."""
        entries = {each.key: each.value for each in tensor.external_data}
        location = entries.get("location", "")
        folder = self.path.resolve().parent
        place = (folder / location).resolve()
        if not location or os.path.isabs(location) or not place.is_relative_to(folder):
            raise OnnxError(
                f"{self.path}: the tensor {where!r} is in {location!r}, which is outside of the folder of the file; "
                "copy it there"
            )
        if not place.is_file():
            raise OnnxError(f"{self.path}: the tensor {where!r} is in {location!r}, and there is no such file")
        offset, whole = int(entries.get("offset") or 0), place.stat().st_size
        length = int(entries["length"]) if "length" in entries else expected
        if offset < 0 or length < 0 or offset + length > whole:
            raise OnnxError(
                f"{self.path} is damaged: the tensor {where!r} is {length} bytes at {offset} of {location!r}, "
                f"which has {whole} bytes"
            )
        if not length:
            return np.empty(0, np.uint8)
        return np.memmap(place, np.uint8, "r", offset, (length,))


def with_weight(weights: dict[str, Tensor], where: str, value: Tensor) -> KnownArray | FileWeight:
    """A tensor as one of the weights, under a name of its own, and its numbers where they are few."""
    if value.numel() <= 1 and value.dtype not in (torch.int8, torch.uint8):
        return known_array(_objects(value), value.dtype)
    name = re.sub(r"\W", "_", where, flags=re.ASCII).strip("_")[:200] or "constant"
    name = f"weight_{name}" if name[0].isdigit() or name in _TAKEN else name
    found = next(each for n in count() if (each := f"{name}_{n}" if n else name) not in weights)
    weights[found] = value
    few = value.numel() <= (_FEW_FLOATS if value.is_floating_point() else MOST_KNOWN)
    return KnownArray(_objects(value), value.dtype, FileWeight(found)) if few else FileWeight(found)


def _text(value: Any) -> str:
    """A text of the file, which protobuf gives as bytes if it is none.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError(f"the name {value!r} is no text")
    return value


def _without_empty_ends(names: Iterable[str]) -> tuple[str, ...]:
    found = [_text(name) for name in names]
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def _objects(value: Tensor) -> np.ndarray:
    made = np.empty(value.numel(), dtype=object)
    made[:] = value.reshape(-1).tolist()
    return made.reshape(tuple(value.shape))


def definition_of(op: str, domain: str, opset: int) -> OnnxGraph | None:
    """How ONNX defines an op by others; None if it does not, or by the types of the inputs."""
    from onnx import defs

    try:
        schema = defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        return None
    if not schema.has_function:  # type: ignore[attr-defined]  # the stubs lack it
        return None
    body = schema.function_body
    reader = _Reader(Path(f"ONNX's definition of {op}"), None)
    opsets = reader._opsets(body.opset_import)
    defaults = {
        name: reader._attribute(each.default_value, name)
        for name, each in schema.attributes.items()
        if each.default_value.name
    }
    nodes = reader._nodes(body.node, op)
    return OnnxGraph(tuple(body.input), tuple(body.output), nodes, {}, opsets, defaults)

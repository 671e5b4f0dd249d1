"""An entry point of a program as an ONNX model, in memory or in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from patcomp.errors import UnsupportedError
from patcomp.ir import ProgramOp, walk
from patcomp.onnx.emission.emitter import WRITTEN_OPSETS, Emitter, Held, HeldState
from patcomp.onnx.emission.nodes import FreshNames, NodeScope

if TYPE_CHECKING:
    from patcomp.program.data import ProgramData

MOST_BYTES = 2**31 - 2**20
"""Weights that a file of protobuf, which has at most 2 GiB, can hold."""
NEXT = ".next"
"""What the name of an output ends in that an input has, too: the new content of a state, or the input itself."""


@dataclass
class Emitted:
    """A model without its weights, and the weights: the values and the ONNX type of each, by name."""

    model: onnx.ModelProto
    weights: dict[str, tuple[np.ndarray, int]]
    outputs: dict[str, str]
    """The name in the model of each output of the program, and of each state's new content."""

    @property
    def bytes_of_weights(self) -> int:
        return sum(values.nbytes for values, _ in self.weights.values())


def to_onnx(program: ProgramData, entrypoint: str = "main") -> onnx.ModelProto:
    """An entry point of a converted program as an ONNX model, opset 21.

    Composites are functions of the model, named after the graphs of the program. A state `cache` is an input `cache`,
    and an output `cache.next` with its new content. An output with the name of an input is called so, too. Inputs and
    outputs have the names and types of the program: 64-bit integers are 32-bit ones unless it was converted with
    `int64="keep"`. ONNX does not say where a sort puts NaN.

    Raises:
        KeyError: there is no such entry point.
        UnsupportedError: ONNX does not have an op; the message lists all of them, with their places.
        ValueError: the weights are larger than 2 GiB; `save_onnx` writes them to a second file.
    """
    return with_weights(emit(program, entrypoint))


def save_onnx(
    program: ProgramData, path: str | Path, *, entrypoint: str = "main", external: bool | None = None
) -> Path:
    """Write an entry point of a program as an ONNX file; see `to_onnx`.

    Args:
        path: of the file, which is replaced.
        external: whether weights are in a second file, `NAME.onnx.data`; by default if they are larger than 2 GiB.

    Raises:
        KeyError, UnsupportedError: as `to_onnx`.
        OSError: a file cannot be written.
        ValueError: `external=False`, and the weights are larger than 2 GiB.
    """
    return write_onnx(emit(program, entrypoint), Path(path), external)


def with_weights(emitted: Emitted) -> onnx.ModelProto:
    """The model with its weights.

    Raises:
        ValueError: they are larger than 2 GiB.
    """
    if emitted.bytes_of_weights > MOST_BYTES:
        raise ValueError(
            "the weights are larger than 2 GiB, which an ONNX model holds only in a second file: save_onnx"
        )
    model = onnx.ModelProto()
    model.CopyFrom(emitted.model)
    for name, (values, _) in emitted.weights.items():
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


def write_onnx(emitted: Emitted, path: Path, external: bool | None = None) -> Path:
    """Write a model to a file; see `save_onnx`."""
    if external is None:
        external = emitted.bytes_of_weights > MOST_BYTES
    if not external:
        path.write_bytes(with_weights(emitted).SerializeToString())
        return path
    model, data = onnx.ModelProto(), path.with_name(f"{path.name}.data")
    model.CopyFrom(emitted.model)
    with data.open("wb") as file:
        for name, (values, type_) in emitted.weights.items():
            tensor = TensorProto(name=name, data_type=type_, dims=values.shape, data_location=TensorProto.EXTERNAL)
            place = {"location": data.name, "offset": file.tell(), "length": values.nbytes}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            model.graph.initializer.append(tensor)
            file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
            file.write(bytes(-file.tell() % 64))  # where onnxruntime maps a weight into memory, it is aligned
    path.write_bytes(model.SerializeToString())
    return path


def emit(
    program: ProgramData,
    entrypoint: str,
    *,
    watch: Callable[[ProgramOp, Sequence[Held]], object] = lambda op, results: None,
) -> Emitted:
    """The model of an entry point, and its weights; `watch` is called with each op outside functions.

    Raises:
        KeyError, UnsupportedError: as `to_onnx`.
    """
    program.graph(entrypoint)
    graphs = {graph.name: graph for graph in walk(program.module)}
    graph, signature = graphs[entrypoint], program.signature(entrypoint)
    shapes = {spec.name: spec.shape for spec in (*signature.inputs, *signature.states, *signature.outputs)}
    reserved = {name for port in (*graph.inputs, *graph.outputs) for name in (port.name, port.name + NEXT)}
    emitter = Emitter(graphs, FreshNames(reserved), watch=watch)
    scope = NodeScope(emitter.names, {})
    given: list[Held] = [HeldState(port.name, scope) if port.is_state else port.name for port in graph.inputs]
    results = emitter.body(graph, given, scope)
    new = [(port, state.now) for port, state in zip(graph.inputs, given, strict=True) if isinstance(state, HeldState)]
    new += [(port, held) for port, held in zip(graph.outputs, results, strict=True) if isinstance(held, str)]
    inputs = [emitter.info(port.name, port, shapes[port.name]) for port in graph.inputs]
    names = {port.name for port in graph.inputs}
    taken = {port.name: port.name + NEXT * (port.name in names) for port, _ in new}
    # a value may be several outputs, or an input, so it is copied
    scope.nodes += [helper.make_node("Identity", [held], [taken[port.name]]) for port, held in new]
    outputs = [emitter.info(taken[port.name], port, shapes[port.name]) for port, _ in new]
    if emitter.problems:
        raise UnsupportedError("the program cannot be written as ONNX:", emitter.problems)
    assert scope.weights is not None
    used = {name for node in scope.nodes for name in _reads(node)}
    made = helper.make_graph(scope.nodes, entrypoint, inputs, outputs)
    model = helper.make_model(
        made,
        opset_imports=WRITTEN_OPSETS,
        ir_version=10,
        functions=list(emitter.functions.values()),
        producer_name="patcomp",
    )
    states = [port.name for port in graph.inputs if port.is_state]
    helper.set_model_props(model, {"states": json.dumps(states)})
    return Emitted(model, {name: weight for name, weight in scope.weights.items() if name in used}, taken)


def _reads(node: onnx.NodeProto) -> list[Any]:
    """The names that a node reads, in its branches too."""
    inner = [graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs)]
    return [*node.input, *(name for graph in inner for each in graph.node for name in _reads(each))]

"""What follows from constants of a file alone is computed once, while the file is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from patcomp.onnx.importing.graphs import File, FileWeight, OnnxGraph, OnnxNode
from patcomp.onnx.importing.module import OnnxModule
from patcomp.onnx.importing.reading import OnnxError, with_weight
from patcomp.onnx.importing.rows import MICROSOFT, OWN_FORMS
from patcomp.onnx.importing.values import KnownArray, OnnxValue

_MOST = 2**20
"""The elements of the largest tensor that is computed: tables of positions, masks."""
_STAYS = frozenset(
    {"DequantizeLinear", "RandomNormal", "RandomUniform", "Bernoulli", "Multinomial", "If", "Loop", "Scan"}
)
"""Ops that stay: quantized weights stay in bytes, and others draw numbers or have graphs."""


def with_constants(file: File) -> File:
    """The file with constants in the place of nodes whose inputs are constants.

    Raises:
        OnnxError: such a node cannot be computed.
    """
    module = OnnxModule(file)
    constants = dict(file.graph.constants)
    weights = dict(file.weights)
    nodes, given = [], set(weights)
    for node in file.graph.nodes:
        results = _computed(node, module, file.graph, constants)
        if results is None:
            nodes.append(node)
            continue
        for name, value in zip(node.outputs, results, strict=False):
            if isinstance(value, torch.Tensor):
                constants[name] = with_weight(weights, name, value.detach().contiguous())
                for each in weights.keys() - given:
                    module.give(each, weights[each])
                given = set(weights)
            else:
                assert isinstance(value, KnownArray)
                constants[name] = value
    used = {name for node in nodes for name in (*node.inputs, *_of_graphs(node))} | {*file.graph.outputs}
    constants = {name: value for name, value in constants.items() if name in used}
    graph = replace(file.graph, nodes=tuple(nodes), constants=constants)
    kept = {name for each in (graph, *file.functions.values()) for name in _weights_of(each)}
    return replace(file, graph=graph, weights={name: value for name, value in weights.items() if name in kept})


def _weights_of(graph: OnnxGraph) -> Iterator[str]:
    """The names of the weights that a graph has."""
    for value in (*graph.constants.values(), *(each for node in graph.nodes for each in node.attributes.values())):
        stored = value.stored if isinstance(value, KnownArray) else value
        if isinstance(stored, FileWeight):
            yield stored.name
        elif isinstance(stored, OnnxGraph):
            yield from _weights_of(stored)


def _of_graphs(node: OnnxNode) -> list[str]:
    """The names that the graphs of a node take from around it."""
    return [name for each in node.attributes.values() if isinstance(each, OnnxGraph) for name in each.free]


def with_few_bits(file: File) -> File:
    """The file with the elements of packed weights (`MatMulNBits`) in bytes of their own, as rows and tables want them.

    Raises:
        OnnxError: a packed weight has another size than its node says.
    """
    weights, constants = dict(file.weights), dict(file.graph.constants)
    nodes = tuple(_in_bytes(node, file, weights, constants) for node in file.graph.nodes)
    return replace(file, graph=replace(file.graph, nodes=nodes, constants=constants), weights=weights)


def _in_bytes(
    node: OnnxNode, file: File, weights: dict[str, torch.Tensor], constants: dict[str, KnownArray | FileWeight]
) -> OnnxNode:
    """A product with a weight of 4 bits as the op of a weight whose elements have a byte each."""
    packed = [constants.get(name) for name in (node.inputs[1], *node.inputs[3:4])] if node.op == "MatMulNBits" else []
    if not packed or node.domain != MICROSOFT or node.attributes.get("bits", 4) != 4:
        return node
    stored = [each.stored if isinstance(each, KnownArray) else each for each in packed]
    found = [each.name for each in stored if isinstance(each, FileWeight) and weights[each.name].dtype == torch.uint8]
    if len(found) != len(packed):
        return node
    rows, columns, size = (node.attributes[name] for name in ("N", "K", "block_size"))
    inputs = list(node.inputs)
    for index, name in zip((1, 3), found, strict=False):
        data = weights[name]
        made = torch.stack((data & 15, data >> 4), -1).reshape(rows, -1)
        wide = columns if index == 1 else -(-columns // size)
        if made.shape[1] < wide or columns % size:
            raise OnnxError(f"{file.path} is damaged: {inputs[index]!r} has another size than its node says")
        inputs[index] = f"{inputs[index]} in bytes"
        constants[inputs[index]] = with_weight(weights, inputs[index], made[:, :wide].contiguous())
    return replace(node, op="MatMulOfBlocks", domain=OWN_FORMS, inputs=tuple(inputs), attributes={})


def _computed(
    node: OnnxNode, module: OnnxModule, graph: OnnxGraph, constants: dict[str, KnownArray | FileWeight]
) -> list[OnnxValue] | None:
    """The results of a node whose inputs are constants; None if it stays."""
    known = {name: constants.get(name) for name in node.inputs if name}
    if node.op in _STAYS or any(value is None for value in known.values()):
        return None
    given = {"": None, **{name: module.constant(value) for name, value in known.items()}}
    largest = max((_elements(value) for value in given.values()), default=0)
    if largest > _MOST:
        return None
    with torch.no_grad():
        results = list(module.results(node, given, graph.opsets, {}))
    if any(not isinstance(value, torch.Tensor | KnownArray) or _elements(value) > _MOST for value in results):
        return None
    return results


def _elements(value: OnnxValue) -> int:
    if isinstance(value, KnownArray):
        return int(value.values.size)
    return value.numel() if isinstance(value, torch.Tensor) else 0

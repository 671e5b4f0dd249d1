"""What follows from constants of a file alone is computed once, while the file is read."""

from __future__ import annotations

from dataclasses import replace

import torch

from patcomp.onnx.importing.graphs import File, Graph, Node, Weight
from patcomp.onnx.importing.module import OnnxModule
from patcomp.onnx.importing.reading import with_weight
from patcomp.onnx.importing.values import Known, Value

_MOST = 2**20
"""The elements of the largest tensor that is computed: tables of positions, masks."""
_STAYS = frozenset({"DequantizeLinear", "RandomNormal", "RandomUniform", "Bernoulli", "Multinomial", "If", "Loop", "Scan"})
"""Ops that stay: quantized weights stay in bytes, and others draw numbers or have graphs."""


def folded(file: File) -> File:
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
                assert isinstance(value, Known)
                constants[name] = value
    graph = replace(file.graph, nodes=tuple(nodes), constants=constants)
    return replace(file, graph=graph, weights=weights)


def _computed(node: Node, module: OnnxModule, graph: Graph, constants: dict[str, Known | Weight]) -> list[Value] | None:
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
    if any(not isinstance(value, torch.Tensor | Known) or _elements(value) > _MOST for value in results):
        return None
    return results


def _elements(value: Value) -> int:
    if isinstance(value, Known):
        return int(value.values.size)
    return value.numel() if isinstance(value, torch.Tensor) else 0

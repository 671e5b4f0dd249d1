"""A file as a module, whose `forward` runs the nodes by the rows of their ops."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from patcomp.errors import PatcompError, reason_of, shortened
from patcomp.onnx.importing import ops
from patcomp.onnx.importing.graphs import File, FileWeight, OnnxGraph, OnnxNode, OuterAttribute
from patcomp.onnx.importing.reading import OnnxError
from patcomp.onnx.importing.rows import ON_NUMBERS, ONNX_ROWS, NodeCall, call_row
from patcomp.onnx.importing.values import KnownArray, OnnxValue, as_tensor, known_array, rounded
from patcomp.torchvision import declare_operators


def load_rows() -> None:
    """Import the files of rows."""
    declare_operators()  # of torchvision
    for module in pkgutil.iter_modules(ops.__path__):
        importlib.import_module(f"{ops.__name__}.{module.name}")


class OnnxModule(nn.Module):
    """Computes what a file says. Its weights are those of the file, floats as parameters and others as buffers."""

    def __init__(self, file: File):
        load_rows()
        super().__init__()
        self.file = file
        for name, value in file.weights.items():
            self.give(name, value)

    def give(self, name: str, value: Tensor) -> None:
        """Register a weight."""
        if value.is_floating_point():
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))
        else:
            self.register_buffer(name, value)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs of the file, in order."""
        graph = self.file.graph
        results = [as_tensor(value) for value in self._run(graph, inputs, {}, graph.opsets, {})]
        for name, result in zip(graph.outputs, results, strict=True):
            if not isinstance(result, Tensor):
                raise OnnxError(f"{self.file.path}: the output {name!r} is no tensor, and patcomp gives tensors only")
        return tuple(results)

    def _run(
        self,
        graph: OnnxGraph,
        inputs: Sequence[OnnxValue],
        outer: Mapping[str, OnnxValue],
        opsets: Mapping[str, int],
        attributes: Mapping[str, Any],
    ) -> list[OnnxValue]:
        """The outputs of a graph.

        Args:
            outer: the values around the graph.
            opsets: the versions of the ops.
            attributes: of the call, where the graph is a function's.
        """
        values: dict[str, OnnxValue] = dict(outer)
        values.update((name, self.constant(constant)) for name, constant in graph.constants.items())
        values.update(zip(graph.inputs, inputs, strict=False))
        values[""] = None
        for node in graph.nodes:
            results = self.results(node, values, opsets, attributes)
            values.update(zip(node.outputs, results, strict=False))
        return [values[name] for name in graph.outputs]

    def constant(self, constant: Any) -> Any:
        """A constant of a graph as a value."""
        if isinstance(constant, FileWeight):
            return getattr(self, constant.name)
        if isinstance(constant, KnownArray) and isinstance(constant.stored, FileWeight):
            return replace(constant, stored=partial(getattr, self, constant.stored.name))
        return constant

    def results(
        self, node: OnnxNode, values: Mapping[str, OnnxValue], opsets: Mapping[str, int], outside: Mapping[str, Any]
    ) -> Sequence[OnnxValue]:
        """The outputs of a node.

        Raises:
            OnnxError: a row refuses its inputs or attributes.
        """
        attributes = {}
        for name, value in node.attributes.items():
            if isinstance(value, OuterAttribute):
                if value.name not in outside:
                    continue
                value = outside[value.name]
            attributes[name] = self.constant(value)
        inputs = [values[name] for name in node.inputs]
        opset = opsets.get(node.domain, 1)
        function = self.file.functions.get((node.domain, node.op))
        try:
            if function is not None:
                outside = {**function.defaults, **attributes}
                return self._run(function, _padded(inputs, function), {}, function.opsets, outside)

            def run(
                graph: OnnxGraph, given: Sequence[OnnxValue], outer: Mapping[str, OnnxValue] | None = None
            ) -> list[OnnxValue]:
                return self._run(graph, given, {**values, **(outer or {})}, opsets, outside)

            call = NodeCall(opset, len(node.outputs), values, run)
            result = _on_numbers(node, inputs, attributes)
            if result is None:
                result = call_row(ONNX_ROWS[node.domain, node.op], inputs, attributes, call)
        except PatcompError:
            raise
        except Exception as error:  # what PyTorch raises about the arguments of a row
            if _is_of_the_trace(error):
                raise
            raise OnnxError(f"{self.file.path}: {node.place(opset)}: {shortened(reason_of(error), 500)}") from error
        if isinstance(result, list) and len(node.outputs) == 1:
            return [result]  # a sequence
        return result if isinstance(result, tuple | list) else [result]


def _is_of_the_trace(error: Exception) -> bool:
    """Whether PyTorch's export explains the error: a decision by data, or by a size that is open."""
    return type(error).__module__.startswith(("torch.fx", "torch._dynamo", "torch._subclasses"))


def _padded(inputs: list[OnnxValue], function: OnnxGraph) -> list[OnnxValue]:
    return inputs + [None] * (len(function.inputs) - len(inputs))


def _on_numbers(node: OnnxNode, inputs: Sequence[OnnxValue], attributes: Mapping[str, Any]) -> Any:
    """What an op gives of known numbers; None if they are not all known, or there are too many."""
    row = None if node.domain else ON_NUMBERS.get(node.op)
    if row is None or not inputs or not all(each is None or isinstance(each, KnownArray) for each in inputs):
        return None
    arrays = [each.values if isinstance(each, KnownArray) else None for each in inputs]
    dtype = inputs[-1 if node.op == "Where" else 0].dtype  # type: ignore[union-attr]
    try:
        made = row(*arrays, **attributes)
        results = made if isinstance(made, tuple) else (made,)
        return tuple(
            each if isinstance(each, KnownArray) else known_array(rounded(each, dtype), dtype) for each in results
        )
    except (NotImplementedError, ArithmeticError):
        return None

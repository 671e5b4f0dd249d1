"""The public walk of a program: graphs, ops, values, constants and composites as plain Python, for emitters.

    for graph in walk(program.module):  # after the graphs that it calls
        for op in graph.ops:
            print(op.name, op.attributes, [value.shape for value in op.operands])

Nothing here changes a program. `docs/emitters.md` has an emitter that is written with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from patcomp.errors import EvaluationError
from patcomp.ir.attributes import CompositeDeclarationAttr, EnumerationAttr, word_of
from patcomp.ir.blobs import NO_VALUES
from patcomp.ir.constants import attribute_values, weight_key
from patcomp.ir.locations import Origin, describe, origins
from patcomp.ir.module import IRModule, callee, graph_name, names_of
from patcomp.ir.types import HandleType
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import (
    ArrayAttr,
    Attribute,
    Block,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Operation,
    StringAttr,
    TensorType,
)


def walk(module: IRModule) -> Iterator[ProgramGraph]:
    """The graphs of a module, each after the graphs that it calls."""
    graphs, calls, done = {graph_name(graph): graph for graph in module.graphs}, module.calls(), set[str]()

    def after_callees(name: str) -> Iterator[ProgramGraph]:
        if name not in done:
            done.add(name)
            for called in sorted(calls[name]):
                yield from after_callees(called)
            yield ProgramGraph(graphs[name].regions[0].block, module, graphs[name])

    for name in graphs:
        yield from after_callees(name)


@dataclass(frozen=True)
class Port:
    """An input or output of a graph."""

    name: str
    """Its name at run time, or its position."""
    value: Value
    type: ValueType | None
    """The type of the tensor, or of a state's content; None for a token, which only orders reads and writes."""
    is_state: bool
    """Whether it is a buffer that the graph reads and writes (`coreai.read_handle`, `coreai.write_handle`)."""


@dataclass(frozen=True)
class CompositeDeclaration:
    """What makes a graph an op that the Core AI compiler knows by name."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    """bool, int, float, str, and lists and dicts of these; `version` is one of them."""


@dataclass(frozen=True)
class ProgramBody:
    """The ops of a graph, of a branch or of a loop."""

    block: Block
    module: IRModule

    @property
    def arguments(self) -> tuple[Value, ...]:
        """The values that the body is called with."""
        return tuple(map(Value, self.block.args))

    @property
    def ops(self) -> Iterator[ProgramOp]:
        """The ops in order, without the terminator."""
        last = self.block.last_op
        return (ProgramOp(op, self.module) for op in self.block.ops if op is not last)

    @property
    def results(self) -> tuple[Value, ...]:
        """The values that the body gives; of the first body of a loop, the condition comes first."""
        return tuple(map(Value, self.block.last_op.operands)) if self.block.last_op else ()


@dataclass(frozen=True)
class ProgramGraph(ProgramBody):
    """A graph: an entry point, or one that others call."""

    operation: Operation

    @property
    def name(self) -> str:
        return graph_name(self.operation)

    @cached_property
    def is_entry(self) -> bool:
        """Whether the graph can be called from outside."""
        return self.operation in self.module.entry_graphs

    @property
    def inputs(self) -> tuple[Port, ...]:
        return _ports(names_of(self.operation, "arg_attrs"), self.arguments)

    @property
    def outputs(self) -> tuple[Port, ...]:
        return _ports(names_of(self.operation, "res_attrs"), self.results)

    @property
    def composite(self) -> CompositeDeclaration | None:
        """The declaration of a composite; None for any other graph."""
        declared = self.operation.properties.get("composite_decl")
        if not isinstance(declared, CompositeDeclarationAttr):
            return None
        fields = python_value(declared.fields)
        inputs, outputs = tuple(fields["input_names"]), tuple(fields["output_names"])
        return CompositeDeclaration(declared.composite_name.data, inputs, outputs, fields["op_attrs"])


def _ports(names: list[str | None], values: tuple[Value, ...]) -> tuple[Port, ...]:
    ports = []
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        type_, is_state = value.ssa.type, isinstance(value.ssa.type, HandleType)
        content = type_.tensor_type if isinstance(type_, HandleType) else type_
        of_content = ValueType(content) if isinstance(content, TensorType) else None
        ports.append(Port(name or str(index), value, of_content, is_state))
    return tuple(ports)


@dataclass(frozen=True)
class ProgramOp:
    """One op. `docs/generated/authoring-functions.md` lists the ops of a converted program."""

    operation: Operation
    module: IRModule

    @property
    def name(self) -> str:
        """`coreai.softmax`."""
        return self.operation.name

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(map(Value, self.operation.operands))

    @property
    def results(self) -> tuple[Value, ...]:
        return tuple(map(Value, self.operation.results))

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What is no operand: the words of enumerations, with their defaults, and other properties as Python values."""
        row, given = getattr(self.operation, "ROW", None), self.operation.properties
        declared = {slot.name: slot for slot in row.properties} if row else {}
        defaults = {name: slot.default for name, slot in declared.items() if slot.default is not None}
        values = {
            name: word_of(declared[name], value) if name in declared and declared[name].words else python_value(value)
            for name, value in given.items()
            if name not in ("value", "callee", "operandSegmentSizes")
        }
        return {**defaults, **values}

    @property
    def constant(self) -> np.ndarray | None:
        """The elements of a `coreai.constant`, read-only and not copied; None for other ops.

        Floats that numpy lacks are float32, integers of less than 8 bits int8 or uint8: the result's `dtype` says more.

        Raises:
            EvaluationError: the weight has no values.
        """
        if self.name != "coreai.constant":
            return None
        values = attribute_values(self.operation.properties["value"], self.module.blobs)
        if values is None:
            raise EvaluationError(NO_VALUES.format(self.weight))
        return values

    @property
    def weight(self) -> str | None:
        """The key of the weight that a constant is, the same for all constants of it; None for one in the text."""
        return weight_key(self.operation.results[0]) if self.name == "coreai.constant" else None

    @property
    def callee(self) -> str | None:
        """The name of the graph that a `coreai.invoke` calls; None for other ops."""
        return callee(self.operation) if self.name == "coreai.invoke" else None

    @property
    def bodies(self) -> tuple[ProgramBody, ...]:
        """The branches of a `coreai.if`; the condition and the body of a `coreai.while`."""
        return tuple(ProgramBody(region.block, self.module) for region in self.operation.regions)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The places of the model that the op comes from: FX node, module and line."""
        return origins(self.operation.location)

    @property
    def place(self) -> str:
        """The first of these places as text: `%add in layers.0 at model.py:12`."""
        return describe(self.operation)


def python_value(attribute: Attribute) -> Any:
    """An attribute as bool, int, float, str, or a list or dict of these; the attribute itself if it is none of them."""
    if isinstance(attribute, IntegerAttr):
        number = attribute.value.data
        return bool(number) if attribute.type == IntegerType(1) else number
    if isinstance(attribute, FloatAttr):
        return attribute.value.data
    if isinstance(attribute, StringAttr | EnumerationAttr):
        return attribute.data
    if isinstance(attribute, ArrayAttr):
        return [python_value(item) for item in attribute.data]
    if isinstance(attribute, DictionaryAttr):
        return {name: python_value(item) for name, item in attribute.data.items()}
    return attribute

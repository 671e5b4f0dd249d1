"""Import: the FX graph of an exported program as a `coreai.graph` of `aten` ops, one op a node."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from patcomp.errors import Problem, UnsupportedError
from patcomp.frontend_torch.dtypes import element_of, storage_array, type_of
from patcomp.frontend_torch.provenance import origin_of
from patcomp.frontend_torch.signature import Signature
from patcomp.ir import aten
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_attribute
from patcomp.ir.dialect import create_op
from patcomp.ir.locations import origin_location
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.value import Value, set_name
from patcomp.ir.xdsl import Attribute, Block

ASSERTIONS = {
    "aten::_assert_async.msg",
    "aten::_assert_scalar",
    "aten::_assert_tensor_metadata",
    "aten::_linalg_check_errors",
    "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
}
"""Checks that export leaves in the graph; they compute nothing, and types and shapes are fixed here anyway."""


def is_assertion(node: Node) -> bool:
    """Whether a node only checks something."""
    # with_effects(token, op, ...) is what run_decompositions makes of ops that may raise, to keep their order
    target = node.args[1] if node.target is torch.ops.higher_order.with_effects else node.target
    return isinstance(target, torch._ops.OpOverload) and target.name().removesuffix(".default") in ASSERTIONS


def is_size(node: Node) -> bool:
    """Whether a node computes a size that is only known when the program runs, or a condition on sizes."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymBool | torch.SymFloat)


def operator_name(node: Node) -> str:
    """The name of a node's op in the `aten` dialect, or Python's name of what is not an operator overload."""
    if isinstance(node.target, torch._ops.OpOverload):
        return aten.op_name(node.target.name())
    return getattr(node.target, "__name__", str(node.target))


def import_program(
    module: IRModule,
    program: ExportedProgram,
    signature: Signature,
    *,
    name: str,
    input_names: tuple[str, ...],
    output_names: tuple[str, ...],
    expansions: Mapping[Node, GraphModule] | None = None,
) -> None:
    """Appends the graph `@name` of an exported program to a module.

    Weights become blobs of the module without a copy; the program is not touched.

    Args:
        expansions: graphs to import in place of some nodes, with a placeholder for each of their input nodes.

    Raises:
        UnsupportedError: nodes that have no form in the IR, all of them listed.
    """
    _Importer(module, program, signature, expansions or {}).run(name, input_names, output_names)


class _NotImportedError(Exception):
    """A value that could not be imported is used."""


class _Importer:
    def __init__(
        self,
        module: IRModule,
        program: ExportedProgram,
        signature: Signature,
        expansions: Mapping[Node, GraphModule],
    ):
        self.module = module
        self.program = program
        self.signature = signature
        self.expansions = expansions
        self.expanded: Node | None = None
        """The node whose expansion is being imported."""
        self.values: dict[Node, Value | list[Value | None] | None] = {}
        """None is what nothing uses."""
        self.problems: list[Problem] = []
        self.block = Block()
        self.builder = Builder(self.block, blobs=module.blobs)

    def run(self, name: str, input_names: tuple[str, ...], output_names: tuple[str, ...]) -> None:
        nodes = list(self.program.graph.nodes)
        placeholders = {node.name: node for node in nodes if node.op == "placeholder"}
        for index, input_name in enumerate(self.signature.inputs):
            try:
                type_ = type_of(placeholders[input_name].meta["val"])
            except TypeError as error:
                self._problem(placeholders[input_name], str(error))
                continue
            argument = self.block.insert_arg(type_, index)
            set_name(argument, input_name)
            self.values[placeholders[input_name]] = Value(argument)
        with self.builder:
            for node_name in placeholders:
                if node_name in self.signature.constants and placeholders[node_name].users:
                    self._constant(placeholders[node_name])
            for node in nodes:
                if node.op == "call_function" and not (is_assertion(node) or is_size(node)):
                    self._call(node)
                elif node.op not in ("placeholder", "call_function", "output"):
                    self._problem(node, f"FX nodes of kind {node.op} are not supported")
            if self.problems:
                raise UnsupportedError(f"@{name} cannot be imported:", self.problems)
            outputs = [self._value(self._node(output)) for output in self.signature.outputs]
            self.builder.location = origin_location(origin_of(nodes[-1]))
            self.builder.insert(create_op("coreai.output", [value.ssa for value in outputs], ()))
        graph = create_graph(name, self.block, argument_names=input_names, result_names=output_names)
        self.module.op.body.block.add_op(graph)

    def _node(self, name: str) -> Node:
        return next(node for node in self.program.graph.nodes if node.name == name)

    def _value(self, node: Node) -> Value:
        if node not in self.values and node.name in self.signature.constants:
            self._constant(node)
        value = self.values.get(node)
        if not isinstance(value, Value):
            raise _NotImportedError(node.name)
        return value

    def _constant(self, node: Node) -> None:
        path, value = self.signature.constants[node.name]
        self.builder.location = origin_location(origin_of(node))
        stored = self.values[node] = self._stored(path, value)
        set_name(stored.ssa, node.name)

    def _stored(self, name: str, value: torch.Tensor) -> Value:
        """A constant; of a complex tensor the parts are stored, since the runtime has no complex constants."""
        if value.is_complex():
            plain = value.detach().resolve_conj()
            parts = (self._stored(f"{name}.{part}", getattr(plain, part).contiguous()) for part in ("real", "imag"))
            return aten.build("aten.complex", type_of(plain), **dict(zip(("real", "imag"), parts, strict=True)))
        attribute = constant_attribute(
            storage_array(value), element_of(value.dtype), self.module.blobs, name, value
        )  # fmt: skip
        op = self.builder.insert(create_op("coreai.constant", (), [attribute.type], {"value": attribute}))
        return Value(op.results[0])

    def _problem(self, node: Node, message: str, advice: str = "") -> None:
        place = self.expanded or node
        origin = origin_of(place)
        self.problems.append(
            Problem(message, operator_name(node), place.name, origin.module_path, origin.source, advice)
        )

    def _name(self, node: Node) -> str:
        return f"{self.expanded.name}_{node.name}" if self.expanded else node.name

    def _expand(self, node: Node, inside: GraphModule) -> None:
        """Imports the graph of an expansion in place of a node."""
        self.expanded = node
        try:
            self._expanded(node, inside)
        finally:
            self.expanded = None

    def _expanded(self, node: Node, inside: GraphModule) -> None:
        sources = iter(node.all_input_nodes)
        for inner in inside.graph.nodes:
            if inner.op == "placeholder":
                self.values[inner] = self._value(next(sources))
            elif inner.op == "get_attr":
                self._captured(inner, getattr(inside, str(inner.target)))
            elif inner.op == "call_function" and not (is_assertion(inner) or is_size(inner)):
                self._call(inner)
            elif inner.op == "output":
                results = inner.args[0]
                if isinstance(results, Node):
                    self.values[node] = self._value(results)
                else:
                    assert isinstance(results, list | tuple)
                    self.values[node] = [None if result is None else self._value(result) for result in results]

    def _captured(self, node: Node, value: torch.Tensor) -> None:
        """A tensor that a decomposition makes of Python numbers."""
        known = value.constant if isinstance(value, FakeTensor) else value
        if known is None:
            raise TypeError("a decomposition makes a tensor of numbers that cannot be known")
        self.values[node] = self._stored(self._name(node), known)

    def _call(self, node: Node) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, Node)
            assert isinstance(index, int)
            results = self.values.get(source)
            if isinstance(results, list):
                self.values[node] = results[index]
            return
        if not isinstance(node.target, torch._ops.OpOverload):
            self._problem(node, f"{operator_name(node)} is not an operator that can be converted yet")
            return
        try:
            if node in self.expansions:
                self._expand(node, self.expansions[node])
            else:
                self._operator(node, node.target)
        except _NotImportedError:
            return  # what it depends on has been reported
        except (TypeError, KeyError, OverflowError) as error:
            self._problem(node, str(error))

    def _operator(self, node: Node, target: torch._ops.OpOverload) -> None:
        self.builder.location = origin_location(origin_of(self.expanded or node))
        schema = aten.define(str(target._schema))
        arguments = self._arguments(node, target)
        result = node.meta["val"]
        several = isinstance(result, list | tuple)
        types: list[Attribute] = [type_of(value) for value in (result if several else [result])]
        if schema.name == "aten.as_strided":
            self._flatten_as_strided(node, arguments)
        made = aten.build(schema.name, types, **arguments)
        for index, value in enumerate(made):
            set_name(value.ssa, f"{self._name(node)}_{index}" if several else self._name(node))
        self.values[node] = list(made) if several else made[0]

    def _arguments(self, node: Node, target: torch._ops.OpOverload) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for index, argument in enumerate(target._schema.arguments):
            if argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            elif index < len(node.args) and not argument.kwarg_only:
                value = node.args[index]
            else:
                continue
            if argument.name in aten.MEMORY_ARGUMENTS:
                if isinstance(value, torch.layout) and value is not torch.strided:
                    raise TypeError(f"tensors of layout {value} cannot be converted")
                continue
            given[argument.name] = self._argument(value, argument.N)  # type: ignore[attr-defined]
        return given

    def _argument(self, value: Any, length: int | None) -> Any:
        if isinstance(value, Node):
            if is_size(value):
                raise TypeError(f"the size {value.meta['val']} is only known when the program runs")
            if value.name in self.signature.fixed_inputs:
                return self.signature.fixed_inputs[value.name]
            return self._value(value)
        if isinstance(value, list | tuple):
            items = [self._argument(item, None) for item in value]
            return items * length if length and len(items) == 1 else items
        if isinstance(value, torch.dtype):
            return element_of(value)
        if isinstance(value, torch.device | torch.memory_format | torch.layout):
            return str(value)
        if length and isinstance(value, int | float):
            return [value] * length  # `kernel_size=3` means 3 in each dimension
        return value

    def _flatten_as_strided(self, node: Node, arguments: dict[str, Any]) -> None:
        """`as_strided` reads memory, so its input is brought into memory order and flattened first.

        The order is that of the strides which export recorded; values of the IR have no strides.
        """
        source = node.args[0]
        assert isinstance(source, Node)
        fake: torch.Tensor = source.meta["val"]
        order = sorted(range(fake.dim()), key=lambda axis: (-fake.stride(axis), axis))  # type: ignore[operator]
        expected = 1
        for axis in reversed(order):
            if fake.shape[axis] != 1 and fake.stride(axis) != expected:
                raise TypeError("as_strided of a tensor that overlaps itself or has gaps cannot be converted")
            expected *= fake.shape[axis]
        value: Value = arguments["self"]
        if order != sorted(order):
            permuted = type_of(fake.permute(order))
            value = aten.build("aten.permute", permuted, self=value, dims=order)
        count = math.prod(fake.shape)
        arguments["self"] = aten.build("aten.view", type_of(fake.reshape(-1)), self=value, size=[count])
        offset = arguments.get("storage_offset")
        arguments["storage_offset"] = (offset or 0) - fake.storage_offset() if offset is not None else 0

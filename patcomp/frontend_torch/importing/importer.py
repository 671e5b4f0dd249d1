"""Import: the FX graph of an exported program as a `coreai.graph` of `aten` ops, one op a node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node

from patcomp.errors import Problem, UnsupportedError
from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.externalization.markers import BEGIN, is_marker, marker_op
from patcomp.frontend_torch.fx.dtypes import element_of, has_values, storage_array, type_of
from patcomp.frontend_torch.fx.nodes import (
    given_arguments,
    is_assertion,
    is_size,
    is_untyped,
    list_lengths,
    operator_name,
    reads_number,
    recorded_results,
)
from patcomp.frontend_torch.fx.provenance import Origins, nested_graph
from patcomp.frontend_torch.fx.sizes import (
    SYMBOLIC,
    GraphSizes,
    SizeError,
    known,
    known_shape,
    may_be_zero,
    scalar_type,
)
from patcomp.frontend_torch.importing.control_flow import CONTROL_FLOW
from patcomp.frontend_torch.importing.repeats import Repeat
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.importing.stored_views import check_widths, stored_view
from patcomp.frontend_torch.importing.strided import flatten_source
from patcomp.ir import aten
from patcomp.ir.aten_facts import facts_of
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_attribute
from patcomp.ir.custom import Lower, create_custom
from patcomp.ir.dialect import create_op
from patcomp.ir.extents import MAY_BE_EMPTY, mark_masks, mark_sizes
from patcomp.ir.infer import InferenceError
from patcomp.ir.locations import Origin, origin_location
from patcomp.ir.module import IRModule, create_graph
from patcomp.ir.types import TensorType, is_static, shape_of, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Block, DenseResourceAttr, OpResult, UnitAttr, set_name
from patcomp.pytorch import FakeTensor, OpOverload, schema_of_overload
from patcomp.rewrites.repetition import LayerWeight, RepeatedLayers
from patcomp.rewrites.state import mark_mutated


def import_program(
    module: IRModule, staged: Staged, lowerings: Lowerings, repeats: Sequence[Repeat] = ()
) -> list[RepeatedLayers]:
    """Append the graph of a staged program to a module.

    Of each repeat, only the layers to be converted are imported; the last one reads the second one. Weights become
    blobs of the module without a copy; the program is not changed. A state is an argument, marked as mutated, and a
    result of the same name. The nodes of registered lowerings become `patcomp.custom` ops.

    Returns:
        The repetitions that stand for the layers that were left out.

    Raises:
        UnsupportedError: some nodes cannot be imported; the message lists all of them.
    """
    importer = _Importer(module, staged, lowerings, repeats)
    importer.run()
    return [importer.repetition(repeat) for repeat in repeats]


def _type_of(value: Any) -> TensorType:
    return type_of(value) if isinstance(value, torch.Tensor) else scalar_type(value)


def _size_names(value: Any) -> list[str]:
    """Export's names of the dynamic dimensions of an argument; empty for static ones."""
    if not isinstance(value, torch.Tensor):
        return []
    return [str(size.node.expr) if isinstance(size, torch.SymInt) else "" for size in known_shape(value)]


def _is_mask(example: Any) -> bool:
    """Whether an example is an int64 mask: several rows of only zeros and ones."""
    if not isinstance(example, torch.Tensor) or not has_values(example):
        return False
    if example.dtype != torch.int64 or example.dim() < 2 or not example.numel():
        return False
    return bool(((example == 0) | (example == 1)).all())


_PLAIN = frozenset({int, float, bool, str, type(None)})


class _NotImportedError(Exception):
    """A value that could not be imported is used."""


@dataclass(eq=False)
class _Importer:
    module: IRModule
    staged: Staged
    lowerings: Lowerings
    repeats: Sequence[Repeat] = ()

    def __post_init__(self) -> None:
        self.program, self.signature = self.staged.program, self.staged.signature
        self.compressed = {n: weight for n, weight in self.staged.compressed.items() if not isinstance(weight, str)}
        self.origins = Origins(self.program.graph)
        self.expanded: Node | None = None
        """The node whose expansion is being imported."""
        self.values: dict[Node, Value | list[Value | None] | None] = {}
        """The values of the nodes imported so far; None for an unused result."""
        self.numbers: dict[Node, Any] = {}
        """The values of placeholders that are Python values."""
        self.schemas: dict[OpOverload, aten.Schema] = {}
        """The schemas of the operators met so far."""
        self.problems: list[Problem] = []
        self.sizes = GraphSizes()
        self.dynamic: dict[Any, torch.SymInt] = {}
        """The dynamic sizes of results, by their expressions."""
        self.block = Block()
        self.builder = Builder(self.block, blobs=self.module.blobs)
        self.left_out: set[Node] = set()
        self.stands_for: dict[Node, Node] = {}
        """For each node that the last layer of a repeat reads, the node whose value it reads instead."""
        for repeat in self.repeats:
            self.left_out.update(
                node for layer in repeat.left_out for node in (*repeat.layers[layer], *repeat.weights[layer])
            )
            self.stands_for.update(zip(repeat.layers[-2], repeat.layers[1], strict=True))
        self.attributes: dict[Node, Attribute] = {}
        """The constants of the weights of repeats."""

    def repetition(self, repeat: Repeat) -> RepeatedLayers:
        """What the ops of the layers that were left out differ in."""
        return RepeatedLayers(
            self.staged.name,
            [[self.origins[node] for node in layer] for layer in repeat.layers],
            [
                [LayerWeight(self.origins[node], self.attributes[node]) for node in weights]
                for weights in repeat.weights
            ],
            {node.name: place for place, node in enumerate(self.program.graph.find_nodes(op="placeholder"))},
        )

    def run(self) -> None:
        name, names = self.staged.name, self.staged.names
        nodes = list(self.program.graph.nodes)
        named = {node.name: node for node in nodes}
        placeholders = {name: node for name, node in named.items() if node.op == "placeholder"}
        self.numbers.update((placeholders[name], value) for name, value in self.signature.fixed_inputs.items())
        for input_name in self.signature.arguments:
            node = placeholders[input_name]
            with self._reporting(node):
                argument = self.block.insert_arg(_type_of(node.meta["val"]), len(self.block.args))
                set_name(argument, input_name)
                self._given(node, Value(argument))
        with self.builder:
            for node in placeholders.values():
                if node.name in self.signature.constants and node.users:
                    with self._reporting(node):
                        self._constant(node)
            for node in nodes:
                if node in self.left_out:
                    continue
                if node.op == "call_function":
                    self._call(node)
                elif node.op not in ("placeholder", "output") and nested_graph(node) is None:
                    self._problem(node, f"FX nodes of kind {node.op} are not supported")
            outputs = [self._result(named[result]) for result in self.signature.results]
            if self.problems:
                raise UnsupportedError(f"@{name} cannot be imported:", self.problems)
            self.builder.location = origin_location(self._origin(nodes[-1]))
            self.builder.insert(create_op("coreai.output", [value.ssa for value in outputs if value], ()))
        own, states = names.of_arguments(self.signature), {state.placeholder for state in self.signature.states}
        graph = create_graph(
            name,
            self.block,
            argument_names=[own[argument] for argument in self.signature.arguments],
            result_names=[*names.states, *names.outputs],
        )
        mark_mutated(graph, [index for index, name in enumerate(self.signature.arguments) if name in states])
        if any(may_be_zero(size, self.program.range_constraints) for size in self.dynamic.values()):
            graph.attributes[MAY_BE_EMPTY] = UnitAttr()
        mark_sizes(graph, [_size_names(placeholders[argument].meta["val"]) for argument in self.signature.arguments])
        examples = self.signature.examples(self.program)
        mark_masks(graph, [_is_mask(examples.get(argument)) for argument in self.signature.arguments])
        self.module.op.body.block.add_op(graph)

    def _result(self, node: Node) -> Value | None:
        """The program's result for a node; None after a problem."""
        with self._reporting(node):
            return self.sizes.lifted(self._argument(node, None)) if is_size(node) else self._value(node)
        assert self.problems
        return None

    def _value(self, node: Node) -> Value:
        node = self.stands_for.get(node, node)
        if node not in self.values and node.graph is self.program.graph and node.name in self.signature.constants:
            self._constant(node)
        value = self.values.get(node)
        if not isinstance(value, Value):
            raise _NotImportedError(node.name)
        return value

    def _constant(self, node: Node) -> None:
        path, value = self.signature.constants[node.name]
        if node in self.left_out:
            self.attributes[node] = constant_attribute(
                storage_array(value), element_of(value.dtype), self.module.blobs, path, value
            )
            return
        self.builder.location = origin_location(self._origin(node))
        if (weight := self.compressed.get(node.name)) is not None:
            parts = {name: self._literal(f"{path}.{name}", *part) for name, part in weight.parts.items()}
            made = weight.build(parts)
        else:
            made = self._stored(path, value)
        self.values[node] = made
        set_name(made.ssa, node.name)
        if self.repeats and isinstance(made.ssa, OpResult):
            self.attributes[node] = made.ssa.op.properties["value"]

    def _literal(self, name: str, values: np.ndarray, element: Attribute, owner: object = None) -> Value:
        attribute = constant_attribute(values, element, self.module.blobs, name, owner)
        op = self.builder.insert(create_op("coreai.constant", (), [attribute.type], {"value": attribute}))
        return Value(op.results[0])

    def _stored(self, name: str, value: torch.Tensor) -> Value:
        """A constant; a complex tensor is stored as two parts, because the runtime has no complex constants."""
        if value.is_complex():
            plain = value.detach().resolve_conj()
            parts = (self._stored(f"{name}.{part}", getattr(plain, part).contiguous()) for part in ("real", "imag"))
            return aten.build("aten.complex", type_of(plain), **dict(zip(("real", "imag"), parts, strict=True)))
        element = element_of(value.dtype)
        if has_values(value):
            return self._literal(name, storage_array(value), element, value)
        type_ = tensor(tuple(value.shape), element)
        attribute = DenseResourceAttr.from_params(self.module.blobs.name(name, type_, value), type_)
        op = self.builder.insert(create_op("coreai.constant", (), [attribute.type], {"value": attribute}))
        return Value(op.results[0])

    @contextmanager
    def _reporting(self, node: Node) -> Iterator[None]:
        """Record the error of a block as a problem with a node; go on after it, to find all problems."""
        try:
            yield
        except _NotImportedError:
            pass  # the value that the node depends on has been reported
        except (TypeError, KeyError, OverflowError, InferenceError) as error:
            self._problem(node, str(error))

    def _problem(self, node: Node, message: str) -> None:
        self.problems.append(self._origin(node).problem(operator_name(node), message))

    def _origin(self, node: Node) -> Origin:
        return self.origins[self.expanded or node]

    def _name(self, node: Node) -> str:
        name = self._origin(node).node
        return f"{name}_{node.name}" if self.expanded else name

    def _expand(self, node: Node, inside: GraphModule) -> None:
        """Import the graph of an expansion in place of a node."""
        given = [self._argument(source, None) for source in node.all_input_nodes]
        self.expanded = node
        try:
            made = self._graph(inside, given)
        finally:
            self.expanded = None
        pairs = zip(made if isinstance(made, list) else [made], recorded_results(node), strict=True)
        self.builder.location = origin_location(self._origin(node))
        results = [self._recorded(value, recorded) for value, recorded in pairs]
        self.values[node] = results if isinstance(made, list) else results[0]

    def _recorded(self, value: Any, recorded: Any) -> Any:
        """A result of an expansion, with the sizes recorded by the export. Inside the expansion a data-dependent size
        has a symbol of its own, even where the export knows its number."""
        if not isinstance(value, Value):
            return value
        type_ = _type_of(recorded)
        if is_static(type_) and None in value.shape and value.element_type == type_.element_type:
            value = aten.build("aten.view", type_, self=value, size=list(shape_of(type_)))
        self.sizes.record(value, recorded)
        return value

    def _nested(self, inside: GraphModule, given: Sequence[Any]) -> list[Any]:
        with self.sizes.block():
            results = self._graph(inside, given)
        return results if isinstance(results, list) else [results]

    def _graph(self, inside: GraphModule, given: Sequence[Any]) -> Any:
        """Import a graph at the insertion point, with a value or number for each placeholder; return its results."""
        outer, self.builder = self.builder, Builder.current()
        sources, results = iter(given), None
        try:
            for node in inside.graph.nodes:
                if node.op == "placeholder":
                    self._given(node, next(sources))
                elif node.op == "get_attr" and nested_graph(node) is None:
                    self._captured(node, getattr(inside, str(node.target)))
                elif node.op == "call_function":
                    self._call(node)
                elif node.op == "output":
                    results = self._argument(node.args[0], None)
        finally:
            self.builder = outer
        return results

    def _given(self, node: Node, value: Any) -> None:
        if not isinstance(value, Value):
            self.numbers[node] = value
            return
        self.values[node] = value
        self.sizes.record(value, node.meta["val"])
        if value.ssa.name_hint is None:
            set_name(value.ssa, self._name(node))

    def _captured(self, node: Node, value: torch.Tensor) -> None:
        """A tensor that a decomposition creates from Python numbers."""
        known = value.constant if isinstance(value, FakeTensor) else value
        if known is None:
            raise TypeError("a decomposition creates a tensor whose values are not known before the program runs")
        self.values[node] = self._stored(self._name(node), known)

    def _call(self, node: Node) -> None:
        if is_assertion(node) or (is_untyped(node) and not is_marker(node)):
            return  # `check_complete` made sure that a node without a type is dead
        with self._reporting(node):
            self._import(node)

    def _import(self, node: Node) -> None:
        if is_size(node):
            self._size(node)
        elif node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, Node)
            assert isinstance(index, int)
            results = self.values.get(source)
            if isinstance(results, list):
                self.values[node] = results[index]
        elif is_marker(node):
            self._marker(node)
        elif (lower := self.lowerings.of(node)) is not None:
            self._custom(node, lower)
        elif node in self.staged.expansions:
            self._expand(node, self.staged.expansions[node])
        elif node.target in CONTROL_FLOW:
            self._control_flow(node, CONTROL_FLOW[node.target])
        elif isinstance(node.target, OpOverload):
            self._operator(node, node.target)
        else:
            raise TypeError("the node calls no operator that can be converted")

    def _size(self, node: Node) -> None:
        """Record a new size from `.item()`; nodes that compute sizes are built where they are used."""
        if reads_number(node):
            (source,) = node.all_input_nodes
            value = self._value(source)
            if value.rank:  # a tensor of one element has an item too
                self.builder.location = origin_location(self._origin(node))
                value = aten.build("aten.view", tensor((), value.element_type), self=value, size=[])
            self.sizes.record(value, node.meta["val"])

    def _marker(self, node: Node) -> None:
        """The begin or end of an externalized module's call."""
        self.builder.location = origin_location(self._origin(node))
        tensors: list[tuple[Value, Any]] = []
        with self._reporting(node):
            self.builder.insert(marker_op(node, self._value, self._parameter))
            tensors = [(self._value(tensor), tensor.meta["val"]) for tensor in node.all_input_nodes]
        (self.sizes.enter if node.target is BEGIN else self.sizes.leave)(tensors)

    def _parameter(self, names: Sequence[str]) -> Value | None:
        """The value of a parameter or buffer, given all its names in the model; None if it is unused."""
        for name in names:
            path, _, own = name.rpartition(".")
            parts = f"{path}.parametrizations.{own}.".removeprefix(".")  # export's names of the parts of a subclass
            if any(other.startswith(parts) for other in self._placeholders):
                raise TypeError(
                    f"the externalized composite has the input {name!r}, but the program has only parts of it, because "
                    "a quantizer replaced it by a tensor subclass; externalize the module as a plain graph"
                )
        used = (node for name in names if (node := self._placeholders.get(name)) and node.users)
        return next(map(self._value, used), None)

    @cached_property
    def _placeholders(self) -> dict[str, Node]:
        """The placeholder of each parameter and buffer by its name in the model."""
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        nodes = self.program.graph.find_nodes(op="placeholder")
        return {spec.target: node for node in nodes if (spec := specs[node.name]).target is not None}

    def _control_flow(self, node: Node, function: Callable[..., list[Any]]) -> None:
        self.builder.location = origin_location(self._origin(node))
        zeros = [partial(self._zeros, recorded) for recorded in node.meta["val"]]
        results = function(zeros, *self._argument(node.args, None), **node.kwargs)
        for index, (value, recorded) in enumerate(zip(results, node.meta["val"], strict=True)):
            if value.ssa.type != (type_ := _type_of(recorded)):
                raise TypeError(f"result {index} is {value.type}, but export recorded {type_}")
            if value.ssa.name_hint is None:
                set_name(value.ssa, f"{self._name(node)}_{index}")
            self.sizes.record(value, recorded)
        self.values[node] = results

    def _zeros(self, like: torch.Tensor) -> Value:
        size, element = self._argument(like.shape, None), element_of(like.dtype)
        return aten.build(  # type: ignore[no-any-return]
            "aten.full", type_of(like), size=size, fill_value=0, dtype=element
        )

    def _operator(self, node: Node, target: OpOverload) -> None:
        self.builder.location = origin_location(self._origin(node))
        if (empty := self._without_elements(node)) is not None:
            self._results(node, empty)
            return
        if target is torch.ops.aten.view.dtype:
            if (viewed := stored_view(node, self._stored_tensor)) is not None:
                self._results(node, [self._stored(self._name(node), viewed)])
                return
            check_widths(node)
        schema = self._schema(target)
        arguments = self._arguments(node)
        if schema.name == "aten.as_strided":
            flatten_source(node, arguments)
        facts = facts_of(schema.name)
        if facts.elements == "in_order" and facts.sizes == "given":
            self._without_rest(node, arguments)
        self._results(node, aten.build(schema.name, self._types(node), **arguments))

    def _stored_tensor(self, node: Node) -> torch.Tensor | None:
        """The weight or buffer of a placeholder; None for an argument, or if ops make it of smaller constants."""
        known = node.graph is self.program.graph and node.name not in self.compressed
        return self.signature.constants[node.name][1] if known and node.name in self.signature.constants else None

    def _schema(self, target: OpOverload) -> aten.Schema:
        if target not in self.schemas:
            self.schemas[target] = aten.define(str(schema_of_overload(target)))
        return self.schemas[target]

    def _without_elements(self, node: Node) -> list[Value] | None:
        """Zeros for empty results of a dynamic shape, because the runtime may give them another shape, or abort.

        The normalize stage replaces empty results of a static shape.
        """
        results = recorded_results(node)
        if all(type(size) is int for value in results if isinstance(value, torch.Tensor) for size in value.shape):
            return None
        shapes = [known_shape(value) if isinstance(value, torch.Tensor) else [] for value in results]
        if all(isinstance(size, int) for shape in shapes for size in shape):
            return None
        # comparing a dynamic size with 0 would be a guard
        if not all(any(isinstance(size, int) and size == 0 for size in shape) for shape in shapes):
            return None
        try:
            return [self._zeros(value) for value in results]
        except SizeError:
            return None  # the op itself finds its sizes in the data

    def _without_rest(self, node: Node, arguments: dict[str, Any]) -> None:
        """Replace a -1 among dynamic sizes by the size of the result."""
        for name in {"size", "shape"} & arguments.keys():
            given = zip(arguments[name], node.meta["val"].shape, strict=True)
            arguments[name] = [self._argument(own, None) if size == -1 else size for size, own in given]

    def _custom(self, node: Node, lower: Lower) -> None:
        """A node that a registered lowering takes."""
        self.builder.location = origin_location(self._origin(node))
        operands: dict[str, Value] = {}
        for source in node.all_input_nodes:
            given = self._argument(source, None)
            if isinstance(given, Value | bool | int | float):
                operands[source.name] = self.sizes.lifted(given)
        arguments = ", ".join([*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())])
        op = self.builder.insert(create_custom(operator_name(node), operands, arguments, self._types(node)))
        self.module.custom[op] = lower
        self._results(node, [Value(result) for result in op.results])

    def _types(self, node: Node) -> list[Attribute]:
        results = recorded_results(node)
        if unknown := [value for value in results if not isinstance(value, torch.Tensor)]:
            raise TypeError(f"a result {unknown[0]!r} cannot be converted; only tensors can")
        return [type_of(value) for value in results]

    def _results(self, node: Node, made: Sequence[Value]) -> None:
        """Record the values of a node."""
        several = isinstance(node.meta["val"], list | tuple)
        for index, (value, recorded) in enumerate(zip(made, recorded_results(node), strict=True)):
            set_name(value.ssa, f"{self._name(node)}_{index}" if several else self._name(node))
            self.sizes.record(value, recorded)
            for size in recorded.shape:
                if type(size) is not int and isinstance(size := known(size), torch.SymInt):
                    self.dynamic[size.node.expr] = size
        self.values[node] = list(made) if several else made[0]

    def _arguments(self, node: Node) -> dict[str, Any]:
        lengths = list_lengths(node.target)
        given: dict[str, Any] = {}
        for name, value in given_arguments(node).items():
            if name not in aten.MEMORY_ARGUMENTS:
                given[name] = self._argument(value, lengths[name])
            elif isinstance(value, torch.layout) and value is not torch.strided:
                raise TypeError(f"tensors of layout {value} cannot be converted")
        return given

    def _argument(self, value: Any, length: int | None) -> Any:
        if type(value) in _PLAIN and not length:
            return value
        if isinstance(value, SYMBOLIC):
            return self.sizes.of(value)
        if isinstance(value, Node):
            if value in self.numbers:
                return self.numbers[value]
            if is_size(value):
                return self.sizes.of(value.meta["val"])
            if (inside := nested_graph(value)) is not None:
                return lambda *given: self._nested(inside, given)
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

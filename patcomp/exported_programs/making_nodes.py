"""Ops of the IR as nodes of torch.fx."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node

from patcomp.evaluate.eager import overload_of
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.evaluate.machine import decode_constant
from patcomp.frontend_torch.fx.nodes import given_arguments, operator_name
from patcomp.ir.aten import MEMORY_ARGUMENTS, AtenOp
from patcomp.ir.constants import is_constant
from patcomp.ir.locations import origins
from patcomp.ir.module import IRModule
from patcomp.ir.types import ELEMENT_TYPES, element_name, shape_of
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Operation, SSAValue, TensorType
from patcomp.pytorch import FakeTensor, FakeTensorMode, OpOverload, schema_of_overload

OPS_OF_SIZES: Mapping[str, Callable[..., Any]] = {
    "aten.add.Tensor": operator.add, "aten.mul.Tensor": operator.mul, "aten.sub.Tensor": operator.sub,
    "aten.remainder.Tensor": operator.mod, "aten.div.Tensor_mode": operator.floordiv, "aten.minimum": torch.sym_min,
    "aten.maximum": torch.sym_max,
}  # fmt: skip
"""The ops with which the import computes sizes, as functions of sizes; a division of sizes is rounded down."""
OF_VALUES = {"aten.view": "aten.reshape", "aten._unsafe_view": "aten.reshape", "aten.detach_copy": "aten.detach"}
"""Ops for which another one stands, because values have no memory: copies before a view are gone, for example."""
NOT_COPIED = ("val", "tensor_meta", "unbacked_bindings")


class NoWayBackError(Exception):
    """An op is no node of PyTorch; the message says why."""


@dataclass
class NodeMaker:
    """Makes the nodes of a graph, one for each op, with the values that PyTorch computes for their fake inputs."""

    program: ExportedProgram
    """The program before: its nodes have the metadata."""
    module: IRModule
    """Has the large constants."""
    graph: Graph = field(default_factory=Graph)
    held: dict[SSAValue, Any] = field(default_factory=dict)
    """The node, or the number, of each value; None for one that has no way back."""
    lifted: dict[str, torch.Tensor] = field(default_factory=dict)
    """The tensors of constants, which are arguments of an exported program, by their new names in the program."""
    lifted_nodes: dict[str, Node] = field(default_factory=dict)
    """Their arguments."""

    def __post_init__(self) -> None:
        self.before = {node.name: node for node in self.program.graph.nodes}
        values = [node.meta.get("val") for node in self.before.values() if node.op == "placeholder"]
        modes = (value.fake_mode for value in values if isinstance(value, FakeTensor))
        self.mode = next(modes, None) or FakeTensorMode()

    def op(self, op: Operation) -> None:
        """Make the node of an op.

        Raises:
            NoWayBackError: there is none.
        """
        if not isinstance(op, AtenOp):
            raise NoWayBackError(f"{op.name} is no op of PyTorch's")
        if any(self.held.get(value, 0) is None for value in op.operands):
            self.held.update((result, None) for result in op.results)  # what it reads has been reported
            return
        if op.name in OPS_OF_SIZES and self._is_of_sizes(op):
            sizes = [self.size(value) for value in op.operands]
            self._node(op, OPS_OF_SIZES[op.name], tuple(sizes), {})
            return
        try:
            target = overload_of(OF_VALUES.get(op.name, op.name))
        except AttributeError as error:
            raise NoWayBackError(f"{error}; import the library that registers it") from error
        failures: list[str] = []
        for numbers in (True, False):  # a constant is a number, if PyTorch takes one and computes the same type
            try:
                arguments, keywords = self._arguments(op, target, numbers)
                self._node(op, target, arguments, keywords)
                return
            except NoWayBackError:
                raise
            except Exception as error:  # PyTorch's operators raise errors of any class for wrong arguments
                failures.append(str(error).partition("\n")[0])
        raise NoWayBackError(f"PyTorch does not compute it: {failures[-1]}")

    def _node(
        self, op: Operation, target: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        """Add a node, whose values PyTorch computes; a size that is a number needs none."""
        with self.mode, torch.no_grad():
            value = target(*_values(arguments), **_values(keywords))
        several = isinstance(value, tuple | list)
        values = list(value) if several else [value]
        for result, each in zip(op.results, values, strict=True):
            _check(result, each)
        if isinstance(value, int | float):
            self.held[op.results[0]] = value
            return
        names = [result.name_hint or "" for result in op.results]
        base = names[0].removesuffix("_0") if several else names[0]
        node = self.graph.create_node("call_function", target, arguments, keywords, name=base or None)
        node.meta = {**self._metadata(op), "val": value}
        self.held[op.results[0]] = node
        for index, result in enumerate(op.results if several else ()):
            if result.first_use is None:
                continue
            part = self.graph.create_node("call_function", operator.getitem, (node, index), name=f"{base}_{index}")
            part.meta = {**self._metadata(op), "val": values[index]}
            self.held[result] = part

    def _metadata(self, op: Operation) -> dict[str, Any]:
        """What export recorded of the node that an op comes from: module, line of the source, function."""
        source = self._source(op)
        return {k: v for k, v in source.meta.items() if k not in NOT_COPIED} if source is not None else {}

    def _source(self, op: Operation) -> Node | None:
        return next((self.before[each.node] for each in origins(op.location) if each.node in self.before), None)

    # ---- arguments --------------------------------------------------------------------------------

    def _arguments(self, op: AtenOp, target: OpOverload, numbers: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = {
            name: self._argument(value, op.SCHEMA[name].type, numbers) for name, value in op.arguments_by_name().items()
        }
        if op.name == "aten.as_strided":  # it reads memory, which copies that are gone had made dense
            given["self"] = self._dense(op, given["self"])
        if target is torch.ops.aten.reshape.default:
            given["shape"] = given.pop("size")
        given |= self._of_memory(op, target)
        arguments: list[Any] = []
        keywords: dict[str, Any] = {}
        named = False
        for argument in schema_of_overload(target).arguments:
            if argument.name not in given or (argument.kwarg_only and _is_default(argument, given[argument.name])):
                named = True  # it is left out, so that those after it need their names
            elif named or argument.kwarg_only:
                keywords |= {argument.name: given[argument.name]} if given[argument.name] is not None else {}
            else:
                arguments.append(given[argument.name])
        return tuple(arguments), keywords

    def _argument(self, value: Any, type_: str, numbers: bool) -> Any:
        if isinstance(value, list):
            return [self._argument(item, type_.partition("[")[0], numbers) for item in value]
        if isinstance(value, Attribute):
            if value not in ELEMENT_TYPES.values():
                raise NoWayBackError(f"the argument {value} has no form in PyTorch")
            return TORCH_DTYPES[element_name(value)]
        if not isinstance(value, Value):
            return value
        if not type_.startswith("Tensor"):
            return self.size(value.ssa)
        if value.ssa in self.held:
            return self.tensor(value.ssa)
        assert is_constant(value.ssa)
        if numbers and value.rank == 0 and (number := value.constant) is not None:
            return number.item()
        return self.lift(value.ssa)

    def tensor(self, value: SSAValue) -> Any:
        """A value where PyTorch takes a tensor: a size becomes one."""
        node = self.held[value]
        if holds_tensor(node):
            return node
        assert isinstance(value.type, TensorType)
        keywords = {"dtype": TORCH_DTYPES[element_name(value.type.element_type)]}
        return self.call(torch.ops.aten.scalar_tensor.default, (node,), keywords)

    def size(self, value: SSAValue) -> Any:
        """A value where PyTorch takes a number."""
        if is_constant(value):
            number = Value(value).constant
            assert number is not None
            return number.item()
        node = self.held[value]
        if holds_tensor(node):
            raise NoWayBackError("it takes a size that is computed from data")
        return node

    def _is_of_sizes(self, op: AtenOp) -> bool:
        """Whether an op computes a size from sizes."""
        given = op.arguments_by_name()
        if given.get("rounding_mode", "floor") != "floor" or given.get("alpha", 1) != 1:
            return False
        held = [self.held[value] for value in op.operands if not is_constant(value)]
        return bool(held) and not any(map(holds_tensor, held))

    def _of_memory(self, op: AtenOp, target: OpOverload) -> dict[str, Any]:
        """The arguments about memory of the node that an op was; of a new op that makes a tensor, the device alone."""
        source = self._source(op)
        if source is None or not isinstance(source.target, OpOverload):
            return {}
        if operator_name(source) == op.name:
            return {name: value for name, value in given_arguments(source).items() if name in MEMORY_ARGUMENTS}
        value = source.meta["val"]
        takes_device = any(argument.name == "device" for argument in schema_of_overload(target).arguments)
        return {"device": value.device} if takes_device and isinstance(value, torch.Tensor) else {}

    def lift(self, value: SSAValue) -> Node:
        """The argument of the program that a constant is."""
        if value not in self.held:
            tensor = decode_constant(value.owner.properties["value"], self.module.blobs).clone()  # type: ignore[union-attr]
            source = self._source(value.owner)  # type: ignore[arg-type]
            fake = source.meta.get("val") if source is not None else None
            tensor = tensor.to(fake.device) if isinstance(fake, torch.Tensor) else tensor
            target = f"lifted_{len(self.lifted)}"
            while target in self.program.constants or target in self.program.state_dict:
                target += "_"
            self.lifted[target] = tensor
            first = next((n for n in self.graph.nodes if n.op != "placeholder" or n.name in self._user_inputs), None)
            with self.graph.inserting_before(first) if first else nullcontext():
                node = self.graph.placeholder(f"c_{target}")
            node.meta = {"val": self.mode.from_tensor(tensor)}
            self.held[value] = self.lifted_nodes[target] = node
        return self.held[value]  # type: ignore[no-any-return]

    @property
    def _user_inputs(self) -> set[str]:
        return {*self.program.graph_signature.user_inputs} | {
            spec.arg.name
            for spec in self.program.graph_signature.input_specs
            if spec.kind in (InputKind.USER_INPUT, InputKind.CUSTOM_OBJ)
        }

    def _dense(self, op: Operation, node: Node) -> Node:
        return self.call(torch.ops.aten.clone.default, (node,), {"memory_format": torch.contiguous_format})

    def call(
        self, target: OpOverload, arguments: tuple[Any, ...], keywords: dict[str, Any], source: Node | None = None
    ) -> Node:
        """A node that no op stands for, with the metadata of another one, by default of the first that it reads."""
        with self.mode, torch.no_grad():
            value = target(*_values(arguments), **_values(keywords))
        node = self.graph.call_function(target, arguments, keywords)
        source = source or next((each for each in arguments if isinstance(each, Node)), None)
        node.meta = {**({k: v for k, v in source.meta.items() if k not in NOT_COPIED} if source else {}), "val": value}
        return node


def _values(arguments: Any) -> Any:
    """Arguments with what PyTorch recorded in place of nodes."""
    return torch.fx.node.map_arg(arguments, lambda node: node.meta["val"])


def _is_default(argument: Any, value: Any) -> bool:
    """Whether an argument has the value that its schema gives it."""
    return argument.has_default_value() and argument.default_value == value  # type: ignore[no-any-return]


def holds_tensor(held: Any) -> bool:
    """Whether a node has a tensor, and is no size or number."""
    return isinstance(held, Node) and isinstance(held.meta.get("val"), torch.Tensor)


def _check(result: SSAValue, value: Any) -> None:
    """Check that PyTorch computes a value of the type that the IR states.

    Raises:
        TypeError: it computes another one.
    """
    if isinstance(value, torch.Tensor):
        assert isinstance(result.type, TensorType)
        dtype, shape = TORCH_DTYPES[element_name(result.type.element_type)], shape_of(result.type)
        fits = len(shape) == value.dim() and all(
            size is None or not isinstance(own, int) or size == own
            for size, own in zip(shape, value.shape, strict=True)
        )
        if value.dtype != dtype or not fits:
            raise TypeError(f"PyTorch computes {value.dtype} of shape {tuple(value.shape)} for {result.type}")

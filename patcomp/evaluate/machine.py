"""The interpreter: run blocks op by op, free values after their last use, and check every result against its type."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.element_types import TORCH_DTYPES, accumulated, to_tensor
from patcomp.evaluate.given import check_input_names
from patcomp.evaluate.registry import EvaluatedOp, Implementation, implementations
from patcomp.ir import packing
from patcomp.ir.blobs import NO_VALUES, BlobStore
from patcomp.ir.locations import describe
from patcomp.ir.module import IRModule, graph_name, names_of
from patcomp.ir.types import BIT_WIDTHS, ML_DTYPES, HandleType, element_name, shape_of, storage_bytes
from patcomp.ir.xdsl import (
    Attribute,
    Block,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    Operation,
    SSAValue,
    TensorType,
)

TOKEN_VALUE = object()
"""The value of every token: ops run in program order anyway."""


@dataclass
class Handle:
    """The value of a handle: a state buffer by its name, with its current content."""

    name: str
    tensor: Tensor


@dataclass
class SparseTensor:
    """A bitmask-sparse tensor: the stored values in row-major order, and where they are."""

    values: Tensor
    bitmask: Tensor


@dataclass(frozen=True)
class Step:
    """An op of a block, its implementation, and the values that it reads last."""

    op: Operation
    run: Implementation
    last_uses: tuple[SSAValue, ...]


_CONSTANTS: WeakKeyDictionary[IRModule, dict[int, tuple[Attribute, Tensor]]] = WeakKeyDictionary()
"""The decoded constants of each module, by the identity of their attribute; the attribute is stored to stay alive."""


_LARGE = 2**20
"""The elements of a weight that is worth its own memory."""


@dataclass(eq=False)
class Machine:
    """Evaluates the graphs of one module."""

    module: IRModule
    others: Callable[[Operation], Implementation | None] = lambda op: None
    """The function of an op that is not of the `coreai` dialect; None if it cannot be run."""
    watch: Callable[[Operation, Sequence[Any]], object] | None = None
    """Called with each op that was run, and its results."""
    _plans: dict[Block, list[Step]] = field(default_factory=dict)
    _room: Tensor = field(default_factory=lambda: torch.empty(0))

    def accumulated(self, weight: Tensor) -> Tensor:
        """What `element_types.accumulated` gives, for one operand of an op, until the next call.

        Large ones share their memory: the system would clear new memory for each, which takes as long as a product by a
        few rows.
        """
        if weight.dtype not in (torch.float16, torch.bfloat16) or not weight.is_contiguous() or weight.numel() < _LARGE:
            return accumulated(weight)
        if self._room.numel() < weight.numel():
            self._room = torch.empty(weight.numel())
        return self._room[: weight.numel()].view(weight.shape).copy_(weight)

    def run_graph(self, graph: Operation, operands: Sequence[Any]) -> list[Any]:
        """The results of a graph for operands in order (tensors, handles, tokens)."""
        region = graph.regions[0]
        if not region.blocks:
            raise EvaluationError(f"graph @{graph_name(graph)} is a declaration without body")
        if len(operands) != len(region.block.args):
            raise EvaluationError(
                f"graph @{graph_name(graph)} takes {len(region.block.args)} operands, got {len(operands)}"
            )
        return self.run_block(region.block, operands, {})

    def run_block(self, block: Block, arguments: Sequence[Any], values: dict[SSAValue, Any]) -> list[Any]:
        """Runs the ops of a block and returns the operands of its terminator.

        Args:
            block: the block.
            arguments: values of the block's arguments.
            values: values from outside that the block may use; those of the block are added while they live.
        """
        for argument, value in zip(block.args, arguments, strict=True):
            if problem := self.mismatch(value, argument.type):
                raise EvaluationError(f"argument {argument.index} {problem}")
            values[argument] = value
        terminator = block.last_op
        for step in self.steps(block):
            op = step.op
            operands = [values[operand] for operand in op.operands]
            if op is terminator:
                return operands
            results = self.run_op(EvaluatedOp(op, self, values), step.run, operands)
            values.update(zip(op.results, results, strict=True))
            if self.watch is not None:
                self.watch(op, results)
            for dead in step.last_uses:
                del values[dead]
        raise EvaluationError("a block has no terminator")

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        """Run one op and check its results against their types."""
        try:
            results = implementation(op, *operands)
        except EvaluationError:
            raise
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise EvaluationError(f"{op.operation.name}: {error} ({describe(op.operation)})") from error
        results = results if isinstance(results, list) else [results]
        for result, value in zip(op.operation.results, results, strict=True):
            if problem := self.mismatch(value, result.type):
                raise EvaluationError(f"result of {op.operation.name} {problem} ({describe(op.operation)})")
        return results

    def mismatch(self, value: Any, type_: Attribute) -> str:
        """How a value differs from its type; empty if it has the type."""
        return _mismatch(value, type_)

    def steps(self, block: Block) -> Sequence[Step]:
        """The ops of a block in order."""
        plan = self._plans.get(block)
        if plan is None:
            plan = self._plans[block] = self._make_plan(block)
        return plan

    def _make_plan(self, block: Block) -> list[Step]:
        own: dict[SSAValue, Operation] = {}
        for op in block.ops:
            for result in op.results:
                own[result] = op
            for inner in op.walk():
                for operand in inner.operands:
                    if operand in own:
                        own[operand] = op
        released: dict[Operation, list[SSAValue]] = {}
        for value, op in own.items():
            released.setdefault(op, []).append(value)
        plan = []
        for op in block.ops:
            run = implementations().get(op.name) or self.others(op)
            if run is None and op is not block.last_op:
                raise EvaluationError(f"the evaluator does not know the op {op.name} ({describe(op)})")
            plan.append(Step(op, run or _terminator, tuple(released.get(op, ()))))
        return plan

    def constant(self, attribute: Attribute) -> Tensor:
        """The tensor of a constant's attribute, decoded once per module; do not write to it."""
        cache = _CONSTANTS.setdefault(self.module, {})
        entry = cache.get(id(attribute))
        if entry is None:
            entry = cache[id(attribute)] = (attribute, decode_constant(attribute, self.module.blobs))
        return entry[1]


def _terminator(op: EvaluatedOp, *operands: Any) -> Any:
    raise op.error("a terminator is not run")


def decode_constant(attribute: Attribute, blobs: BlobStore) -> Tensor:
    """The tensor of a dense attribute or of the blob that a resource attribute names.

    Raises:
        EvaluationError: the blob is missing or has another size than its type, or the attribute is of another kind.
    """
    if isinstance(attribute, DenseIntOrFPElementsAttr):
        data: Any = attribute.data.data
        packed = False
    elif isinstance(attribute, DenseResourceAttr):
        key = attribute.resource_handle.data
        if key in blobs.without_values:
            raise EvaluationError(NO_VALUES.format(key))
        if key not in blobs:
            raise EvaluationError(f"there is no weight {key!r} in the module's blob store")
        data = blobs[key].data
        packed = True
    else:
        raise EvaluationError(f"a constant must be a dense or resource attribute, got {attribute}")
    type_ = attribute.type
    assert isinstance(type_, TensorType)
    name = element_name(type_.element_type)
    shape: tuple[int, ...] = shape_of(type_)  # type: ignore[assignment]
    count = int(np.prod(shape, dtype=np.int64))
    bits = BIT_WIDTHS[name]
    if packed and len(data) != storage_bytes(shape, type_.element_type):
        raise EvaluationError(f"weight {key!r} has {len(data)} bytes, not those of {type_}")
    if count == 0:
        return torch.empty(shape, dtype=TORCH_DTYPES[name])
    if bits < 8:
        stored = np.frombuffer(data, dtype=np.uint8)
        if packed and name != "i1":
            stored = packing.unpack(stored, name, count)
        flat = _from_small(torch.from_numpy(stored.copy()), name)
    else:
        with warnings.catch_warnings():
            # torch warns that the buffer is read-only; no op of the evaluator writes to its operands
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            flat = torch.frombuffer(data, dtype=TORCH_DTYPES[name])
    if flat.numel() not in (1, count):
        raise EvaluationError(f"a constant of {type_} has {flat.numel()} elements")
    return flat.expand(count).reshape(shape) if flat.numel() != count else flat.reshape(shape)


def _from_small(raw: Tensor, name: str) -> Tensor:
    if name == "i1":
        return raw != 0
    if name == "f4E2M1FN":
        return torch.from_numpy((raw.numpy() & 15).view(ML_DTYPES[name]).astype(np.float32))
    return torch.from_numpy(packing.sign_extended(raw.numpy(), name)).view(TORCH_DTYPES[name])


def check_value(value: Any, type_: Attribute, what: str) -> None:
    """Raise an `EvaluationError` about `what` if a value has another dtype, rank or static dimension than its type."""
    if problem := _mismatch(value, type_):
        raise EvaluationError(f"{what} {problem}")


def _mismatch(value: Any, type_: Attribute) -> str:
    """How a value differs from its type; empty if it has the type."""
    if isinstance(type_, HandleType):
        return "" if isinstance(value, Handle) else "must be a handle"
    if not isinstance(type_, TensorType) or isinstance(value, SparseTensor):
        return ""
    if not isinstance(value, Tensor):
        return f"must be a tensor of type {type_}, got {type(value).__name__}"
    shape = shape_of(type_)
    agrees = len(shape) == value.dim() and all(
        dim is None or dim == size for dim, size in zip(shape, value.shape, strict=True)
    )
    if agrees and value.dtype == TORCH_DTYPES.get(element_name(type_.element_type)):
        return ""
    return f"must be of type {type_}, got {value.dtype} of shape {tuple(value.shape)}"


def evaluate(
    module: IRModule,
    inputs: Mapping[str, Tensor | np.ndarray],
    *,
    entry: str = "main",
    state: dict[str, Any] | None = None,
    machine: Machine | None = None,
) -> dict[str, Tensor]:
    """Runs a graph of a module on torch tensors.

    Args:
        module: the program, in the `coreai` dialect (`patcomp.region` ops are run too).
        inputs: one tensor for each argument by its run-time name (`coreai.name`), by position (`"0"`) where it
            has none; dtypes must fit exactly.
        entry: symbol of the graph.
        state: the content of each handle argument by name; written in place, as the runtime does.
        machine: the interpreter of the module; a plain one by default.

    Returns:
        The results by run-time name, by position where they have none; tokens are left out. They share no
        memory with inputs, state or weights.

    Raises:
        EvaluationError: an input is missing, unknown or of another type; an op is unknown or undefined for its
            operands (the runtime aborts on division by zero, for instance).
        KeyError: there is no such graph.
    """
    graph = module.graph(entry)
    state = {} if state is None else state
    operands = operands_of(graph, inputs, state)
    with torch.no_grad():
        results = (machine or Machine(module)).run_graph(graph, operands)
        outputs = {
            name or str(index): _own(value)
            for index, (name, value) in enumerate(zip(names_of(graph, "res_attrs"), results, strict=True))
            if isinstance(value, Tensor)
        }
        # all are copied before any is stored: a new content may be a view of another's old one
        contents = {operand.name: _own(operand.tensor) for operand in operands if isinstance(operand, Handle)}
        for name, content in contents.items():
            _store(state, name, content)
    return outputs


def operands_of(
    graph: Operation, inputs: Mapping[str, Tensor | np.ndarray], state: Mapping[str, Tensor | np.ndarray]
) -> list[Any]:
    """The operands of a graph in order, from inputs and states by name, as `evaluate` takes them.

    Raises:
        EvaluationError: an input or state is missing, unknown or of another type.
    """
    names = [name or str(index) for index, name in enumerate(names_of(graph, "arg_attrs"))]
    types = [argument.type for argument in graph.regions[0].block.args] if graph.regions[0].blocks else []
    handles = {name for name, type_ in zip(names, types, strict=True) if isinstance(type_, HandleType)}
    wanted = [name for name, type_ in zip(names, types, strict=True) if isinstance(type_, TensorType)]
    for what, given, expected in (("input", inputs, set(wanted)), ("state", state, handles)):
        check_input_names(graph_name(graph), what, given, expected)
    operands: list[Any] = []
    for name, type_ in zip(names, types, strict=True):
        if isinstance(type_, HandleType):
            content = to_tensor(state[name])
            check_value(content, type_.tensor_type, f"state {name!r}")
            operands.append(Handle(name, content))
        elif isinstance(type_, TensorType):
            content = to_tensor(inputs[name])
            check_value(content, type_, f"input {name!r}")
            operands.append(content)
        else:
            operands.append(TOKEN_VALUE)
    return operands


def _own(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _store(state: dict[str, Any], name: str, content: Tensor) -> None:
    old = state[name]
    if tuple(old.shape) != tuple(content.shape):
        state[name] = content  # a handle of dynamic shape that grew
    elif isinstance(old, Tensor):
        old.copy_(content)
    elif (memory := to_tensor(old)).dtype == content.dtype and memory.element_size() == old.dtype.itemsize:
        np.copyto(old, content.reshape(-1).view(torch.uint8).numpy().view(old.dtype).reshape(old.shape))
    else:
        raise EvaluationError(f"state {name!r} of numpy dtype {old.dtype} cannot be written")


def evaluate_graph(graph: Operation, operands: Sequence[Any], module: IRModule) -> list[Any]:
    """Runs a graph on operands in order; handles are `Handle` values, tokens are returned as `TOKEN_VALUE`.

    Raises:
        EvaluationError: an operand does not fit its type, or an op cannot be run.
    """
    with torch.no_grad():
        return Machine(module).run_graph(graph, operands)

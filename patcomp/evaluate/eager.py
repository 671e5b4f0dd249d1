"""Run a graph of ATen ops by PyTorch itself, before any rule has changed it, and make inputs for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.element_types import ELEMENT_OF_DTYPE, TORCH_DTYPES
from patcomp.evaluate.machine import Machine, decode_constant
from patcomp.evaluate.registry import EvaluatedOp, Implementation
from patcomp.ir.aten import AtenOp, torch_name
from patcomp.ir.blobs import BlobStore
from patcomp.ir.module import IRModule
from patcomp.ir.region import RegionOp
from patcomp.ir.types import element_name, static_shape, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Block, Operation, Rewriter, SSAValue, TensorType
from patcomp.pytorch import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    OpOverload,
    schema_of_overload,
    tree_map_only,
)

_REFUSALS = (RuntimeError, IndexError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError)
"""What PyTorch raises if it refuses the arguments of an op."""

_REGISTERED_BY = {
    "quantized_decomposed": ("torch.ao.quantization.fx._decomposed",),
    "torch_nn": ("torch.nn.modules.linear_cross_entropy",),
    "torch_patcomp": ("patcomp.evaluate.stored_weights", "patcomp.evaluate.recurrences"),
}
"""The modules that register the ops of some namespaces. They are imported when they are first used."""

DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException, NotImplementedError)
"""What a shape function raises if the shapes of the results depend on data."""


def overload_of(op: str) -> OpOverload:
    """PyTorch's operator of a name in the `aten` dialect.

    Raises:
        AttributeError: there is none.
    """
    namespace = op.partition(".")[0]
    for module in _REGISTERED_BY.get(namespace, ()):
        import_module(module)
    found = registered_overload(op)
    if found is None:
        raise AttributeError(f"PyTorch has no operator {op}")
    return found


def registered_overload(op: str) -> OpOverload | None:
    """PyTorch's operator of a name in the `aten` dialect; None if it is not registered yet."""
    namespace, name, *overload = torch_name(op).split(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return getattr(packet, overload[0] if overload else "default", None)


def is_pointwise(op: str) -> bool:
    """Whether PyTorch tags an op as element-wise; such an op broadcasts."""
    return torch.Tag.pointwise in overload_of(op).tags


def run_op(op: str, arguments: Mapping[str, Any]) -> list[Tensor]:
    """The results of an op of the `aten` dialect, computed by eager PyTorch.

    Raises:
        EvaluationError: PyTorch refuses the arguments, or lacks the op.
    """
    try:
        made = overload_of(op)(**arguments)
    except _REFUSALS as error:
        raise EvaluationError(f"{op}: {error}") from error
    return results_of(made)


@contextmanager
def without_data() -> Iterator[Callable[[Any], Any]]:
    """A context for running ops as shape functions only; it yields a function that removes the data from arguments.

    Some kernels do not check what they are given, and read beyond it; the shape functions check more.
    """
    log = logging.getLogger(FakeTensorMode.__module__)  # it would show errors that the caller catches
    disabled, log.disabled = log.disabled, True
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            yield lambda arguments: tree_map_only(Tensor, mode.from_tensor, arguments)
    finally:
        log.disabled = disabled


def results_without_data(op: str, arguments: Mapping[str, Any]) -> list[Tensor] | None:
    """The results of an op as tensors without data; None if their shapes depend on the data.

    Raises:
        EvaluationError: PyTorch refuses the arguments, so that the call cannot be exported.
    """
    try:
        with without_data() as stripped:
            return results_of(overload_of(op)(**stripped(dict(arguments))))
    except DATA_DEPENDENT:
        return None
    except _REFUSALS as error:
        raise EvaluationError(f"{op}: {error}") from error


def call_of(op: str, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as PyTorch passes them: positional ones up to the last given one, the others by name."""
    schema = schema_of_overload(overload_of(op)).arguments
    positional = [argument for argument in schema if not argument.kwarg_only]
    last = max((index for index, item in enumerate(positional, 1) if item.name in arguments), default=0)
    args = [arguments.get(item.name, item.default_value) for item in positional[:last]]
    return args, {item.name: arguments[item.name] for item in schema if item.kwarg_only and item.name in arguments}


def results_of(made: Any) -> list[Tensor]:
    """The results of an operator as a list of tensors."""
    # values of the IR have no strides: a view there is any change of shape; a number is a tensor of no dimensions
    return [torch.as_tensor(value).contiguous() for value in (made if isinstance(made, tuple | list) else [made])]


def static_type_of(value: Tensor) -> TensorType:
    """The type of a tensor in the IR.

    Raises:
        EvaluationError: the IR has no such element type.
    """
    if value.dtype not in ELEMENT_OF_DTYPE:
        raise EvaluationError(f"the IR has no {value.dtype}")
    return tensor(tuple(value.shape), ELEMENT_OF_DTYPE[value.dtype])


def run_eagerly(block: Block, inputs: Sequence[Tensor], blobs: BlobStore) -> list[Tensor]:
    """The operands of a block's terminator, its ATen ops computed by eager PyTorch, its regions by the evaluator.

    The results of the ops take the types that PyTorch gives them, because the types in a graph that was made for a test
    are guesses.

    Raises:
        EvaluationError: PyTorch refuses an op, lacks it, or one is of another dialect.
    """
    values: dict[SSAValue, Tensor] = dict(zip(block.args, inputs, strict=True))
    terminator = block.last_op
    assert terminator is not None
    for op in block.ops:
        if op is terminator:
            break
        if op.name == "coreai.constant":
            values[op.results[0]] = decode_constant(op.properties["value"], blobs)
            continue
        if isinstance(op, RegionOp):
            listed = Machine(IRModule()).run_block(op.body.block, [values[operand] for operand in op.operands], {})
        elif isinstance(op, AtenOp):
            listed = run_op(op.name, {name: _argument(value, values) for name, value in op.arguments_by_name().items()})
        else:
            raise EvaluationError(f"{op.name} is not an ATen op")
        if len(listed) < len(op.results):
            raise EvaluationError(f"{op.name} has {len(listed)} results, not {len(op.results)}")
        for result, value in zip(list(op.results), listed, strict=False):
            type_ = static_type_of(value)
            typed = result if result.type == type_ else Rewriter.replace_value_with_new_type(result, type_)
            values[typed] = value
    return [values[operand] for operand in terminator.operands]


def eager_implementation(op: Operation) -> Implementation | None:
    """How the evaluator runs an ATen op, by eager PyTorch; None for other ops. For `Machine.others`."""
    return _run_eagerly if isinstance(op, AtenOp) else None


def _run_eagerly(op: EvaluatedOp, *operands: Any) -> list[Any]:
    operation = op.operation
    assert isinstance(operation, AtenOp)
    return list(run_op(operation.name, eager_arguments(operation, op.values)))


def eager_arguments(op: AtenOp, values: Mapping[SSAValue, Tensor]) -> dict[str, Any]:
    """The arguments of an op by name, as PyTorch takes them.

    Args:
        op: the op.
        values: the tensors of its operands.
    """
    types = {argument.name: argument.type for argument in op.SCHEMA.arguments}
    return {
        name: _argument(value, values, is_tensor="Tensor" in types[name])
        for name, value in op.arguments_by_name().items()
    }


def random_tensor(type_: Attribute, limits: tuple[float, float] | None, seed: int) -> Tensor:
    """A tensor of a static type: floats are normally distributed or between limits, integers between -9 (or 0) and 9
    or the limits, both included, bools fair."""
    assert isinstance(type_, TensorType)
    shape, dtype = static_shape(type_), TORCH_DTYPES[element_name(type_.element_type)]
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    if dtype.is_floating_point and limits is None:
        return torch.randn(shape, generator=generator).to(dtype)
    if dtype.is_floating_point and limits is not None:
        return (torch.rand(shape, generator=generator) * (limits[1] - limits[0]) + limits[0]).to(dtype)
    low, high = limits or (-9, 9)
    low, high = (low, high) if dtype.is_signed else (max(low, 0), max(high, 0))
    return torch.randint(int(low), int(high) + 1, shape, generator=generator).to(dtype)


def with_special_values(value: Tensor, special: Sequence[float], seed: int) -> Tensor:
    """A tensor with half of its floats replaced by special ones, in turn; all of these are there if there is room."""
    if not value.is_floating_point() or not special:
        return value
    flat = value.flatten().clone()
    places = torch.randperm(len(flat), generator=torch.Generator().manual_seed(seed))
    count = min(len(flat), max(len(flat) // 2, len(special)))
    flat[places[:count]] = torch.tensor([special[i % len(special)] for i in range(count)]).to(value.dtype)
    return flat.reshape(value.shape)


def _argument(value: Any, values: Mapping[SSAValue, Tensor], is_tensor: bool = True) -> Any:
    """An argument of an op as PyTorch takes it; a value that the op takes as a number becomes one."""
    if isinstance(value, Value):
        given = values[value.ssa]
        return given if is_tensor else given.item()
    if isinstance(value, list):
        return [_argument(item, values, is_tensor) for item in value]
    return TORCH_DTYPES[element_name(value)] if isinstance(value, Attribute) else value

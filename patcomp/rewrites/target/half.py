"""Half precision: every float of a program becomes float16, also in inputs, outputs and states.

It comes after the rules, which have replaced what float16 cannot compute (masks of minus infinity, squares in norms).
Weights are cast one at a time, and shared weights stay shared. A mask of numbers that stand for minus infinity, such as
float32's least, gets float16's least, as a model in float16 has it. A program with another constant beyond float16's
largest number, 65504, stays as it is, and so does a program with a kernel: `obstacle` says which.
Ops that are to stay in float32 (`kept.py`) keep their results and the constants that nothing else reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from patcomp.ir.cleanup import remove_dead_ops
from patcomp.ir.constants import attribute_values, constant_attribute, is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.half import LARGEST, beyond_half
from patcomp.ir.kept import kept_ops
from patcomp.ir.mapped import mapped
from patcomp.ir.module import IRModule, function_type
from patcomp.ir.types import TensorType, element_name, element_type, tensor
from patcomp.ir.xdsl import (
    Attribute,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    Operation,
    SSAValue,
    maker_of,
    ops_inside,
    set_type,
)
from patcomp.rewrites.target.kept import cast_at_borders, own_bodies

_WIDE = frozenset({"f32", "f64", "bf16"})


def use_half_precision(module: IRModule, keep: Collection[str] = ()) -> int:
    """Make every float of a program float16, but for ops that stay in float32. Return how many values changed.

    Args:
        module: the program, in which composites are regions.
        keep: the modules and FX nodes whose ops stay in float32.

    Raises:
        UnknownNameError: no op comes from one of them.
    """
    for graph in module.graphs:
        remove_dead_ops(graph)
    kept = kept_ops(module, keep)
    if obstacle(module, kept) is not None:
        return 0
    fixed = {operand for op in ops_inside(module.op) for operand in _fixed_operands(op)}
    _separate(fixed)
    own_bodies(module, kept)
    fixed |= _inside(kept)
    narrow: dict[SSAValue, Attribute] = {
        value: _in_half(value) for op in kept for value in op.results if _is_wide(value)
    }
    constants = [op for op in _wide_constants(module) if op.results[0] not in fixed]
    cast: dict[Attribute, Attribute] = {}
    for op in constants:
        attribute = op.properties["value"]
        if attribute not in cast:
            cast[attribute] = _halved(attribute, module)
        op.properties["value"] = cast[attribute]
    count = 0
    for value in _values(module):
        if _is_wide(value) and value not in fixed:
            set_type(value, _in_half(value))
            count += 1
    cast_at_borders(module, kept, narrow)
    for graph in module.graphs:
        graph.properties["function_type"] = function_type(graph.regions[0].block)
    return count


def obstacle(module: IRModule, kept: Collection[Operation] = ()) -> tuple[Operation, str] | None:
    """Why a program cannot become float16: an op, and what is wrong with it; None if nothing is.

    Args:
        module: the program, in which composites are regions.
        kept: the ops that stay in float32.
    """
    for op in ops_inside(module.op):
        if _is_kernel(op):
            return op, "its code fixes the types of its operands"
        if not all(map(is_constant, _fixed_operands(op))):
            return op, "it takes an operand in float32 only, and this operand is computed"
    keeps = _inside(kept)
    for op in _wide_constants(module):
        value = op.results[0]
        stays = value in keeps or all(value in set(_fixed_operands(use.operation)) for use in value.uses)
        beyond = None if stays else beyond_half(op, module.blobs)
        if beyond is not None:
            return op, f"it holds {beyond:g}, and float16 ends at {LARGEST:g}"
    return None


def _inside(kept: Collection[Operation]) -> set[SSAValue]:
    """The values that stay in float32: results of the kept ops, all values in their regions, and constants without
    other readers."""
    readers = set(kept)
    found: set[SSAValue] = {value for op in kept for value in op.results}
    for op in kept:
        for inner in ops_inside(op):
            found.update(inner.results)
        for block in (block for region in op.regions for block in region.blocks):
            found.update(block.args)
        found.update(v for v in op.operands if is_constant(v) and all(use.operation in readers for use in v.uses))
    return found


def _wide_constants(module: IRModule) -> list[Operation]:
    return [op for op in ops_inside(module.op) if is_constant(op) and _is_wide(op.results[0])]


def _in_half(value: SSAValue) -> TensorType:
    assert isinstance(value.type, TensorType)
    return tensor(value.type.get_shape(), "f16")


def _fixed_operands(op: Operation) -> Iterator[SSAValue]:
    """The operands of an op that it takes in float32 only, such as the scales of a resize."""
    if isinstance(op, CoreaiOp):
        for slot, operands in zip(op.ROW.operands, op.operands_by_slot(), strict=True):
            if "f32" in slot.types and "f16" not in slot.types:
                yield from operands


def _separate(fixed: set[SSAValue]) -> None:
    """Give other users of constants that keep their type constants of their own."""
    for value in list(fixed):
        others = [use for use in value.uses if value not in set(_fixed_operands(use.operation))]
        if others:
            constant = maker_of(value)
            assert constant is not None
            assert constant.parent is not None
            copy = constant.clone()
            constant.parent.insert_op_before(copy, constant)
            for use in others:
                use.operation.operands[use.index] = copy.results[0]


def _is_kernel(op: Operation) -> bool:
    """Whether an op fixes the element types of its operands by code of its own."""
    return op.name.startswith("coreaix.") or op.name in ("coreai.metal4_kernel", "coreai.delegate")


def _is_wide(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and element_name(value.type.element_type) in _WIDE


def _values(module: IRModule) -> Iterator[SSAValue]:
    """All values of a module."""
    for op in ops_inside(module.op):
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.args


def _halved(attribute: Attribute, module: IRModule) -> Attribute:
    """The attribute of a constant in float16."""
    half = element_type("f16")
    values = attribute_values(attribute, module.blobs)
    assert values is not None
    if isinstance(attribute, DenseIntOrFPElementsAttr):
        return constant_attribute(_clamped(values), half, module.blobs)
    assert isinstance(attribute, DenseResourceAttr)
    made = mapped(values.shape, np.dtype(np.float16))
    for start in range(0, values.size, 2**22):
        made.reshape(-1)[start : start + 2**22] = _clamped(values.reshape(-1)[start : start + 2**22])
    return constant_attribute(made, half, module.blobs, attribute.resource_handle.data)


def _clamped(values: np.ndarray) -> np.ndarray:
    """The numbers in float16; what stands for minus infinity becomes float16's least number, and infinity stays."""
    return np.where(np.isinf(values), values, values.clip(-LARGEST, LARGEST)).astype(np.float16)

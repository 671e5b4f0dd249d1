"""Half precision: every float of a program becomes float16, also those of its inputs, outputs and states.

It comes after the rules, which have replaced what float16 cannot compute (masks of minus infinity, squares in norms).
Weights are cast one at a time, and shared weights stay shared. A mask of numbers that stand for minus infinity, such as
float32's least, gets float16's least, as a model in float16 has it. A program with another constant beyond float16's
largest number, 65504, stays as it is: the audit lists its floats and names the constant.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from patcomp.ir.cleanup import remove_dead_ops
from patcomp.ir.constants import attribute_values, constant_attribute, is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.half import LARGEST, beyond_half
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

_WIDE = frozenset({"f32", "f64", "bf16"})


def use_half_precision(module: IRModule) -> int:
    """Make every float of a program float16. Return how many values changed."""
    for graph in module.graphs:
        remove_dead_ops(graph)
    ops = ops_inside(module.op)
    fixed = {operand for op in ops for operand in _fixed_operands(op)}
    if not all(map(is_constant, fixed)) or any(map(_is_kernel, ops)):
        return 0
    _separate(fixed)
    constants = [
        op for op in ops_inside(module.op) if is_constant(op) and _is_wide(op.results[0]) and op.results[0] not in fixed
    ]
    if any(beyond_half(op, module.blobs) is not None for op in constants):
        return 0
    cast: dict[Attribute, Attribute] = {}
    for op in constants:
        attribute = op.properties["value"]
        if attribute not in cast:
            cast[attribute] = _halved(attribute, module)
        op.properties["value"] = cast[attribute]
    count = 0
    for value in _values(module):
        if _is_wide(value) and value not in fixed:
            assert isinstance(value.type, TensorType)
            set_type(value, tensor(value.type.get_shape(), "f16"))
            count += 1
    for graph in module.graphs:
        graph.properties["function_type"] = function_type(graph.regions[0].block)
    return count


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

"""Half precision: every float of a program becomes float16, also those of its inputs, outputs and states.

It comes after the rules, which have replaced what float16 cannot compute (masks of minus infinity, squares in norms).
Weights are cast one at a time, and shared weights stay shared. A program with a constant beyond float16's largest
number, 65504, stays as it is: the audit lists its floats and names the constant.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from patcomp.ir.constants import attribute_values, constant_attribute, is_constant
from patcomp.ir.module import IRModule, function_type
from patcomp.ir.types import TensorType, element_name, element_type, tensor
from patcomp.ir.xdsl import (
    Attribute,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    Operation,
    SSAValue,
    ops_inside,
    set_type,
)
from patcomp.rewrites.target.mapped import mapped

LARGEST = 65504.0
"""The largest number of float16."""

_WIDE = frozenset({"f32", "f64", "bf16"})


def use_half_precision(module: IRModule) -> int:
    """Make every float of a program float16. Return how many values changed."""
    constants = [op for op in ops_inside(module.op) if is_constant(op) and _is_wide(op.results[0])]
    if any(map(_prevents, ops_inside(module.op))) or any(beyond_half(op, module) for op in constants):
        return 0
    cast: dict[Attribute, Attribute] = {}
    for op in constants:
        attribute = op.properties["value"]
        if attribute not in cast:
            cast[attribute] = _halved(attribute, module)
        op.properties["value"] = cast[attribute]
    count = 0
    for value in _values(module):
        if _is_wide(value):
            assert isinstance(value.type, TensorType)
            set_type(value, tensor(value.type.get_shape(), "f16"))
            count += 1
    for graph in module.graphs:
        graph.properties["function_type"] = function_type(graph.regions[0].block)
    return count


def beyond_half(op: Operation, module: IRModule) -> float | None:
    """The element of a constant that float16 cannot hold, other than infinity; None if there is none."""
    values = attribute_values(op.properties["value"], module.blobs)
    if values is None or not values.size:
        return None
    for part in np.array_split(values.reshape(-1), max(1, values.size // 2**20)):
        finite = part[np.isfinite(part)]
        if finite.size and float(np.abs(finite).max()) > LARGEST:
            return float(finite[np.abs(finite).argmax()])
    return None


def _prevents(op: Operation) -> bool:
    """Whether an op fixes the element types of its operands."""
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
        return constant_attribute(values.astype(np.float16), half, module.blobs)
    assert isinstance(attribute, DenseResourceAttr)
    made = mapped(values.shape, np.dtype(np.float16))
    for start in range(0, values.size, 2**22):
        made.reshape(-1)[start : start + 2**22] = values.reshape(-1)[start : start + 2**22]
    return constant_attribute(made, half, module.blobs, attribute.resource_handle.data)

"""The weights that a program stores in fewer bits: `compress` made them, or a library before the conversion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from patcomp.compression.report import WeightReport
from patcomp.compression.weights import Readers, name_of
from patcomp.ir.constants import is_constant, weight_key
from patcomp.ir.module import IRModule
from patcomp.ir.types import BIT_WIDTHS, element_name, static_shape, storage_bytes
from patcomp.ir.xdsl import (
    DenseIntOrFPElementsAttr,
    Operation,
    SSAValue,
    TensorType,
    ops_inside,
)

_SCALES = ("coreai.blockwise_shift_scale", "coreai.dequantize")
_UNPACKING = (*_SCALES, "coreai.lut_to_dense", "coreai.sparse_with_bitmask_to_dense")
_PARTS = (*_UNPACKING, "coreai.build_sparse_with_bitmask")


def compressed_weights(module: IRModule) -> Iterator[WeightReport]:
    """What is known of each weight that ops unpack, in the order of the program: all but its distance from floats."""
    readers, seen = Readers.of(module), set()
    for op in ops_inside(module.op):
        if op.name not in _UNPACKING or any(use.operation.name in _PARTS for use in op.results[0].uses):
            continue  # a table that is compressed itself, or the values of a sparse weight
        data, constants = _data(op), list(_constants(op))
        key = weight_key(data.results[0])
        if key is None or key in seen or not all(is_constant(part) for part in constants):
            continue
        seen.add(key)
        result = op.results[0]
        kinds = dict.fromkeys(found[0] for use in result.uses if (found := readers.kind(use)) is not None)
        after = sum(_bytes(part.results[0]) for part in constants)
        yield WeightReport(name_of(key), tuple(kinds), _shape(result), _scheme(op), _bytes(result), after, None)


def _data(op: Operation) -> Operation:
    """The constant, or what else there is, of which an op makes floats in the end."""
    while op.name in _PARTS and isinstance(op.operands[0].owner, Operation):
        op = op.operands[0].owner
    return op


def _constants(op: Operation) -> Iterator[Operation]:
    """What must be stored for an op: data, scales, tables and masks, and offsets that are not equal everywhere."""
    for index, operand in enumerate(op.operands):
        owner = operand.owner
        if not isinstance(owner, Operation) or (index > 1 and _is_splat(owner)):
            continue
        if owner.name in _PARTS:
            yield from _constants(owner)
        else:
            yield owner


def _is_splat(op: Operation) -> bool:
    value = op.properties.get("value") if is_constant(op) else None
    return isinstance(value, DenseIntOrFPElementsAttr) and value.is_splat()


def _scheme(op: Operation) -> str:
    """The scheme, in the words of `Scheme` as far as they go: `u4` has unsigned integers, `f8E4M3FN` has floats."""
    if op.name == "coreai.sparse_with_bitmask_to_dense":
        values = op.operands[0].owner.operands[0]  # type: ignore[union-attr]
        zeros = 1 - math.prod(_shape(values)) / math.prod(_shape(op.results[0]))
        inner = _unpacking(values)
        return f"sparse{100 * zeros:.0f}" + (f"_{_scheme(inner)}" if inner else "")
    data, parts = op.operands[:2]
    if op.name == "coreai.lut_to_dense":
        *blocks, _, vector = _shape(parts)
        name = f"pal{_bits(data)}{_sizes('group', _shape(op.results[0]), blocks)}{f'_vector{vector}' * (vector > 1)}"
        inner = _unpacking(parts)
        return f"{name}, table {_scheme(inner)}" if inner else name
    if inner := _unpacking(data):
        return f"{_scheme(inner)}, scaled"
    element = element_name(_type(data).element_type)
    name = {"si": "w", "ui": "u"}[element[:2]] + str(_bits(data)) if element[1] == "i" else element
    return name + (_sizes("block", _shape(op.results[0]), _shape(parts)) if op.name != "coreai.dequantize" else "")


def _sizes(word: str, shape: Sequence[int], counts: Sequence[int]) -> str:
    """The size of the parts of each axis that has several, of several elements."""
    sizes = [str(size // count) for size, count in zip(shape, counts, strict=True) if 1 < count < size]
    return f"_{word}{'x'.join(sizes)}" if sizes else ""


def _unpacking(value: SSAValue) -> Operation | None:
    """The op that unpacks a value, if it is compressed itself."""
    return value.owner if isinstance(value.owner, Operation) and value.owner.name in _UNPACKING else None


def _type(value: SSAValue) -> TensorType[Any]:
    assert isinstance(value.type, TensorType)
    return value.type


def _shape(value: SSAValue) -> tuple[int, ...]:
    return static_shape(_type(value))


def _bits(value: SSAValue) -> int:
    return BIT_WIDTHS[element_name(_type(value).element_type)]


def _bytes(value: SSAValue) -> int:
    return storage_bytes(_shape(value), _type(value).element_type)

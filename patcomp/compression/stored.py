"""The weights that a program stores in fewer bits: `compress` made them, or a library before the conversion."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.compression.report import WeightReport
from patcomp.compression.scheme import is_unpacking, reads_stored, scheme_name
from patcomp.compression.weights import Readers, weight_name
from patcomp.ir.constants import is_constant, weight_key
from patcomp.ir.module import IRModule
from patcomp.ir.types import storage_bytes
from patcomp.ir.value import Value
from patcomp.ir.xdsl import (
    DenseIntOrFPElementsAttr,
    Operation,
    SSAValue,
    maker_of,
    ops_inside,
)


def compressed_weights(module: IRModule) -> Iterator[WeightReport]:
    """The description of each weight that ops unpack, in the order of the program; only its error is not known."""
    readers, seen = Readers.of(module), set()
    for op in ops_inside(module.op):
        if not is_unpacking(op) or any(reads_stored(use.operation) for use in op.results[0].uses):
            continue  # a table that is compressed itself, or the values of a sparse weight
        data, constants = _data(op), list(_constants(op))
        key = weight_key(data.results[0])
        if key is None or key in seen or not all(is_constant(part) for part in constants):
            continue
        seen.add(key)
        result = op.results[0]
        shape = Value(result).static_shape
        kinds = dict.fromkeys(found.kind for use in result.uses for found in readers.readers(use))
        after = sum(_bytes(part.results[0]) for part in constants)
        yield WeightReport(weight_name(key), tuple(kinds), shape, scheme_name(op), _bytes(result), after, None)


def _data(op: Operation) -> Operation:
    """The value at the start of a chain of unpacking ops, usually a constant."""
    while reads_stored(op) and (maker := maker_of(op.operands[0])) is not None:
        op = maker
    return op


def _constants(op: Operation) -> Iterator[Operation]:
    """The constants that are stored for an op: data, scales, tables and masks, and offsets whose elements differ."""
    for index, operand in enumerate(op.operands):
        maker = maker_of(operand)
        if maker is None or (index > 1 and _is_splat(maker)):
            continue
        if reads_stored(maker):
            yield from _constants(maker)
        else:
            yield maker


def _is_splat(op: Operation) -> bool:
    value = op.properties.get("value") if is_constant(op) else None
    return isinstance(value, DenseIntOrFPElementsAttr) and value.is_splat()


def _bytes(value: SSAValue) -> int:
    return storage_bytes(Value(value).static_shape, Value(value).element_type)

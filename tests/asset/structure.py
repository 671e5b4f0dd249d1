"""The structure of stored programs: two that differ only in locations have the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patcomp.emit.bytecode import Block, Op, ProgramWriter, StoredProgram, StoredValue
from patcomp.emit.stored.decompositions import decomposition_region
from patcomp.emit.stored.outline import WITH_REGIONS

CONSTANT = "primitive.constant_v1"
_COPY = "broadcasting_maximum_v1"
_COMMUTATIVE = ("broadcasting_add_v1", "broadcasting_mul_v1")


def structure(program: StoredProgram) -> Any:
    """Ops with their properties, types and regions, and numbers in place of values."""
    numbers: dict[StoredValue, int] = {}

    def number(value: StoredValue) -> int:
        return numbers.setdefault(value, len(numbers))

    def of(op: Op) -> Any:
        regions = [
            [([(number(a), a.type) for a in block.arguments], [of(each) for each in block.ops]) for block in region]
            for region in op.regions
        ]
        operands, results = [number(value) for value in op.operands], [(number(v), v.type) for v in op.results]
        return op.name, operands, results, sorted(op.properties.items()), regions

    return of(program.asset)


def settled(program: StoredProgram) -> StoredProgram:
    """The program after what coreai-core does when it saves and patcomp does not; it is changed.

    A constant is the second operand of a sum or product, and a copy of a small constant, with which a loop begins, is
    a constant.
    """
    blocks = list(_blocks(program.asset))
    constants = {op.results[0]: op for block in blocks for op in block.ops if op.name == CONSTANT}
    for block in blocks:
        for op in block.ops:
            first, second = (*op.operands, None, None)[:2]
            if op.name == _COPY and first is second and first in constants:
                op.name, op.operands, op.regions = CONSTANT, [], []
                op.properties = dict(constants[first].properties)  # type: ignore[index]
            elif op.name in _COMMUTATIVE and first in constants and second not in constants:
                op.operands.reverse()
                types = [value.type for value in op.operands], [value.type for value in op.results]
                op.regions = [decomposition_region(op.name, *types, op.location)]
    read = {value for block in blocks for op in block.ops for value in op.operands}
    for block in blocks:
        block.ops = [op for op in block.ops if op.name != CONSTANT or op.results[0] in read]
    return program


def _blocks(op: Op) -> Iterator[Block]:
    """The blocks in an op, without those of decompositions."""
    for block in (block for region in op.regions for block in region):
        yield block
        for each in block.ops:
            if each.name in WITH_REGIONS:
                yield from _blocks(each)


def encoded(program: StoredProgram) -> bytes:
    """The bytes of a program."""
    return b"".join(ProgramWriter(program).pieces())

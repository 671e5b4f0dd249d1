"""The structure of stored programs: two that differ only in locations have the same."""

from __future__ import annotations

from typing import Any

from patcomp.asset.bytecode import Op, Program, ProgramWriter, Value


def structure(program: Program) -> Any:
    """Ops with their properties, types and regions, and numbers in place of values."""
    numbers: dict[Value, int] = {}

    def number(value: Value) -> int:
        return numbers.setdefault(value, len(numbers))

    def of(op: Op) -> Any:
        regions = [
            [([(number(a), a.type) for a in block.arguments], [of(each) for each in block.ops]) for block in region]
            for region in op.regions
        ]
        operands, results = [number(value) for value in op.operands], [(number(v), v.type) for v in op.results]
        return op.name, operands, results, sorted(op.properties.items()), regions

    return of(program.asset)


def encoded(program: Program) -> bytes:
    """The bytes of a program."""
    return b"".join(ProgramWriter(program).pieces())

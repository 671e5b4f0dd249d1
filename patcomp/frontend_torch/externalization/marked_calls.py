"""The ops between the markers of a call, and the values that they read."""

from __future__ import annotations

from collections.abc import Iterator

from patcomp.ir.xdsl import Operation, SSAValue


def between(begin: Operation, end: Operation) -> Iterator[Operation]:
    """The ops between the begin and the end of a call."""
    op = begin.next_op
    while op is not None and op is not end:
        yield op
        op = op.next_op


def read_from_outside(begin: Operation, end: Operation) -> list[SSAValue]:
    """The values from before a call that the call reads or returns, in the order of their first use."""
    own: set[SSAValue] = set()
    read: dict[SSAValue, None] = {}
    for op in (*between(begin, end), end):
        for inner in op.walk():
            read.update((operand, None) for operand in inner.operands if operand not in own)
            own.update(inner.results)
            own.update(argument for region in inner.regions for block in region.blocks for argument in block.args)
    return list(read)

"""What the Core AI runtime computes in place in loops: a hazard.

The runtime keeps each value that a loop carries in one memory, where it also puts the next one. The runtime does not
see every read: a flip, a gather or a matrix product reads elements that it has just overwritten. With a `tile` or a
broadcast in between, an op may overwrite a value that a later op still reads. A counter that is read after a nested
loop may be lost, and its loop never ends. Values that the body computes itself are safe, so the body reads a copy.
Observed with coreai-core 1.0.0b3.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.traits import Elementwise
from patcomp.ir.types import TensorType
from patcomp.ir.xdsl import Block, BlockArgument, Operation

_BLOCKS = {"coreai.if", "coreai.while", "coreai.invoke"}
"""Ops that may run nested blocks with carried values of their own."""


def read_unsafely(body: Block) -> Iterator[BlockArgument]:
    """The values carried by a loop that its body may read after they were written over.

    A value is safe if one op reads it, neither in a nested block nor after one, which is elementwise (a copy, for
    example) or updates elements of it.

    Args:
        body: the second block of a `coreai.while`.
    """
    at_first = set(takewhile(lambda op: op.name not in _BLOCKS, body.ops))
    for carried in body.args:
        uses = list(carried.uses)
        readers = {use.operation for use in uses}
        if not isinstance(carried.type, TensorType) or not readers - {body.last_op}:
            continue
        (reader, *others) = readers
        is_update = isinstance(reader, CoreaiOp) and bool(reader.ROW.updates) and [use.index for use in uses] == [0]
        if others or reader not in at_first or not (reader.has_trait(Elementwise) or is_update):
            yield carried


def is_unsafe_condition(loop: Operation) -> bool:
    """Whether a loop's condition computes more than one comparison of single numbers.

    The runtime may store intermediate values of a condition in the memory of any value that the loop returns.
    A condition is left alone where it passes on other values than it was given.
    """
    block = loop.regions[0].block
    assert block.last_op is not None
    if tuple(block.last_op.operands[1:]) != tuple(block.args):
        return False
    computed = [op for op in block.ops if op is not block.last_op and op.name != "coreai.constant"]
    return len(computed) > 1 or not all(op.has_trait(Elementwise) for op in computed)

"""How much an op computes: the multiply-adds of products and convolutions, from the shapes of their tensors."""

from __future__ import annotations

import math
import re

from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.types import shape_of
from patcomp.ir.xdsl import Operation

_COUNT = re.compile(r"(?P<each>\w+) \* (?P<operand>\w+)\[(?P<first>-?\d+)(?P<rest>:?)\]")


def multiply_adds(op: Operation) -> int:
    """How many products of two numbers an op adds up; 0 of an op that is no product or convolution.

    The row of the op says it (`Row.multiply_adds`). A dynamic size counts as 1. The ops inside an op, and those of a
    graph that it calls, are not counted.
    """
    if not isinstance(op, CoreaiOp) or not op.ROW.multiply_adds:
        return 0
    found = _COUNT.fullmatch(op.ROW.multiply_adds)
    assert found is not None, op.ROW.multiply_adds
    slots = (*op.ROW.operands, *op.ROW.results)
    shapes = {
        slot.name: [1 if size is None else size for size in shape_of(value.type)]
        for slot, value in zip(slots, (*op.operands, *op.results), strict=True)
        if slot.name in (found["each"], found["operand"])
    }
    sizes, first = shapes[found["operand"]], int(found["first"])
    along = sizes[first:] if found["rest"] else [sizes[first]]
    return math.prod(shapes[found["each"]]) * math.prod(along)

"""Rewrites of the ops that the runtime cannot run on empty operands.

Reductions leave their result uninitialized. Sorting, arg max, padding and scanning abort if a dimension other than
their axis is 0, and scatters abort if there is nothing to scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_integers
from patcomp.ir.value import Value, replace_op
from patcomp.ir.xdsl import Operation

_NEUTRAL = {"coreai.reduce_mean": math.nan, "coreai.reduce_product": 1, "coreai.reduce_sum": 0}
"""The result of a reduction over no elements; a maximum over no elements is an error in PyTorch."""
REDUCTIONS = _NEUTRAL.keys()

_ALONG = ("coreai.argmax", "coreai.argsort", "coreai.scan", "coreai.sort")
"""Ops that work along the axis in their second operand and treat all other dimensions as batch dimensions."""

_NO_CHANGE = {"add": 0, "sub": 0, "mul": 1, "div": 1}
"""The neutral element of each scatter mode; other modes use the old number itself."""


def operand_sizes(shape: Sequence[int | None], values: Sequence[Value]) -> Iterator[int | Value]:
    """The sizes of a result, read off the operands where they are dynamic.

    A dynamic size of one operand may turn out to be 1; that of the next operand counts then.
    """
    for position, size in zip(range(-len(shape), 0), shape, strict=True):
        if size is not None:
            yield size
            continue
        dynamic = [value for value in values if value.rank >= -position and value.shape[position] is None]
        first, *others = (size_at(x, position + x.rank) for x in dict.fromkeys(dynamic))
        for other in others:
            first = coreai.broadcasting_where(coreai.broadcasting_equal(first, 1), other, first)
        yield first


def size_at(x: Value, axis: int) -> Value:
    """The size of a dimension, of shape 1."""
    return coreai.slice_(coreai.cast(coreai.get_shape(x), "si32"), [axis], [axis + 1], [1])


def reduce_nothing(op: Operation) -> bool:
    """Choose the neutral element as the result if a reduced size is 0."""
    x, axes, shape = Value(op.operands[0]), constant_integers(op.operands[1]), Value(op.results[0]).shape
    reduced = [axis % x.rank for axis in axes or () if x.shape[axis] is None]
    if any(x.shape[axis] == 0 for axis in axes or ()):
        sizes = list(operand_sizes(shape, [_again(op, [x])] if None in shape else []))
        neutral = coreai.constant(_NEUTRAL[op.name], x.element_type)
        replace_op(op, [coreai.broadcast_to(neutral, sizes, result_type=op.results[0].type).ssa])
        return True
    if not reduced:
        return False
    count = size_at(x, reduced[0])
    for axis in reduced[1:]:
        count = coreai.broadcasting_mul(count, size_at(x, axis))
    result = _again(op, [x])
    sizes = list(operand_sizes(result.shape, [result]))
    nothing = coreai.broadcast_to(coreai.broadcasting_equal(count, 0), sizes)
    neutral = coreai.broadcast_to(coreai.constant(_NEUTRAL[op.name], x.element_type), sizes)
    chosen = coreai.broadcasting_where(nothing, neutral, result, result_type=op.results[0].type)
    replace_op(op, [chosen.ssa])
    return True


def go_along_one_more(op: Operation) -> bool:
    """Compute with one more row of zeros along each batch dimension, and drop the results of these rows."""
    x, second = Value(op.operands[0]), constant_integers(op.operands[1])
    if second is None:
        return False
    padded = {axis for axis in range(x.rank) if any(second[2 * axis : 2 * axis + 2])}
    fixed = padded if op.name == "coreai.pad" else {second[0] % x.rank}
    rows = [axis for axis, size in enumerate(x.shape) if size is None and axis not in fixed]
    if not rows:
        return False
    ends = [-1 if axis in rows else 2**31 - 1 for axis in range(x.rank)]
    for axis in rows:
        sizes = [1 if other == axis else size for other, size in enumerate(operand_sizes(x.shape, [x]))]
        x = coreai.concat(axis, [x, coreai.broadcast_to(coreai.constant(0, x.element_type), sizes)])
    (result,) = op.results
    longer = _again(op, [x])
    replace_op(op, [coreai.slice_(longer, [0] * x.rank, ends, [1] * x.rank, result_type=result.type).ssa])
    return True


def scatter_one_more(op: Operation) -> bool:
    """Scatter one more row before the others; the row does not change the result."""
    x, indices, updates = map(Value, op.operands[:3])
    if indices.shape[0] is not None or None in x.shape:
        return False

    def row(like: Value, number: int) -> Value:
        _, *sizes = operand_sizes(like.shape, [like])
        return coreai.broadcast_to(coreai.constant(number, like.element_type), [1, *sizes])

    first, mode = row(indices, 0), getattr(op.properties.get("scatter_mode"), "data", "update")
    if mode in _NO_CHANGE:
        same = row(updates, _NO_CHANGE[mode])
    elif op.name == "coreai.scatter_nd":
        same = coreai.gather_nd(x, first)
    else:
        same = coreai.gather_along_axis(x, first, Value(op.operands[3]))
    operands = [x, coreai.concat(0, [first, indices]), coreai.concat(0, [same, updates])]
    replace_op(op, [_again(op, operands).ssa])
    return True


def _again(op: Operation, operands: Sequence[Value]) -> Value:
    """The same op with other first operands."""
    values = [*(value.ssa for value in operands), *op.operands[len(operands) :]]
    regions = [region.clone() for region in op.regions]
    types = [result.type for result in op.results]
    made = type(op).create(operands=values, result_types=types, properties=dict(op.properties), regions=regions)
    return Value(Builder.current().insert(made).results[0])


CHANGES = {
    **dict.fromkeys(_NEUTRAL, reduce_nothing),
    **dict.fromkeys((*_ALONG, "coreai.pad"), go_along_one_more),
    **dict.fromkeys(("coreai.scatter_along_axis", "coreai.scatter_nd"), scatter_one_more),
}

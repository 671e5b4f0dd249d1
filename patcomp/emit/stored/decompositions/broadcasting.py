"""Decompositions of the ops whose operands broadcast as in numpy.

Facts: the programs that coreai-core 1.0.0b3 saves for each op, with known and open sizes and different ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.emit.bytecode import StoredEntry, StoredValue
from patcomp.emit.bytecode.kinds import OPEN_DIMENSION
from patcomp.emit.stored.decompositions.body import (
    SI32,
    UI32,
    Body,
    StoredDims,
    broadcast_dims,
    decomposes,
    element,
    stored_dims_of,
    stored_tensor,
)


def _binary(name: str) -> None:
    """The decomposition of a broadcasting op: repeat the operands to a common shape, then apply the op."""

    @decomposes(f"broadcasting_{name}_v1")
    def repeated_first(
        body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]
    ) -> list[StoredValue]:
        shapes = [stored_dims_of(value) for value in operands]
        dims = broadcast_dims(*shapes)
        if any(OPEN_DIMENSION in shape for shape in shapes):
            shape = body.common_shape(*operands)
            repeated = [body.broadcast_to(value, shape, dims) for value in operands]
        else:
            repeated = [_repeated(body, value, dims) for value in operands]
        return [body.primitive(name, repeated, stored_tensor(dims, results[0][2]))]


_ARITHMETIC = ("add", "sub", "mul", "divide", "floor_divide", "modulo", "pow", "maximum", "minimum")
_COMPARISONS = ("equal", "not_equal", "greater")
_LOGIC = ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor")
for _name in (*_ARITHMETIC, *_COMPARISONS, *_LOGIC):
    _binary(_name)


def _repeated(body: Body, value: StoredValue, dims: StoredDims) -> StoredValue:
    """A value of known dimensions, repeated to others."""
    missing = len(dims) - len(stored_dims_of(value))
    if missing:
        own = (1,) * missing + stored_dims_of(value)
        value = body.reshape(value, body.vector(own), own)
    axes = [axis for axis, (have, want) in enumerate(zip(stored_dims_of(value), dims, strict=True)) if have != want]
    if not axes:
        return value
    sizes = body.vector([dims[axis] for axis in axes], UI32)
    return body.primitive("broadcast_in_dims", [value, sizes, body.vector(axes)], stored_tensor(dims, element(value)))


@decomposes("broadcasting_where_v1")
def where(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """Repeat the condition and both operands to a common shape, and select."""
    condition, first, second = operands
    of_two = broadcast_dims(stored_dims_of(condition), stored_dims_of(first))
    dims = broadcast_dims(of_two, stored_dims_of(second))
    known = OPEN_DIMENSION not in of_two
    parts = [] if known else [body.shape(value) for value in (condition, first) if stored_dims_of(value)]
    if stored_dims_of(second):
        parts.append(body.shape(second))
    if known and of_two:
        parts.insert(0, body.vector(of_two, UI32))
    shape, *others = parts or [body.vector((), UI32)]
    for part in others:
        rank = max(*stored_dims_of(shape), *stored_dims_of(part))
        shape = body.primitive("broadcast_shapes", [shape, part], stored_tensor((rank,), UI32))
    repeated = [body.broadcast_to(value, shape, dims) for value in operands]
    return [body.primitive("where", repeated, stored_tensor(dims, element(first)))]


@decomposes("broadcasting_batch_matmul_v1")
def batch_matmul(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """Repeat the dimensions before the last two to common ones, and multiply matrices."""
    ranks = [len(stored_dims_of(value)) for value in operands]
    batch = broadcast_dims(stored_dims_of(operands[0])[:-2], stored_dims_of(operands[1])[:-2])
    repeated = list(operands)
    if max(ranks) > 2:
        join, start, step = body.scalar(0, SI32), body.vector([0]), body.vector([1])
        bounds = [[body.vector([number]) for number in (rank - 2, rank)] if rank > 2 else [] for rank in ranks]
        shapes = [body.shape(value) for value in operands]
        leads, lasts = [], []
        for shape, rank, ends in zip(shapes, ranks, bounds, strict=True):
            if rank == 2:
                lasts.append(shape)
                continue
            leads.append(body.primitive("slice", [shape, start, ends[0], step], stored_tensor((rank - 2,), UI32)))
            lasts.append(body.primitive("slice", [shape, *ends, step], stored_tensor((2,), UI32)))
        lead = leads[0]
        if len(leads) == 2:
            lead = body.primitive("broadcast_shapes", leads, stored_tensor((len(batch),), UI32))
        wide = stored_tensor((len(batch) + 2,), UI32)
        wide_shapes = [body.primitive("concat", [join, lead, last], wide) for last in lasts]
        for position, value in enumerate(operands):
            if min(ranks) > 2 or ranks[position] == 2:
                dims = (*batch, *stored_dims_of(value)[-2:])
                repeated[position] = body.broadcast_to(value, wide_shapes[position], dims)
    return [body.primitive("batch_matmul", repeated, results[0])]

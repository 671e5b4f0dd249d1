"""Decompositions of ops that move elements: sort and tile.

Facts: the programs that coreai-core 1.0.0b3 saves for each op, with known and open sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.emit.bytecode import StoredEntry, StoredValue
from patcomp.emit.bytecode.kinds import OPEN_DIMENSION
from patcomp.emit.stored.decompositions.body import SI32, UI32, Body, decomposes, element, stored_dims_of, stored_tensor


@decomposes("sort_v1")
def sort(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """The elements at the positions that sort them."""
    x, axis, *_ = operands
    order = body.primitive("argsort", operands, stored_tensor(stored_dims_of(x), SI32))
    return [body.primitive("gather_along_axis", [x, order, axis], x.type)]


@decomposes("tile_v2")
def tile(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """Insert an axis of size 1 before each axis, repeat along it, and join both."""
    x, counts = operands
    rank, (given,) = len(stored_dims_of(x)), stored_dims_of(counts)
    axes = body.vector([2 * axis for axis in range(rank)])
    expanded = [size for dim in stored_dims_of(x) for size in (1, dim)]
    wide = body.primitive("expand_dims", [x, axes], stored_tensor(expanded, element(x)))
    ones = body.vector([1] * (rank - given), UI32)
    times = body.primitive("concat", [body.scalar(0, SI32), ones, counts], stored_tensor((rank,), UI32))
    repeated = [size for dim in stored_dims_of(x) for size in (OPEN_DIMENSION, dim)]
    wide = body.primitive("broadcast_in_dims", [wide, times, axes], stored_tensor(repeated, element(x)))
    sizes = body.primitive("mul", [body.shape(x), times], stored_tensor((rank,), UI32))
    return [body.reshape(wide, sizes, (OPEN_DIMENSION,) * rank)]

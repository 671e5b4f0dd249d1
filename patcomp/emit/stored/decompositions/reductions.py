"""Decompositions of reductions.

Facts: the programs that coreai-core 1.0.0b3 saves for each op and element type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from patcomp.emit.bytecode import StoredEntry, StoredValue
from patcomp.emit.bytecode.kinds import OPEN_DIMENSION
from patcomp.emit.stored.decompositions.body import (
    STORED_BOOL,
    UI32,
    Body,
    decomposes,
    element,
    element_name_of,
    extreme_number,
    finished,
    stored_dims_of,
    stored_tensor,
)
from patcomp.emit.stored.types import stored_element
from patcomp.ir.types import is_float, is_integer

UI64 = stored_element("ui64")


def _accumulator(element_type: StoredEntry) -> StoredEntry:
    """The element type in which sums and products are computed: f32 for smaller floats, 64 bits for integers."""
    name = element_name_of(element_type)
    if is_integer(name):
        return stored_element(f"{name[:2]}64")
    return element_type if name in ("f32", "f64") or not is_float(name) else stored_element("f32")


def _reduction(name: str, combiner: str, start: Callable[[StoredEntry], float], *, widens: bool = False) -> None:
    """The decomposition of a reduction: combine the elements one after the other, from a start value.

    Args:
        name: the stored name of the reduction.
        combiner: the op that combines two elements.
        start: the start value for an element type.
        widens: whether the op computes in the type of `_accumulator`.
    """

    @decomposes(name)
    def reduce(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
        x, axes = operands
        computed = _accumulator(element(x)) if widens else element(x)
        is_cast = element_name_of(element(x)) != "f16" and element_name_of(element(x))[:2] != "si"
        first = body.cast(body.scalar(start(computed), element(x) if is_cast else computed), computed)
        type_ = stored_tensor((OPEN_DIMENSION,) * len(stored_dims_of(x)), element(x))
        inner = Body([stored_tensor((), computed), stored_tensor((), element(x))], body.location)
        total, item = inner.block.arguments
        made = inner.primitive(combiner, [total, inner.cast(item, computed)], stored_tensor((), computed))
        return [body.op("primitive.reduce_v1", [x, axes, first], type_, regions=[finished(inner, [made])])]


_reduction("reduce_sum_v1", "add", lambda element_type: 0, widens=True)
_reduction("reduce_product_v1", "mul", lambda element_type: 1, widens=True)
_reduction("reduce_max_v1", "maximum", lambda element_type: extreme_number(element_type, False))
_reduction("reduce_min_v1", "minimum", lambda element_type: extreme_number(element_type, True))
_reduction("all_v1", "bitwise_and", lambda element_type: 1)
_reduction("any_v1", "bitwise_or", lambda element_type: 0)


@decomposes("reduce_mean_v1")
def mean(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """The sum over the axes, divided by the product of their sizes."""
    x, axes = operands
    outer, (count,) = element(x), stored_dims_of(axes)
    x = body.cast(x, _accumulator(outer))
    type_ = stored_tensor((OPEN_DIMENSION,) * len(stored_dims_of(x)), element(x))
    total = body.composite("reduce_sum_v1", [x, axes], type_)
    sizes = body.shape(x)
    positions = body.reshape(axes, body.vector([count, 1]), (count, 1))
    picked = body.primitive("gather_nd", [sizes, positions], stored_tensor((count,), UI32))
    zero = body.vector([0])
    product = body.composite("reduce_product_v1", [body.cast(picked, UI64), zero], stored_tensor((1,), UI64))
    quotient = body.broadcasting("divide", total, body.cast(product, element(x)), type_[1])
    return [body.cast(quotient, outer)]


@decomposes("argmax_v1")
def argmax(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """The index of the first element that is greater than those before it."""
    x, axis = operands
    index = results[0][2]
    start, first = body.scalar(extreme_number(element(x), False), element(x)), body.scalar(0, index)
    inner = Body([stored_tensor((), element(x))] * 2, body.location)
    best, item = inner.block.arguments
    region = finished(inner, [inner.primitive("greater", [item, best], stored_tensor((), STORED_BOOL))])
    type_ = stored_tensor((OPEN_DIMENSION,) * len(stored_dims_of(x)), index)
    return [body.op("primitive.reduce_index_v1", [x, axis, start, first], type_, regions=[region])]

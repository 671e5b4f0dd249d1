"""Build the decomposition of an op: a region of stored ops that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from patcomp.emit.bytecode import Block, Op, Region, StoredEntry, StoredValue
from patcomp.emit.bytecode.kinds import OPEN_DIMENSION
from patcomp.emit.stored.constants import stored_elements
from patcomp.emit.stored.elements import tensor_element_name
from patcomp.emit.stored.errors import UnsupportedInAssetError
from patcomp.emit.stored.types import stored_element
from patcomp.ir.constants import dense
from patcomp.ir.elements import numpy_dtype, to_numpy
from patcomp.ir.types import ML_DTYPES, integer_range, is_float, is_integer, tensor
from patcomp.ir.types import element_type as ir_element

StoredDims = tuple[int, ...]
"""The dimensions of a stored tensor type."""

SI32, UI32 = stored_element("si32"), stored_element("ui32")
STORED_BOOL = stored_element("i1")


def stored_dims_of(value: StoredValue) -> StoredDims:
    """The dimensions of a value; `DYNAMIC` for those that are known only at run time."""
    return value.type[1]  # type: ignore[no-any-return]


def element(value: StoredValue) -> StoredEntry:
    """The stored element type of a value."""
    return value.type[2]  # type: ignore[no-any-return]


def stored_tensor(dims: Sequence[int], element_type: StoredEntry) -> StoredEntry:
    """The stored type of a tensor."""
    return ("tensor_v1", tuple(dims), element_type)


def broadcast_dims(first: StoredDims, second: StoredDims) -> StoredDims:
    """The dimensions of the broadcast of two values; a dynamic dimension beside a static one other than 1 becomes
    static."""
    rank = max(len(first), len(second))
    pairs = zip((1,) * (rank - len(first)) + first, (1,) * (rank - len(second)) + second, strict=True)
    return tuple([b if a == 1 else a if b == 1 or a == b else max(a, b) for a, b in pairs])  # DYNAMIC is negative


def element_name_of(element_type: StoredEntry) -> str:
    """The name of a stored element type, such as `"f32"`."""
    return tensor_element_name(stored_tensor((), element_type))


def extreme_number(element_type: StoredEntry, largest: bool) -> float | int:
    """The largest or the smallest finite number of an element type."""
    name = element_name_of(element_type)
    if not is_float(name):
        return integer_range(name)[largest]
    if name in ML_DTYPES:
        import ml_dtypes

        limits = ml_dtypes.finfo(ML_DTYPES[name])
    else:
        limits = np.finfo(numpy_dtype(name))  # type: ignore[arg-type, assignment]
    return float(limits.max if largest else limits.min)


class Body:
    """A region that is being built.

    Args:
        types: the types of its arguments, those of the op's operands.
        location: the location of the op, which all ops of the region get.
    """

    def __init__(self, types: Sequence[StoredEntry], location: StoredEntry):
        self.location = location
        self.block = Block([StoredValue(type_) for type_ in types], [location] * len(types))

    def op(
        self, name: str, operands: Sequence[StoredValue], *types: StoredEntry, regions: Sequence[Region] = ()
    ) -> StoredValue:
        """Add an op with the results of the given types, and return the first result."""
        made = Op(name, list(operands), [StoredValue(type_) for type_ in types], {}, list(regions), self.location)
        self.block.ops.append(made)
        return made.results[0]

    def composite(self, name: str, operands: Sequence[StoredValue], type_: StoredEntry) -> StoredValue:
        """Add an op that has a decomposition itself."""
        region = decomposition_region(name, [operand.type for operand in operands], [type_], self.location)
        return self.op(name, operands, type_, regions=[region])

    def broadcasting(self, name: str, first: StoredValue, second: StoredValue, dims: Sequence[int]) -> StoredValue:
        """Add the op `broadcasting_NAME_v1`, whose result has the element type of the first operand."""
        type_ = stored_tensor(dims, element(first))
        return self.composite(f"broadcasting_{name}_v1", [first, second], type_)

    def primitive(self, name: str, operands: Sequence[StoredValue], type_: StoredEntry) -> StoredValue:
        """Add the op `primitive.NAME_v1` with one result."""
        return self.op(f"primitive.{name}_v1", operands, type_)

    def cast(self, value: StoredValue, element_type: StoredEntry) -> StoredValue:
        """A value in another element type; the value itself if it has the type."""
        if element(value) == element_type:
            return value
        return self.primitive("cast", [value], stored_tensor(stored_dims_of(value), element_type))

    def constant(self, numbers: Sequence[complex], dims: Sequence[int], element_type: StoredEntry) -> StoredValue:
        """A constant of the given numbers in the order of its elements."""
        name = element_name_of(element_type)
        try:
            elements, _ = to_numpy(list(numbers), name)
        except OverflowError as error:
            raise UnsupportedInAssetError(f"an asset cannot hold sizes that do not fit {name}") from error
        made = Op("primitive.constant_v1", [], [StoredValue(stored_tensor(dims, element_type))], {}, [], self.location)
        made.properties["value"] = stored_elements(dense(elements, tensor(dims, ir_element(name))))
        self.block.ops.append(made)
        return made.results[0]

    def small_integer(self, number: int, element_type: StoredEntry) -> StoredValue:
        """A list of one small integer, in any element type that holds it."""
        name = element_name_of(element_type)
        if is_integer(name) or name in ("f16", "f32", "f64"):
            return self.constant([number], (1,), element_type)
        return self.cast(self.vector([number]), element_type)

    def scalar(self, number: complex, element_type: StoredEntry) -> StoredValue:
        """A constant without dimensions."""
        return self.constant([number], (), element_type)

    def vector(self, numbers: Sequence[int], element_type: StoredEntry = SI32) -> StoredValue:
        """A constant list of integers."""
        return self.constant(numbers, (len(numbers),), element_type)

    def reshape(self, value: StoredValue, shape: StoredValue, dims: Sequence[int]) -> StoredValue:
        """A value with other dimensions."""
        return self.op("primitive.reshape_v2", [value, shape], stored_tensor(dims, element(value)))

    def shape(self, value: StoredValue) -> StoredValue:
        """The dimensions of a value as a list; a constant if all are known."""
        dims = stored_dims_of(value)
        return self.vector(dims, UI32) if OPEN_DIMENSION not in dims else self.shape_at_run_time(value)

    def shape_at_run_time(self, value: StoredValue) -> StoredValue:
        """The dimensions of a value as a list that is read at run time."""
        return self.op("primitive.get_shape_v2", [value], stored_tensor((len(stored_dims_of(value)),), UI32))

    def common_shape(self, first: StoredValue, second: StoredValue) -> StoredValue:
        """The dimensions of two values that are broadcast together, as a list."""
        dims = broadcast_dims(stored_dims_of(first), stored_dims_of(second))
        if OPEN_DIMENSION not in dims:
            return self.vector(dims, UI32)
        shapes = [self.shape(value) for value in (first, second) if stored_dims_of(value)]
        if len(shapes) == 1:
            return shapes[0]
        return self.primitive("broadcast_shapes", shapes, stored_tensor((len(dims),), UI32))

    def broadcast_to(self, value: StoredValue, shape: StoredValue, dims: Sequence[int]) -> StoredValue:
        """A value that is repeated to a shape; the value itself if it is known to have the shape."""
        if stored_dims_of(value) == tuple(dims) and OPEN_DIMENSION not in dims:
            return value
        return self.primitive("broadcast_to", [value, shape], stored_tensor(dims, element(value)))


Decomposition = Callable[[Body, Sequence[StoredValue], Sequence[StoredEntry]], Sequence[StoredValue]]
"""Builds the region of an op from its arguments and the types of the op's results; returns the region's results."""

_TABLE: dict[str, Decomposition] = {}
"""The decompositions by the stored name of the op."""


def decomposes(*names: str) -> Callable[[Decomposition], Decomposition]:
    """Declare the decomposition of ops."""

    def declare(build: Decomposition) -> Decomposition:
        _TABLE.update(dict.fromkeys(names, build))
        return build

    return declare


def has_decomposition(name: str) -> bool:
    """Whether an op is stored with a decomposition."""
    return name in _TABLE


def decomposition_region(
    name: str, operands: Sequence[StoredEntry], results: Sequence[StoredEntry], location: StoredEntry
) -> Region:
    """The region of an op that has one.

    Args:
        name: the stored name of the op.
        operands, results: the stored types of its operands and results.
        location: the op's.
    """
    body = Body(operands, location)
    return finished(body, _TABLE[name](body, body.block.arguments, results))


def finished(body: Body, results: Sequence[StoredValue]) -> Region:
    """The finished region: it yields the results, and dead ops are removed."""
    needed, kept = set(results), []
    for op in reversed(body.block.ops):
        if not needed.isdisjoint(op.results):
            needed.update(op.operands)
            kept.append(op)
    end = Op("dataflow.yield_v1", list(results), [], {}, [], body.location)
    body.block.ops = [*reversed(kept), end]
    return [body.block]

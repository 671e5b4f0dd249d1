"""Which dynamic dimensions are equal, derived from the ops of the `aten` dialect.

In types a dynamic dimension is `?`. This module traces it back through the ops that keep it, to an argument of the
graph or to the size that a view was given. A size that cannot be traced is a new unknown, different from all others.
So two extents that compare equal are equal on every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.ir.aten import AtenOp
from patcomp.ir.constants import constant_values
from patcomp.ir.region import RegionOp
from patcomp.ir.traits import Elementwise, SameShape
from patcomp.ir.value import Value
from patcomp.ir.xdsl import ArrayAttr, Block, DictionaryAttr, Operation, OpResult, SSAValue, StringAttr, UnitAttr

MASK = "patcomp.mask"
"""The argument attribute of an integer input whose example contains only zeros and ones."""

SIZES = "patcomp.sizes"
"""The argument attribute with the names of an argument's dynamic dimensions, which several arguments may share."""

MAY_BE_EMPTY = "patcomp.may_be_empty"
"""The attribute of a graph in which a size may be 0 although no input's size is."""

_END = 2**31 - 1
"""The smallest end of a slice that keeps the whole axis."""

Monomial = frozenset[tuple[Hashable, int]]
"""A product of unknowns, each with its power."""


@dataclass(frozen=True)
class Unknown:
    """A dynamic size, as a polynomial of unknowns; equal polynomials have the same value on every run."""

    terms: frozenset[tuple[Monomial, int]]

    @property
    def names(self) -> frozenset[Hashable]:
        """The unknowns."""
        return frozenset(name for monomial, _ in self.terms for name, _ in monomial)

    @property
    def constant(self) -> int:
        """The number that is added to the other terms."""
        return dict(self.terms).get(frozenset(), 0)

    def __add__(self, other: Extent) -> Extent:
        return _polynomial([*self.terms, *_terms(other)])

    def __mul__(self, other: Extent) -> Extent:
        return _polynomial(
            (_joined(left, right), a * b) for left, a in self.terms for right, b in _terms(other)
        )  # fmt: skip

    __radd__, __rmul__ = __add__, __mul__


Extent = int | Unknown


def _terms(extent: Extent) -> Iterable[tuple[Monomial, int]]:
    return extent.terms if isinstance(extent, Unknown) else ((frozenset(), extent),)


def _joined(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for unknown, power in right:
        powers[unknown] = powers.get(unknown, 0) + power
    return frozenset(powers.items())


def _polynomial(terms: Iterable[tuple[Monomial, int]]) -> Extent:
    sums: dict[Monomial, int] = {}
    for monomial, factor in terms:
        sums[monomial] = sums.get(monomial, 0) + factor
    left = {monomial: factor for monomial, factor in sums.items() if factor}
    return sum(left.values()) if left.keys() <= {frozenset()} else Unknown(frozenset(left.items()))


def unknown(name: Hashable) -> Unknown:
    """The unknown of a name."""
    return Unknown(frozenset({(frozenset({(name, 1)}), 1)}))


def substituted(extent: Extent, values: Mapping[Hashable, Extent]) -> Extent:
    """A polynomial with other polynomials in place of some unknowns."""
    total: Extent = 0
    for monomial, factor in _terms(extent):
        powers = [values.get(name, unknown(name)) for name, power in monomial for _ in range(power)]
        total = total + math.prod(powers, start=factor)
    return total


# ---- arguments -----------------------------------------------------------------------------------


def mark_sizes(graph: Operation, sizes: Sequence[Sequence[str]]) -> None:
    """Mark the dimensions of a graph's arguments that have the same size.

    Args:
        sizes: for each argument the name of each of its dynamic dimensions, empty for a static one; none for an
            argument that is no tensor.
    """
    names = [name for argument in sizes for name in argument if name]
    entries = []
    for entry, argument in zip(argument_notes(graph), sizes, strict=True):
        shared = [name if names.count(name) > 1 else "" for name in argument]
        attribute = {SIZES: ArrayAttr([StringAttr(name) for name in shared])} if any(shared) else {}
        entries.append(DictionaryAttr({**entry, **attribute}))
    if entries:
        graph.properties["arg_attrs"] = ArrayAttr(entries)


def mark_masks(graph: Operation, masks: Sequence[bool]) -> None:
    """Mark the arguments of a graph that are masks."""
    if any(masks):
        pairs = zip(argument_notes(graph), masks, strict=True)
        entries = [DictionaryAttr({**entry, **({MASK: UnitAttr()} if is_mask else {})}) for entry, is_mask in pairs]
        graph.properties["arg_attrs"] = ArrayAttr(entries)


def drop_notes(graph: Operation) -> None:
    """Remove the marks on arguments: only the stages read them, and the runtime does not know them."""
    entries = [
        {key: value for key, value in entry.items() if key not in (SIZES, MASK)} for entry in argument_notes(graph)
    ]
    if any(entries):
        graph.properties["arg_attrs"] = ArrayAttr([DictionaryAttr(entry) for entry in entries])


def argument_notes(graph: Operation) -> list[Mapping[str, Any]]:
    """The attributes of each argument of a graph."""
    array = graph.properties.get("arg_attrs")
    if isinstance(array, ArrayAttr):
        return [entry.data for entry in array.data]  # type: ignore[attr-defined]
    return [{} for _ in graph.regions[0].block.args]


# ---- sizes of tensors ----------------------------------------------------------------------------


def extents(x: Value) -> list[Extent]:
    """The size of each dimension."""
    return [extent(x, axis) for axis in range(x.rank)]


def extent(x: Value, axis: int) -> Extent:
    """The size of one dimension, counted from either end."""
    axis %= x.rank
    while (known := x.shape[axis]) is None:
        found = _before(x.ssa, axis)
        if not isinstance(found, tuple):
            return found
        x, axis = found
        axis %= x.rank
    return known


def extent_of(size: Any) -> Extent:
    """The extent of a size argument: a number, or a 0-d value computed from numbers and dimensions."""
    if not isinstance(size, Value):
        return size if size >= 0 else unknown(object())  # the other sizes determine a size of -1
    if (constant := constant_values(size.ssa)) is not None:
        return int(constant) if constant.shape == () else unknown(size.ssa)
    op = size.ssa.owner
    if isinstance(op, AtenOp):
        given = op.arguments_by_name()
        if op.name == "aten.sym_size.int":
            return extent(given["self"], given["dim"])
        if op.name == "aten.mul.Tensor":
            return extent_of(given["self"]) * extent_of(given["other"])
        if op.name == "aten.add.Tensor" and given["alpha"] == 1:
            return extent_of(given["self"]) + extent_of(given["other"])
    return unknown(size.ssa)


def extents_of(sizes: Iterable[Any]) -> list[Extent]:
    """The extents of the size arguments of an op."""
    return list(map(extent_of, sizes))


def elements(sizes: Iterable[Extent]) -> Extent:
    """How many elements a shape has."""
    return math.prod(sizes)  # type: ignore[arg-type, return-value]


Before = tuple[Value, int] | Extent | None
"""A dimension of another value that equals this dimension, or this dimension's extent."""


def _before(x: SSAValue, axis: int) -> tuple[Value, int] | Extent:
    """The source of a dynamic dimension."""
    owner = x.owner
    if isinstance(owner, Block):
        parent = owner.parent_op()
        index = x.index  # type: ignore[attr-defined]
        if isinstance(parent, RegionOp):
            return Value(parent.operands[index]), axis
        if parent is not None and parent.name == "coreai.graph":
            names = argument_notes(parent)[index].get(SIZES)
            if isinstance(names, ArrayAttr) and (name := names.data[axis].data):  # type: ignore[attr-defined]
                return unknown(name)
    elif isinstance(owner, AtenOp) and isinstance(x, OpResult):
        same = owner.has_trait(Elementwise) or owner.has_trait(SameShape)
        before = _elementwise if same else SOURCES.get(owner.FACTS.sizes)
        found = None if before is None else before(owner.arguments_by_name(), Value(x), axis)
        if found is not None:
            return found
    return unknown((x, axis))


_Before = Callable[[Mapping[str, Any], Value, int], Before]


def _elementwise(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    """A dimension of broadcast operands; export guarantees that dynamic dimensions of operands are equal."""
    if result.ssa.index:  # type: ignore[attr-defined]
        return None  # a statistic of a norm
    for operand in given.values():
        place = axis - result.rank
        if isinstance(operand, Value) and operand.rank >= -place and operand.shape[place] is None:
            return operand, place
    return None


def _sized(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    size = given["size"] if "size" in given else given["shape"]
    if not isinstance(size[axis], int):
        return extent_of(size[axis])
    if size[axis] == -1 and "implicit" in given:
        return given["self"], axis - result.rank
    return None


def _repeated(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    x, place = given["self"], axis - result.rank
    return (extent(x, place) if x.rank >= -place else 1) * extent_of(given["repeats"][axis])


def _counted(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    return extent_of(given["end"]) if (given["start"], given["step"]) == (0, 1) else None


def _permuted(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    order = list(range(result.rank))
    if "dims" in given:
        order = given["dims"]
    else:
        first, second = given.get("dim0", 0), given.get("dim1", -1)
        order[first], order[second] = order[second], order[first]
    return given["self"], order[axis]


def _unsqueezed(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    return given["self"], axis - (axis > given["dim"] % result.rank)


def _without(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    x = given["self"]
    return None if x.rank == result.rank else (x, axis + (axis >= given["dim"] % x.rank))


def _along(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    x = given["self"]
    if axis != given["dim"] % result.rank:
        return x, axis
    if "repeats" in given:
        return extent(x, axis) * extent_of(given["repeats"])
    if "start" in given and given["start"] in (None, 0) and given["step"] == 1:
        end = given["end"]
        return (x, axis) if end is None or (isinstance(end, int) and end >= _END) else None
    return None


def _joined_along(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    parts = [part for part in given["tensors"] if part.rank == result.rank]
    if axis == given["dim"] % result.rank:
        return sum((extent(part, axis) for part in parts), 0)
    return parts[0], axis


def _reduced(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    return (given["self"], axis) if given["keepdim"] else None


def _product(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    left, right = [value for name, value in given.items() if name not in ("bias", "beta", "alpha")][-2:]
    if "weight" in given:
        left, right = given["input"], given["weight"]
        return (left, axis) if axis < result.rank - 1 else (right, 0)
    if left.rank < 2 or right.rank < 2:
        return None
    place = axis - result.rank
    if place == -1:
        return right, place
    if place == -2 or (left.rank >= -place and left.shape[place] is None):
        return left, place
    return right, place


def _looked_up(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    return (given["indices"], axis) if axis < result.rank - 1 else None


def _convolved(given: Mapping[str, Any], result: Value, axis: int) -> Before:
    return (given["input"], 0) if axis == 0 and given["input"].rank == result.rank else None


SOURCES: Mapping[str, _Before] = {
    "given": _sized,
    "repeated": _repeated,
    "counted": _counted,
    "permuted": _permuted,
    "unsqueezed": _unsqueezed,
    "without": _without,
    "along": _along,
    "joined": _joined_along,
    "reduced": _reduced,
    "product": _product,
    "looked_up": _looked_up,
    "convolved": _convolved,
}
"""How to find the source of a dimension, by `OpFacts.sizes`; elementwise ops and those that keep a shape need none."""

"""Masks of the triangles of a matrix, and identity matrices, as PyTorch computes them from positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from patcomp.authoring import AtenSource
from patcomp.ir.value import Value
from patcomp.patterns import ANY, Attr, Const, any_of, pattern
from patterns_catalog.views import arguments_of


@dataclass(frozen=True)
class Triangle:
    """A square mask that is true where column - row is at least, or at most, a number."""

    size: int
    is_upper: bool
    diagonal: int


def _positions(a: AtenSource, size: Attr) -> Any:
    return a.op("arange.start_step", 0, size, 1, dtype=ANY)


_LARGEST = 127
"""Positions up to this one are exact in all types of integers."""


@pattern
def _compared(a: AtenSource, size: Attr, diagonal: Const) -> Any:
    "column - row >= diagonal, or <= diagonal: `triu` and `tril`"
    columns, rows = (a.unsqueeze(_positions(a, size), dim=dim) for dim in (-2, -1))
    distance = columns - rows
    wide = distance.dtype.is_in("si32", "si64")
    return any_of(a.ge(distance, diagonal), a.le(distance, diagonal)), [diagonal.rank == 0, wide]


@pattern
def _all_of(a: AtenSource, size: Attr) -> Any:
    "a mask that is true everywhere"
    return a.full(size=[size, size], fill_value=True, dtype=ANY), []


@pattern
def _identity(a: AtenSource, size: Attr) -> Any:
    "row == column, as numbers"
    same = a.eq(a.unsqueeze(_positions(a, size), dim=-1), _positions(a, size))
    return a._to_copy(same, dtype=ANY), [size <= _LARGEST]


def triangle_of(mask: Value) -> Triangle | None:
    """The triangle in which a square mask is true; None if it is no such mask."""
    if (inverted := arguments_of(mask, "bitwise_not", "logical_not")) is not None:
        other = triangle_of(inverted["self"])
        if other is None:
            return None
        return Triangle(other.size, not other.is_upper, other.diagonal + (-1 if other.is_upper else 1))
    if (both := arguments_of(mask, "logical_and")) is not None:
        masks = both["self"], both["other"]
        rest = [x for x in masks if _all_of.match(x) is None]
        return triangle_of(rest[0]) if len(rest) == 1 and rest[0].type == mask.type else None
    match = _compared.match(mask)
    if match is None or mask.rank != 2:
        return None
    return Triangle(match["size"], match.root.name == "aten.ge.Tensor", int(match["diagonal"].constant))


def is_identity(matrix: Value) -> bool:
    """Whether a value is an identity matrix."""
    return _identity.match(matrix) is not None

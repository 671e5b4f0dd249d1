"""Indices of a palette for the whole weight, found by k-means: `pal1`, `pal2`, `pal3`, `pal4`, `pal6`, `pal8`.

`pal4_group16` has a palette for each 16 output channels; in `pal4_vector2` an index stands for two elements, of
neighbouring output channels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from patcomp.compression.gptq import Nearest, compensate
from patcomp.compression.k_means import palette, vector_palette
from patcomp.compression.scheme import (
    Layout,
    Scheme,
    Stored,
    packed_bytes,
    scheme_name,
    sizes,
    unpacking_of,
)
from patcomp.ir import coreai
from patcomp.ir.mapped import mapped
from patcomp.ir.parts import in_parts
from patcomp.ir.types import BIT_WIDTHS
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation

_BITS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Indices(Stored):
    """Indices and the tables that they choose from: blocks..., entries, elements of an entry.

    The elements of an entry follow each other along `axis`.
    """

    values: np.ndarray
    tables: np.ndarray
    axis: int
    bits: int

    @property
    def size(self) -> int:
        return packed_bytes(self.values, self.bits) + self.tables.nbytes

    @property
    def shape(self) -> tuple[int, ...]:
        vector = self.tables.shape[-1]
        return tuple(size * vector if axis == self.axis else size for axis, size in enumerate(self.values.shape))

    def parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        vector = self.tables.shape[-1] if self.axis == 0 else 1
        for place, blocks in in_parts(self.values.shape, 0, len(self.tables)):
            made = self._floats(self.values[place], self.tables[blocks])
            yield slice(place.start * vector, place.stop * vector), made

    def _floats(self, values: np.ndarray, tables: np.ndarray) -> np.ndarray:
        block = []
        for axis, size in enumerate(values.shape):
            number = np.arange(size) // (size // tables.shape[axis])
            block.append(number.reshape([-1 if dim == axis else 1 for dim in range(values.ndim)]))
        entries = np.moveaxis(tables[(*block, values)], -1, self.axis + 1)
        shape = list(values.shape)
        shape[self.axis] *= tables.shape[-1]
        return entries.reshape(shape).astype(np.float32)

    def reshaped(self, shape: tuple[int, ...]) -> Self:
        *blocks, entries, size = self.tables.shape
        tables = self.tables.reshape(*blocks, *[1] * (len(shape) - len(blocks)), entries, size)
        return replace(self, values=self.values.reshape(shape), tables=tables)

    def unpacked(self, element: str, key: str) -> Value:
        table = coreai.constant(self.tables, element, name=f"{key}.palette")
        return coreai.lut_to_dense(coreai.constant(self.values, f"ui{self.bits}", name=key), table, self.axis)


@dataclass(frozen=True)
class Palette(Scheme):
    """Indices of palettes.

    Attributes:
        bits: bits of an index.
        group: channels that share a palette; 0 for all. If the group size does not divide the number of channels,
            one group has all channels.
        vector: elements for which an index stands. If the vector size does not
            divide the number of channels, a vector is one element.
    """

    bits: int
    group: int = 0
    vector: int = 1

    spelling = re.compile(r"pal(?P<bits>\d+)(?:_(?P<by>block|group|vector)(?P<size>\d+))?")
    examples = "pal1 to pal8 (palettes), pal4_group16 (for groups of channels), pal4_vector2 (of pairs)"
    unpacking = ("coreai.lut_to_dense",)

    @classmethod
    def of(cls, name: str, match: re.Match[str]) -> Palette:
        bits, size = int(match["bits"]), int(match["size"] or 0)
        if bits not in _BITS:
            raise ValueError(f"{name!r}: palettes have {', '.join(map(str, _BITS))} bits, not {bits}")
        if match["by"] == "block":
            raise ValueError(f"{name!r}: palettes go by groups (pal4_group16) or have vectors (pal4_vector2)")
        if match["by"] and not size:
            raise ValueError(f"{name!r}: a {match['by']} needs elements")
        return cls(name, bits, vector=size) if match["by"] == "vector" else cls(name, bits, size)

    def store(self, weight: np.ndarray, layout: Layout, round_to: np.dtype) -> Indices:
        axis = layout.channels if layout.kept else 0
        if self.vector > 1 and weight.shape[axis] % self.vector == 0:
            return self._vectors(weight, axis, round_to)
        groups = 1
        if self.group and layout.kept and weight.shape[axis] % self.group == 0:
            groups = weight.shape[axis] // self.group
        values, tables = mapped(weight.shape, np.dtype(np.uint8)), []
        for chosen, part in zip(np.split(values, groups, axis), np.split(weight, groups, axis), strict=True):
            table, indices = palette(part.reshape(-1).astype(np.float32), self.bits, round_to)
            chosen[...] = indices.reshape(part.shape)
            tables.append(table)
        blocks = [groups if dim == axis else 1 for dim in range(weight.ndim)]
        return Indices(values, np.stack(tables).reshape([*blocks, -1, 1]), axis, self.bits)

    def fitting(self, shape: Sequence[int], layout: Layout) -> Palette:
        fits = not shape[layout.channels] % (self.group or self.vector)
        return self if fits else Palette(f"pal{self.bits}", self.bits)

    @property
    def goes_by_inputs(self) -> bool:
        return self.vector == 1

    def store_for(
        self, weight: np.ndarray, layout: Layout, round_to: np.dtype, moments: Sequence[np.ndarray]
    ) -> Indices:
        """The palettes are those of `store`; entries of vectors, and their indices, too."""
        made = self.store(weight, layout, round_to)
        if made.tables.shape[-1] > 1:
            return made
        tables = made.tables.reshape(-1, made.tables.shape[-2])
        indices = _compensated(layout.matrices(weight), tables, moments)
        return replace(made, values=layout.weight(indices, weight.shape))

    def _vectors(self, weight: np.ndarray, axis: int, round_to: np.dtype) -> Indices:
        """Indices of vectors along an axis, with one palette for the whole weight."""
        shape = list(weight.shape)
        shape[axis : axis + 1] = [weight.shape[axis] // self.vector, self.vector]
        parts = np.moveaxis(weight.reshape(shape), axis + 1, -1)
        table, indices = vector_palette(parts.reshape(-1, self.vector).astype(np.float32), self.bits, round_to)
        tables = table.reshape([1] * weight.ndim + [*table.shape])
        return Indices(indices.reshape(parts.shape[:-1]), tables, axis, self.bits)

    @classmethod
    def name_of(cls, op: Operation) -> str:
        """A table may be compressed itself."""
        result, data, tables = map(Value, (op.results[0], *op.operands[:2]))
        *blocks, _, vector = tables.static_shape
        groups = sizes("group", result.static_shape, blocks)
        name = f"pal{BIT_WIDTHS[data.dtype]}{groups}{f'_vector{vector}' * (vector > 1)}"
        inner = unpacking_of(tables.ssa)
        return f"{name}, table {scheme_name(inner)}" if inner else name


def _compensated(matrices: np.ndarray, tables: np.ndarray, moments: Sequence[np.ndarray]) -> np.ndarray:
    """The indices of matrices, (matrices, outputs, inputs), whose groups of outputs have a table each."""
    indices = np.empty(matrices.shape, np.uint8)
    entries = tables.astype(np.float32)
    middles = (entries[:, 1:] + entries[:, :-1]) / 2
    for number, matrix in enumerate(matrices):

        def nearest(place: int, column: np.ndarray, number: int = number) -> np.ndarray:
            grouped = column.reshape(len(entries), -1)
            found = (grouped[:, :, None] > middles[:, None]).sum(axis=-1)
            indices[number, :, place] = found.reshape(-1)
            return np.take_along_axis(entries, found, axis=1).reshape(-1)

        def start(first: int, columns: np.ndarray, nearest: Nearest = nearest) -> Nearest:
            return nearest

        compensate(matrix, moments[number], matrix.shape[1], start)
    return indices

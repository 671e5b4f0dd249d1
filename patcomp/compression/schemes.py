"""How a weight is stored: as integers with scales, as indices of a palette, or as the elements that are not zero.

A scheme has a name that says all about it:

* `w8`, `w4`, `w2`: integers, rounded to the nearest, with one scale for each output channel; `w4_block32` has one scale
  for 32 elements of a channel.
* `pal1`, `pal2`, `pal3`, `pal4`, `pal6`, `pal8`: indices of a palette for the whole weight, found by k-means;
  `pal4_group16` has a palette for each 16 output channels; in `pal4_vector2` an index stands for two elements, of
  neighbouring output channels.
* `sparse50`: the larger half of the elements, and a mask; `sparse50_w8` and `sparse50_pal4` store those elements as
  integers or indices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from patcomp.compression.palettes import palette, vector_palette

_NAME = re.compile(
    r"(?:sparse(?P<sparse>\d+))?_?(?:(?P<kind>w|pal)(?P<bits>\d+)(?:_(?P<by>block|group|vector)(?P<size>\d+))?)?"
)
_BITS = {"w": (2, 4, 8), "pal": (1, 2, 3, 4, 6, 8)}
PRESETS = ("w8", "w4_block32", "pal4_group16", "pal6")
"""The schemes that most people want."""


@dataclass(frozen=True)
class Layout:
    """Which axes of a weight count its output channels, the last of them in each matrix, and which is summed over."""

    kept: tuple[int, ...]
    summed: int

    @property
    def channels(self) -> int:
        return self.kept[-1]


@dataclass(frozen=True)
class Scheme:
    """A way to store a weight.

    Attributes:
        name: as in the grammar of this module.
        kind: `"w"` for integers, `"pal"` for a palette, `""` for the floats themselves.
        bits: bits of an integer or index.
        size: elements of a block, or channels of a group; 0 for a whole channel, or a whole weight.
        vector: elements for which an index stands.
        sparse: the share of elements that become zero, in percent.
    """

    name: str
    kind: str
    bits: int
    size: int = 0
    vector: int = 1
    sparse: int = 0

    @classmethod
    def parse(cls, name: str) -> Scheme:
        """The scheme of a name.

        Raises:
            ValueError: the name is not in the grammar; the message has the grammar.
        """
        match = _NAME.fullmatch(name) if name else None
        if match is None or name.startswith("_") or name.endswith("_"):
            raise ValueError(f"{name!r} is no compression scheme; {_GRAMMAR}")
        kind, bits, size, sparse = (
            match["kind"] or "",
            int(match["bits"] or 0),
            int(match["size"] or 0),
            match["sparse"],
        )
        if kind and bits not in _BITS[kind]:
            listed = ", ".join(map(str, _BITS[kind]))
            raise ValueError(f"{name!r}: {'integers' if kind == 'w' else 'palettes'} have {listed} bits, not {bits}")
        if match["by"] and (match["by"] == "block") != (kind == "w"):
            raise ValueError(
                f"{name!r}: integers are scaled in blocks (w4_block32), palettes go by groups (pal4_group16) or have "
                "vectors (pal4_vector2)"
            )
        if match["by"] and (size == 0 or sparse):
            raise ValueError(f"{name!r}: {'a sparse weight has no blocks' if sparse else 'a block needs elements'}")
        if sparse and not 0 < int(sparse) < 100:
            raise ValueError(f"{name!r}: between 1 and 99 percent of the elements can become zero")
        if match["by"] == "vector":
            return cls(name, kind, bits, vector=size)
        return cls(name, kind, bits, size, sparse=int(sparse or 0))

    @cached_property
    def element(self) -> str:
        """The element type of the integers or indices."""
        return f"si{self.bits}" if self.kind == "w" else f"ui{self.bits}"


_GRAMMAR = (
    "schemes are w8, w4, w2 (integers), w4_block32 (with scales for blocks), pal1 to pal8 (palettes), pal4_group16 "
    "(for groups of channels), pal4_vector2 (of pairs), sparse50, sparse50_w8 and sparse50_pal4"
)


@dataclass(frozen=True)
class Integers:
    """Integers and their scales, of the rank of the weight; `integers * scales` is the weight."""

    values: np.ndarray
    scales: np.ndarray

    def floats(self) -> np.ndarray:
        return self.values.astype(np.float32) * _spread(self.scales, self.values.shape)


@dataclass(frozen=True)
class Indices:
    """Indices and the tables that they choose from: blocks..., entries, elements of an entry.

    The elements of an entry follow each other along `axis`.
    """

    values: np.ndarray
    tables: np.ndarray
    axis: int

    def floats(self) -> np.ndarray:
        block = []
        for axis, size in enumerate(self.values.shape):
            number = np.arange(size) // (size // self.tables.shape[axis])
            block.append(number.reshape([-1 if dim == axis else 1 for dim in range(self.values.ndim)]))
        entries = np.moveaxis(self.tables[(*block, self.values)], -1, self.axis + 1)
        shape = list(self.values.shape)
        shape[self.axis] *= self.tables.shape[-1]
        return entries.reshape(shape).astype(np.float32)


Stored = Integers | Indices | np.ndarray
"""What stands for floats; an array stands for itself."""


@dataclass(frozen=True)
class Sparse:
    """The places of the elements that are left, and what stands for them, in order."""

    mask: np.ndarray
    values: Stored

    def floats(self) -> np.ndarray:
        dense = np.zeros(self.mask.shape, np.float32)
        dense[self.mask] = floats_of(self.values)
        return dense


def floats_of(stored: Stored | Sparse) -> np.ndarray:
    """The floats, in float32, that the program will compute with."""
    return stored.astype(np.float32) if isinstance(stored, np.ndarray) else stored.floats()


def stored_bytes(stored: Stored | Sparse, scheme: Scheme) -> int:
    """The bytes that stand for a weight."""
    if isinstance(stored, Sparse):
        return (stored.mask.size + 7) // 8 + stored_bytes(stored.values, scheme)
    if isinstance(stored, Integers):
        return (stored.values.size * scheme.bits + 7) // 8 + stored.scales.nbytes
    if isinstance(stored, Indices):
        return (stored.values.size * scheme.bits + 7) // 8 + stored.tables.nbytes
    return stored.nbytes


def compressed(weight: np.ndarray, layout: Layout, scheme: Scheme, round_to: np.dtype) -> Stored | Sparse:
    """What stands for a weight.

    Args:
        weight: finite floats.
        layout: which axes are which.
        scheme: how to store it. A block that does not divide a channel is a whole channel, a group that does not divide
            the channels is the whole weight, and a vector that does not divide them is one element.
        round_to: the dtype of scales and palettes.
    """
    weight = weight.astype(np.float32, copy=False)
    if scheme.sparse:
        kept = max(1, round(weight.size * (100 - scheme.sparse) / 100))
        order = np.argsort(-np.abs(weight).reshape(-1), kind="stable")[:kept]
        mask = np.zeros(weight.shape, np.bool_)
        mask.reshape(-1)[order] = True
        values = weight[mask]
        return Sparse(mask, _dense(values, Layout((), 0), scheme, round_to) if scheme.kind else values.astype(round_to))
    return _dense(weight, layout, scheme, round_to)


def _dense(weight: np.ndarray, layout: Layout, scheme: Scheme, round_to: np.dtype) -> Stored:
    if scheme.kind == "w":
        return _integers(weight, layout, scheme, round_to)
    axis = layout.channels if layout.kept else 0
    if scheme.vector > 1 and weight.shape[axis] % scheme.vector == 0:
        return _vectors(weight, axis, scheme, round_to)
    groups = 1
    if scheme.size and layout.kept and weight.shape[axis] % scheme.size == 0:
        groups = weight.shape[axis] // scheme.size
    values, tables = np.empty(weight.shape, np.uint8), []
    for chosen, part in zip(np.split(values, groups, axis), np.split(weight, groups, axis), strict=True):
        table, indices = palette(part.reshape(-1), scheme.bits, round_to)
        chosen[...] = indices.reshape(part.shape)
        tables.append(table)
    blocks = [groups if dim == axis else 1 for dim in range(weight.ndim)]
    return Indices(values, np.stack(tables).reshape([*blocks, -1, 1]), axis)


def _vectors(weight: np.ndarray, axis: int, scheme: Scheme, round_to: np.dtype) -> Indices:
    """Indices of vectors along an axis, with one palette for the whole weight."""
    shape = list(weight.shape)
    shape[axis : axis + 1] = [weight.shape[axis] // scheme.vector, scheme.vector]
    parts = np.moveaxis(weight.reshape(shape), axis + 1, -1)
    table, indices = vector_palette(parts.reshape(-1, scheme.vector), scheme.bits, round_to)
    return Indices(indices.reshape(parts.shape[:-1]), table.reshape([1] * weight.ndim + [*table.shape]), axis)


def _integers(weight: np.ndarray, layout: Layout, scheme: Scheme, round_to: np.dtype) -> Integers:
    most = 2 ** (scheme.bits - 1) - 1
    shape = [size if axis in layout.kept else 1 for axis, size in enumerate(weight.shape)]
    if scheme.size and weight.shape[layout.summed] % scheme.size == 0:
        shape[layout.summed] = weight.shape[layout.summed] // scheme.size
    parts = [part for size, blocks in zip(weight.shape, shape, strict=True) for part in (blocks, size // blocks)]
    largest = np.abs(weight).reshape(parts).max(axis=tuple(range(1, len(parts), 2)))
    scales = np.where(largest > 0, largest / most, 1).astype(round_to)
    scales = np.where(scales == 0, np.float32(2.0**-14), scales.astype(np.float32)).astype(round_to)
    wide = _spread(scales, weight.shape)
    return Integers(np.clip(np.rint(weight / wide), -most, most).astype(np.int8), scales)


def _spread(scales: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The scale of each element."""
    wide = scales.astype(np.float32)
    for axis, size in enumerate(shape):
        wide = wide.repeat(size // wide.shape[axis], axis=axis)
    return wide

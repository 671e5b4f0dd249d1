"""Integers with scales: `w8`, `w4`, `w3`, `w2`, one for each output channel; `w4_block32` has one for 32 elements.

Core AI has no integers of 3 bits: they are stored as indices of a table of the eight integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from patcomp.compression.gptq import Nearest, compensate
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
from patcomp.ir.constants import is_constant
from patcomp.ir.mapped import mapped
from patcomp.ir.parts import in_parts
from patcomp.ir.types import BIT_WIDTHS
from patcomp.ir.value import Value
from patcomp.ir.xdsl import DenseIntOrFPElementsAttr, Operation, maker_of

_BITS = (2, 3, 4, 8)
_SEARCHED = (2, 3)
"""With so few bits it pays to use every integer, also the one that has no positive counterpart, and to try scales."""
_FACTORS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5)


@dataclass(frozen=True)
class Scaled(Stored):
    """Integers and their scales, of the rank of the weight; `integers * scales` is the weight."""

    values: np.ndarray
    scales: np.ndarray
    bits: int

    @property
    def size(self) -> int:
        return packed_bytes(self.values, self.bits) + self.scales.nbytes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        for place, blocks in in_parts(self.shape, 0, len(self.scales)):
            values = self.values[place]
            yield place, _spread(self.scales[blocks], values.shape) * values

    def reshaped(self, shape: tuple[int, ...]) -> Self:
        scales = self.scales.reshape(*self.scales.shape, *[1] * (len(shape) - self.scales.ndim))
        return replace(self, values=self.values.reshape(shape), scales=scales)

    def unpacked(self, element: str, key: str) -> Value:
        integers, zeros = f"si{self.bits}", np.zeros(self.scales.shape)
        if self.bits == 3:
            integers = "si8"
            least = -(2 ** (self.bits - 1))
            table = np.arange(least, -least, dtype=np.int8).reshape([1] * self.values.ndim + [-1, 1])
            indices = coreai.constant((self.values - least).astype(np.uint8), "ui3", name=key)
            data = coreai.lut_to_dense(indices, coreai.constant(table, integers, name=f"{key}.integers"), 0)
        else:
            data = coreai.constant(self.values, integers, name=key)
        return coreai.blockwise_shift_scale(
            data, coreai.constant(self.scales, element, name=f"{key}.scales"),
            coreai.constant(zeros, integers), coreai.constant(zeros, element),
        )  # fmt: skip


@dataclass(frozen=True)
class Integers(Scheme):
    """Integers, rounded to the nearest.

    Attributes:
        bits: bits of an integer.
        block: elements of a channel that share a scale; 0 for all. If the block size does not divide a channel, the
            block is the whole channel.
    """

    bits: int
    block: int = 0

    spelling = re.compile(r"w(?P<bits>\d+)(?:_(?P<by>block|group|vector)(?P<size>\d+))?")
    examples = "w8, w4, w3, w2 (integers), w4_block32 (with scales for blocks)"
    unpacking = ("coreai.blockwise_shift_scale", "coreai.dequantize")

    @classmethod
    def of(cls, name: str, match: re.Match[str]) -> Integers:
        bits, block = int(match["bits"]), int(match["size"] or 0)
        if bits not in _BITS:
            raise ValueError(f"{name!r}: integers have {', '.join(map(str, _BITS))} bits, not {bits}")
        if match["by"] and match["by"] != "block":
            raise ValueError(f"{name!r}: integers are scaled in blocks (w4_block32); palettes have groups and vectors")
        if match["by"] and not block:
            raise ValueError(f"{name!r}: a block needs elements")
        return cls(name, bits, block)

    def store(self, weight: np.ndarray, layout: Layout, round_to: np.dtype) -> Scaled:
        shape = [size if axis in layout.kept else 1 for axis, size in enumerate(weight.shape)]
        if self.block and weight.shape[layout.summed] % self.block == 0:
            shape[layout.summed] = weight.shape[layout.summed] // self.block
        made = Scaled(mapped(weight.shape, np.dtype(np.int8)), mapped(tuple(shape), round_to), self.bits)
        axis = layout.kept[0] if layout.kept else None
        places = [slice(None)] if axis is None else [place for place, _ in in_parts(weight.shape, axis, 1)]
        for place in places:
            part = (*[slice(None)] * (axis or 0), place)
            made.values[part], made.scales[part] = self._rounded(
                weight[part].astype(np.float32), made.scales[part].shape, round_to
            )
        return made

    def _rounded(self, weight: np.ndarray, shape: Sequence[int], round_to: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """The integers of some channels, as floats, and their scales, of a shape."""
        parts = [part for size, blocks in zip(weight.shape, shape, strict=True) for part in (blocks, size // blocks)]
        together = [*range(0, len(parts), 2), *range(1, len(parts), 2)]
        scales = self._scales(weight.reshape(parts).transpose(together).reshape([*shape, -1]), round_to)
        return self._integers(weight, _spread(scales, weight.shape)), scales

    def fitting(self, shape: Sequence[int], layout: Layout) -> Integers:
        return Integers(f"w{self.bits}", self.bits) if self.block and shape[layout.summed] % self.block else self

    def for_places(self, count: int) -> Self:
        return replace(self, block=self.block * count)

    @property
    def goes_by_inputs(self) -> bool:
        return True

    def store_for(
        self, weight: np.ndarray, layout: Layout, round_to: np.dtype, moments: Sequence[np.ndarray]
    ) -> Scaled:
        matrices = layout.matrices(weight)
        count, outputs, size = matrices.shape
        block = self.block if self.block and size % self.block == 0 else size
        integers = np.empty(matrices.shape, np.int8)
        scales = np.empty((count, outputs, size // block), round_to)
        for number, matrix in enumerate(matrices):

            def start(first: int, columns: np.ndarray, number: int = number) -> Nearest:
                found = scales[number, :, first // block] = self._scales(columns, round_to)
                scale = found.astype(np.float32)

                def nearest(place: int, column: np.ndarray) -> np.ndarray:
                    rounded = self._integers(column, scale)
                    integers[number, :, place] = rounded
                    return rounded * scale

                return nearest

            compensate(matrix, moments[number], block, start)
        return Scaled(layout.weight(integers, weight.shape), layout.weight(scales, weight.shape), self.bits)

    @property
    def _range(self) -> tuple[int, int]:
        most: int = 2 ** (self.bits - 1) - 1
        return -most - (self.bits in _SEARCHED), most

    def _integers(self, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """The nearest integers, as floats."""
        return np.clip(np.rint(weight / scales), *self._range)

    def _scales(self, blocks: np.ndarray, round_to: np.dtype) -> np.ndarray:
        """The scale of each block; the elements of a block are along the last axis. It is the smallest scale without
        clipping. With few bits, several scales are tried, also negative ones, and the one with the least loss is
        taken."""
        _, most = self._range
        largest = np.abs(blocks).max(axis=-1)
        best = _rounded(largest / most, round_to)
        if self.bits not in _SEARCHED:
            return best
        least = self._lost(blocks, best)
        for factor in (sign * each for each in _FACTORS for sign in (1, -1)):
            tried = _rounded(largest * (factor / (most + 0.5)), round_to)
            lost = self._lost(blocks, tried)
            best = np.where(lost < least, tried, best)
            least = np.minimum(lost, least)
        return best

    def _lost(self, blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
        wide = scales.astype(np.float32)[..., None]
        return np.asarray(((self._integers(blocks, wide) * wide - blocks) ** 2).sum(axis=-1))

    @classmethod
    def name_of(cls, op: Operation) -> str:
        """In other programs also `u4`, unsigned integers, and `f8E4M3FN`, floats."""
        result, data, scales = map(Value, (op.results[0], *op.operands[:2]))
        if (inner := unpacking_of(data.ssa)) and _is_of_integers(inner):
            return "w3" + sizes("block", result.static_shape, scales.static_shape)
        if inner:
            return f"{scheme_name(inner)}, scaled"
        element = data.dtype
        name = {"si": "w", "ui": "u"}[element[:2]] + str(BIT_WIDTHS[element]) if element[1] == "i" else element
        if op.name == "coreai.dequantize":
            return name
        return name + sizes("block", result.static_shape, scales.static_shape)


def _rounded(scales: np.ndarray, round_to: np.dtype) -> np.ndarray:
    """Scales in their type; instead of 0, one that is not."""
    made = scales.astype(round_to)
    return np.where(made == 0, np.array(2.0**-14).astype(round_to), made)


def _is_of_integers(lookup: Operation) -> bool:
    """Whether a lookup stands for the integers of 3 bits."""
    table = maker_of(lookup.operands[1])
    values = table.properties.get("value") if table is not None and is_constant(table) else None
    if not isinstance(values, DenseIntOrFPElementsAttr):
        return False
    return list(values.get_values()) == list(range(-4, 4))


def _spread(scales: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The scale of each element."""
    wide = scales.astype(np.float32)
    for axis, size in enumerate(shape):
        wide = wide.repeat(size // wide.shape[axis], axis=axis)
    return wide

"""Integers with scales: `w8`, `w4`, `w2`, one scale for each output channel; `w4_block32` has one for 32 elements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from patcomp.compression.scheme import (
    Layout,
    Scheme,
    name_of,
    packed_bytes,
    sizes,
    unpacking_of,
)
from patcomp.ir import coreai
from patcomp.ir.types import BIT_WIDTHS
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation

_BITS = (2, 4, 8)


@dataclass(frozen=True)
class Scaled:
    """Integers and their scales, of the rank of the weight; `integers * scales` is the weight."""

    values: np.ndarray
    scales: np.ndarray
    bits: int

    @property
    def size(self) -> int:
        return packed_bytes(self.values, self.bits) + self.scales.nbytes

    def floats(self) -> np.ndarray:
        return self.values.astype(np.float32) * _spread(self.scales, self.values.shape)

    def unpacked(self, element: str, key: str) -> Value:
        integers, zeros = f"si{self.bits}", np.zeros(self.scales.shape)
        return coreai.blockwise_shift_scale(
            coreai.constant(self.values, integers, name=key),
            coreai.constant(self.scales, element, name=f"{key}.scales"),
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
    examples = "w8, w4, w2 (integers), w4_block32 (with scales for blocks)"
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
        most = 2 ** (self.bits - 1) - 1
        shape = [size if axis in layout.kept else 1 for axis, size in enumerate(weight.shape)]
        if self.block and weight.shape[layout.summed] % self.block == 0:
            shape[layout.summed] = weight.shape[layout.summed] // self.block
        parts = [part for size, blocks in zip(weight.shape, shape, strict=True) for part in (blocks, size // blocks)]
        largest = np.abs(weight).reshape(parts).max(axis=tuple(range(1, len(parts), 2)))
        scales = np.where(largest > 0, largest / most, 1).astype(round_to)
        scales = np.where(scales == 0, np.float32(2.0**-14), scales.astype(np.float32)).astype(round_to)
        integers = np.clip(np.rint(weight / _spread(scales, weight.shape)), -most, most).astype(np.int8)
        return Scaled(integers, scales, self.bits)

    @classmethod
    def name_of(cls, op: Operation) -> str:
        """In other programs also `u4`, unsigned integers, and `f8E4M3FN`, floats."""
        result, data, scales = map(Value, (op.results[0], *op.operands[:2]))
        if inner := unpacking_of(data.ssa):
            return f"{name_of(inner)}, scaled"
        element = data.dtype
        name = {"si": "w", "ui": "u"}[element[:2]] + str(BIT_WIDTHS[element]) if element[1] == "i" else element
        if op.name == "coreai.dequantize":
            return name
        return name + sizes("block", result.static_shape, scales.static_shape)


def _spread(scales: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The scale of each element."""
    wide = scales.astype(np.float32)
    for axis, size in enumerate(shape):
        wide = wide.repeat(size // wide.shape[axis], axis=axis)
    return wide

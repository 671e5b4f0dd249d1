"""Sparse weights: `sparse50` stores the larger half of the elements, and a mask.

`sparse50_w8` and `sparse50_pal4` store those elements as integers or indices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from patcomp.compression.scheme import Layout, Scheme, Stored, scheme_name, unpacking_of
from patcomp.ir import coreai
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation


@dataclass(frozen=True)
class Elements(Stored):
    """Floats, which stand for themselves."""

    values: np.ndarray

    @property
    def size(self) -> int:
        return self.values.nbytes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        yield slice(None), self.values.astype(np.float32)

    def reshaped(self, shape: tuple[int, ...]) -> Self:
        return replace(self, values=self.values.reshape(shape))

    def unpacked(self, element: str, key: str) -> Value:
        return coreai.constant(self.values, element, name=key)


@dataclass(frozen=True)
class Masked(Stored):
    """The places of the elements that are left, and their stored values, in order."""

    mask: np.ndarray
    values: Stored

    @property
    def size(self) -> int:
        return (self.mask.size + 7) // 8 + self.values.size

    @property
    def shape(self) -> tuple[int, ...]:
        return self.mask.shape

    def parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        dense = np.zeros(self.shape, np.float32)
        dense[self.mask] = self.values.floats()
        yield slice(None), dense

    def reshaped(self, shape: tuple[int, ...]) -> Self:
        return replace(self, mask=self.mask.reshape(shape))

    def unpacked(self, element: str, key: str) -> Value:
        mask = coreai.constant(self.mask, "ui1", name=f"{key}.mask")
        return coreai.sparse_with_bitmask_to_dense(
            coreai.build_sparse_with_bitmask(self.values.unpacked(element, key), mask)
        )


@dataclass(frozen=True)
class Sparse(Scheme):
    """The elements of largest magnitude.

    Attributes:
        zeros: the share of elements that become zero, in percent.
        inner: how the others are stored; None for floats.
    """

    zeros: int
    inner: Scheme | None = None

    spelling = re.compile(r"sparse(?P<zeros>\d+)(?:_(?P<inner>.+))?")
    examples = "sparse50, sparse50_w8 and sparse50_pal4"
    unpacking = ("coreai.sparse_with_bitmask_to_dense",)

    @classmethod
    def of(cls, name: str, match: re.Match[str]) -> Sparse:
        if not 0 < int(match["zeros"]) < 100:
            raise ValueError(f"{name!r}: between 1 and 99 percent of the elements can become zero")
        if match["inner"] and ("_" in match["inner"] or cls.spelling.fullmatch(match["inner"])):
            raise ValueError(f"{name!r}: a sparse weight has no blocks, groups or vectors, and is sparse once")
        return cls(name, int(match["zeros"]), Scheme.parse(match["inner"]) if match["inner"] else None)

    def store(self, weight: np.ndarray, layout: Layout, round_to: np.dtype) -> Masked:
        kept = max(1, round(weight.size * (100 - self.zeros) / 100))
        order = np.argsort(-np.abs(weight).reshape(-1), kind="stable")[:kept]
        mask = np.zeros(weight.shape, np.bool_)
        mask.reshape(-1)[order] = True
        row = weight[mask].astype(np.float32)
        return Masked(
            mask, self.inner.store(row, Layout((), 0), round_to) if self.inner else Elements(row.astype(round_to))
        )

    @classmethod
    def name_of(cls, op: Operation) -> str:
        values = op.operands[0].owner.operands[0]  # type: ignore[union-attr]
        zeros = 1 - math.prod(Value(values).static_shape) / math.prod(Value(op.results[0]).static_shape)
        inner = unpacking_of(values)
        return f"sparse{100 * zeros:.0f}" + (f"_{scheme_name(inner)}" if inner else "")

"""A scheme says how a weight is stored: its name, the stored values, and the ops that convert them to floats.

Each file of `schemes` has one kind of scheme, and nothing else lists them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Self

import numpy as np

from patcomp.families import classes_in
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, SSAValue, maker_of

PRESETS = ("w8", "w4_block32", "pal4_group16", "pal6")
"""The schemes that most people want."""


class UnknownSchemeError(ValueError):
    """A text is no name of a compression scheme."""


@dataclass(frozen=True)
class Layout:
    """The axes of a weight: `kept` count output channels (the last one inside each matrix), and `summed` is summed
    over."""

    kept: tuple[int, ...]
    summed: int

    @property
    def channels(self) -> int:
        return self.kept[-1]

    def before(self, axes: Mapping[int, int]) -> Layout:
        """This layout on the value before a transpose, or an op that adds axes of size 1.

        Args:
            axes: for axes of the result, the axis of the operand; not for those that were added.
        """
        return Layout(tuple(axes[axis] for axis in self.kept if axis in axes), axes[self.summed])

    def matrices(self, weight: np.ndarray) -> np.ndarray:
        """A weight without other axes as matrices, of shape (matrices, outputs, inputs)."""
        moved = weight.transpose(*self.kept, self.summed)
        return moved.reshape(-1, *moved.shape[-2:])

    def weight(self, matrices: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """The weight of matrices, which may have fewer inputs than its shape says: one for each block."""
        moved = matrices.reshape([*(shape[axis] for axis in self.kept), matrices.shape[-1]])
        return np.ascontiguousarray(moved.transpose(np.argsort([*self.kept, self.summed])))


class Stored(ABC):
    """The stored form of a weight's floats."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many bytes it takes."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the weight."""

    @abstractmethod
    def parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        """The floats, in float32, that the program will compute with, by slices of the first axis."""

    def floats(self) -> np.ndarray:
        """All of them."""
        made = np.empty(self.shape, np.float32)
        for place, part in self.parts():
            made[place] = part
        return made

    @abstractmethod
    def reshaped(self, shape: tuple[int, ...]) -> Self:
        """The same for a weight with more axes, which the last one becomes; the first of them has its blocks."""

    @abstractmethod
    def unpacked(self, element: str, key: str) -> Value:
        """The ops that convert the stored values to floats.

        Args:
            element: the element type of the floats.
            key: the requested name of the weight.
        """


@dataclass(frozen=True)
class Scheme(ABC):
    """A way to store a weight; a class is a kind of them, such as integers.

    Attributes:
        name: says all about it: `w4_block32`.
    """

    name: str

    spelling: ClassVar[re.Pattern[str]]
    """The names of the kind."""
    examples: ClassVar[str]
    """Some of them, for messages."""
    unpacking: ClassVar[tuple[str, ...]]
    """The ops that make floats, in programs from anywhere."""

    @staticmethod
    def parse(name: str) -> Scheme:
        """The scheme of a name.

        Raises:
            UnknownSchemeError: no kind has such a name (the message lists some names of each), or none with such
                numbers; it is a `ValueError`.
        """
        for kind in _kinds():
            if match := kind.spelling.fullmatch(name):
                try:
                    return kind.of(name, match)
                except ValueError as error:
                    raise UnknownSchemeError(str(error)) from None
        raise UnknownSchemeError(
            f"{name!r} is not a compression scheme; the schemes are {', '.join(k.examples for k in _kinds())}"
        )

    @classmethod
    @abstractmethod
    def of(cls, name: str, match: re.Match[str]) -> Self:
        """The scheme of a name that is spelled like one of this kind.

        Raises:
            ValueError: it means none.
        """

    @abstractmethod
    def store(self, weight: np.ndarray, layout: Layout, round_to: np.dtype) -> Stored:
        """What stands for a weight.

        Args:
            weight: finite floats.
            layout: which axes are which; elements without channels are one row, `Layout((), 0)`.
            round_to: the dtype of scales and palettes.
        """

    def store_for(
        self, weight: np.ndarray, layout: Layout, round_to: np.dtype, moments: Sequence[np.ndarray]
    ) -> Stored:
        """Store a weight so that its outputs change least, given the moments of its inputs (`compression.gptq`). A kind
        that does not say how stores the weight as always.

        Args:
            weight, layout, round_to: as for `store`; the layout has all axes.
            moments: for each of the weight's matrices, the second moments of its inputs, of shape (inputs, inputs).
        """
        return self.store(weight, layout, round_to)

    def fitting(self, shape: Sequence[int], layout: Layout) -> Scheme:
        """The same scheme without its blocks, groups or vectors, if these do not divide the shape of the weight."""
        return self

    def for_places(self, count: int) -> Self:
        """The scheme for a weight in which each input stands in several places of a kernel, one after the other."""
        return self

    @property
    def goes_by_inputs(self) -> bool:
        """Whether `store_for` goes by the moments."""
        return False

    @classmethod
    @abstractmethod
    def name_of(cls, op: Operation) -> str:
        """The name of the scheme of one of the ops `unpacking`, as far as a name goes."""


@cache  # of the process, because the files of a folder do not change
def _kinds() -> Sequence[type[Scheme]]:
    """The kinds of schemes, ordered by their files."""
    return classes_in("patcomp.compression.schemes", Scheme)  # type: ignore[type-abstract]


@cache
def _kind_of_op() -> dict[str, type[Scheme]]:
    return {op: kind for kind in _kinds() for op in kind.unpacking}


def is_unpacking(op: Operation) -> bool:
    """Whether an op makes floats of a compressed weight."""
    return op.name in _kind_of_op()


def reads_stored(op: Operation) -> bool:
    """Whether an op reads what is stored of a compressed weight, and not its floats."""
    return is_unpacking(op) or op.name == "coreai.build_sparse_with_bitmask"


def scheme_name(op: Operation) -> str:
    """The name of the scheme of an op that unpacks."""
    return _kind_of_op()[op.name].name_of(op)


def unpacking_of(value: SSAValue) -> Operation | None:
    """The op that unpacks a value, if it is compressed itself."""
    maker = maker_of(value)
    return maker if maker is not None and is_unpacking(maker) else None


def packed_bytes(values: np.ndarray, bits: int) -> int:
    """The bytes that integers or indices of some bits take."""
    return (values.size * bits + 7) // 8


def sizes(word: str, shape: Sequence[int], counts: Sequence[int]) -> str:
    """The size of the parts of each axis that has several, of several elements: `_block32`."""
    found = [str(size // count) for size, count in zip(shape, counts, strict=True) if 1 < count < size]
    return f"_{word}{'x'.join(found)}" if found else ""

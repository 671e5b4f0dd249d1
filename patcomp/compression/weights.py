"""The weights of a program that can be compressed: constants that products, convolutions and lookups read."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from patcomp.compression.scheme import Layout, reads_stored
from patcomp.ir.axes import axes_before
from patcomp.ir.constants import is_constant
from patcomp.ir.module import IRModule, callee, graph_name
from patcomp.ir.types import element_name, static_shape, storage_bytes
from patcomp.ir.xdsl import DenseResourceAttr, Operation, SSAValue, TensorType, Use, ops_inside

_ELEMENTS = ("f32", "f16", "bf16")
WEIGHT_KINDS = ("matmul", "conv", "gather", "gather_mm")
"""The kinds of readers, by which a config may choose."""

WEIGHT_PRODUCTS = ("coreai.batch_matmul", "coreai.decomposable.broadcasting_batch_matmul")
_CONVOLUTIONS = ("coreai.conv2d", "coreai.conv3d", "coreai.conv_transpose2d", "coreai.conv_transpose3d")
_LOOKUPS = ("coreai.gather_nd", "coreai.gather_along_axis")


@dataclass(frozen=True)
class _Reader:
    """An op that reads a weight: its kind, of `WEIGHT_KINDS`, and the layout in which it reads."""

    kind: str
    layout: Layout
    op: Operation


@dataclass(frozen=True)
class Weight:
    """A weight with the constants that name it, one in each graph that reads it.

    Attributes:
        key: the weight's key in the program.
        constants: the ops.
        readers: what reads it, through transposes and calls.
    """

    key: str
    constants: tuple[Operation, ...]
    readers: tuple[_Reader, ...]

    @property
    def name(self) -> str:
        """The weight's name in the model."""
        return weight_name(self.key)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What reads it, of `WEIGHT_KINDS`."""
        return tuple(dict.fromkeys(reader.kind for reader in self.readers))

    @property
    def layout(self) -> Layout:
        """The layout of the first reader. Other readers may have another one; they read the same weight."""
        return self.readers[0].layout

    @property
    def has_one_layout(self) -> bool:
        """Whether all readers sum over the same axis, so that its channels are the same for all of them."""
        return all(reader.layout == self.layout for reader in self.readers)

    @property
    def type(self) -> TensorType[Any]:
        made = self.constants[0].results[0].type
        assert isinstance(made, TensorType)
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        return static_shape(self.type)

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


def weight_name(key: str) -> str:
    """The name in the model of a weight's key, which has `_` in front of a digit."""
    return key[1:] if re.match(r"_\d", key) else key


def weights_of(module: IRModule) -> Iterator[Weight]:
    """The float weights, of rank 2 or more, all of whose readers are of `WEIGHT_KINDS`, in the order of the program."""
    known = Readers.of(module)
    for key, constants in _matrices(module).items():
        if readers := known.common(use for op in constants for use in op.results[0].uses):
            yield Weight(key, tuple(constants), readers)


@dataclass(frozen=True)
class OtherWeight:
    """A float weight that cannot be compressed: one of its readers is not among `WEIGHT_KINDS`."""

    name: str
    shape: tuple[int, ...]
    bytes: int
    readers: tuple[str, ...]
    """The names of these ops."""

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"{self.name} ({shape}, {self.bytes:,} bytes) stays as it is: {', '.join(self.readers)} reads it"


def other_weights(module: IRModule, threshold: int) -> Iterator[OtherWeight]:
    """The float weights of rank 2 or more, and of as many elements as the threshold, that `weights_of` leaves out."""
    known = Readers.of(module)
    for key, constants in _matrices(module).items():
        uses = [use for op in constants for use in op.results[0].uses]
        if any(reads_stored(use.operation) for use in uses):
            continue  # scales and tables of a compressed weight
        readers = tuple(dict.fromkeys(use.operation.name for use in uses if not known.readers(use)))
        type_ = constants[0].results[0].type
        if readers and math.prod(shape := static_shape(type_)) >= threshold:
            assert isinstance(type_, TensorType)
            yield OtherWeight(weight_name(key), shape, storage_bytes(shape, type_.element_type), readers)


def _matrices(module: IRModule) -> dict[str, list[Operation]]:
    """The constants of each float weight of rank 2 or more, by its key."""
    found: dict[str, list[Operation]] = {}
    for op in ops_inside(module.op):
        value = op.properties["value"] if is_constant(op) else None
        if not isinstance(value, DenseResourceAttr) or not isinstance(value.type, TensorType):
            continue
        if element_name(value.type.element_type) in _ELEMENTS and len(static_shape(value.type)) > 1:
            found.setdefault(value.resource_handle.data, []).append(op)
    return found


@dataclass(frozen=True)
class Readers:
    """What reads weights, through transposes and calls."""

    graphs: Mapping[str, Operation]
    experts: Collection[str]
    """The graphs that are the composite `gather_mm`."""

    @classmethod
    def of(cls, module: IRModule) -> Readers:
        """The readers of a program's weights."""
        experts = [symbol for symbol, name in module.composite_names().items() if name == "gather_mm"]
        return cls({graph_name(graph): graph for graph in module.graphs}, experts)

    def readers(self, use: Use) -> tuple[_Reader, ...]:
        """What reads a weight by a use, through transposes and calls; nothing if an op is none of `WEIGHT_KINDS`."""
        op, rank = use.operation, _rank(use.operation.operands[use.index])
        if use.index == 0 and (axes := axes_before(op)) is not None:
            found = self.common(op.results[0].uses)
            if not all({reader.layout.channels, reader.layout.summed} <= axes.keys() for reader in found):
                return ()
            return tuple(replace(reader, layout=reader.layout.before(axes)) for reader in found)
        if op.name == "coreai.invoke" and callee(op) not in self.experts:  # an externalized module with its weights
            return self.common(self.graphs[callee(op)].regions[0].block.args[use.index].uses)
        if op.name in WEIGHT_PRODUCTS and use.index in (0, 1):
            return (_Reader("matmul", _matrix(rank, use.index), op),)
        if op.name in _CONVOLUTIONS and use.index == 1:
            return (_Reader("conv", Layout((1,), 0) if "transpose" in op.name else Layout((0,), 1), op),)
        if op.name in _LOOKUPS and use.index == 0:
            return (_Reader("gather", Layout((0,), rank - 1), op),)
        if op.name == "coreai.invoke" and use.index in (0, 1) and rank > 2:
            return (_Reader("gather_mm", _matrix(rank, use.index), op),)
        return ()

    def common(self, uses: Iterable[Use]) -> tuple[_Reader, ...]:
        """What reads a weight by several uses; nothing if an op is none of `WEIGHT_KINDS`."""
        found = [self.readers(use) for use in uses]
        return tuple(reader for each in found for reader in each) if all(found) else ()


def _matrix(rank: int, index: int) -> Layout:
    """The layout of the left (0) or right (1) matrices of a product."""
    rows, columns, stack = rank - 2, rank - 1, range(rank - 2)
    return Layout((*stack, columns), rows) if index == 1 else Layout((*stack, rows), columns)


def _rank(value: SSAValue) -> int:
    assert isinstance(value.type, TensorType)
    return len(value.type.get_shape())

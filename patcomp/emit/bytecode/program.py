"""An asset's program as Python objects: ops with typed values in blocks of regions, and the weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

StoredEntry = tuple[Any, ...]
"""An attribute or a type: its kind and its fields, `("tensor_v1", (2, 3), ("float32_v1",))`. `kinds.py` lists them."""


@dataclass(eq=False, slots=True)
class StoredValue:
    """A result of an op or an argument of a block."""

    type: StoredEntry


@dataclass(eq=False, slots=True)
class Block:
    """Ops in their order, and the arguments that they may read."""

    arguments: list[StoredValue]
    locations: list[StoredEntry]
    """The location of each argument."""
    ops: list[Op] = field(default_factory=list)


Region = list[Block]


@dataclass(eq=False, slots=True)
class Op:
    """An op of the dialect; its name has no prefix `aicode.`."""

    name: str
    operands: list[StoredValue]
    results: list[StoredValue]
    properties: dict[str, StoredEntry]
    regions: list[Region]
    location: StoredEntry


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """The bytes of a weight (maybe in a mapped file), and their alignment in the written file, in bytes."""

    data: memoryview
    alignment: int = 16


@dataclass(slots=True)
class StoredProgram:
    """What the file `main.mlirb` of an asset holds."""

    asset: Op
    """The op `serialization.asset`, with the graphs in its region."""
    weights: dict[str, StoredBytes]
    """By the name that `dense_resource` attributes give them."""
    producer: str

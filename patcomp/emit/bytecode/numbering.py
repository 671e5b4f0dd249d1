"""Number a program as MLIR's writer does: attributes, types and names by frequency, weights and values in order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

from patcomp.emit.bytecode.kinds import ATTRIBUTE_NUMBERS, PROPERTY_KEYS, TYPE_NUMBERS, Fields
from patcomp.emit.bytecode.program import Op, Region, StoredEntry, StoredValue

_Key = TypeVar("_Key", bound=Hashable)


class Numbering:
    """The numbers of the attributes, types, names of ops, weights and values of a program.

    Args:
        asset: the program.

    Raises:
        KeyError: the program has an attribute or type that `kinds.py` does not list.
    """

    def __init__(self, asset: Op):
        self._attributes: dict[StoredEntry, int] = {}
        self._types: dict[StoredEntry, int] = {}
        self._names: dict[str, int] = {}
        self.weights: dict[str, int] = {}
        """The positions of the weights, in the order in which they are first named."""
        self.values: dict[StoredValue, int] = {}
        """The number of each value in its region, which continues those of the regions that it may read."""
        self._sizes: dict[int, int] = {}
        self._isolated: dict[int, bool] = {}
        self._visit_op(asset)
        work: list[tuple[Region, int]] = [(region, 0) for region in asset.regions]
        while work:
            work.extend(self._visit_region(*work.pop()))
        self.attributes = _by_frequency(self._attributes)
        self.types = _by_frequency(self._types)
        self.names = _by_frequency(self._names)

    def size(self, region: Region) -> int:
        """The number of values of a region, without nested regions."""
        return self._sizes[id(region)]

    def is_isolated(self, op: Op) -> bool:
        """Whether the regions of an op read no value from outside."""
        found = self._isolated.get(id(op))
        if found is None:
            found = self._isolated[id(op)] = not _captures(op, set())
        return found

    def _visit_region(self, region: Region, first: int) -> list[tuple[Region, int]]:
        """Number the values of a region from `first`; return the regions in it and their first numbers."""
        next_value = first
        for block in region:
            for value, location in zip(block.arguments, block.locations, strict=True):
                self.values[value] = next_value
                next_value += 1
                self._visit_attribute(location)
                self._visit_type(value.type)
            for op in block.ops:
                for value in op.results:
                    self.values[value] = next_value
                    next_value += 1
                self._visit_op(op)
        self._sizes[id(region)] = next_value - first
        return [
            (inner, 0 if self.is_isolated(op) else next_value)
            for block in region
            for op in block.ops
            for inner in op.regions
        ]

    def _visit_op(self, op: Op) -> None:
        _counted(self._names, op.name)
        for result in op.results:
            self._visit_type(result.type)
        for key in PROPERTY_KEYS.get(op.name, ()):
            if (value := op.properties.get(key.removesuffix("?"))) is not None:
                self._visit_attribute(value)
        self._visit_attribute(op.location)

    def _visit_attribute(self, attribute: StoredEntry) -> None:
        if _counted(self._attributes, attribute) == 1:
            self._visit_fields(attribute, ATTRIBUTE_NUMBERS[attribute[0]][1])

    def _visit_type(self, type_: StoredEntry) -> None:
        if _counted(self._types, type_) == 1:
            self._visit_fields(type_, TYPE_NUMBERS[type_[0], len(type_) - 1][1])

    def _visit_fields(self, entry: StoredEntry, fields: Fields) -> None:
        for field, value in zip(fields, entry[1:], strict=True):
            parts: Any = value if field.endswith("*") else () if value is None else (value,)
            if field.startswith("attribute"):
                for part in parts:
                    self._visit_attribute(part)
            elif field.startswith("type"):
                for part in parts:
                    self._visit_type(part)
            elif field == "resource":
                self.weights.setdefault(value, len(self.weights))


def _captures(op: Op, inside: set[StoredValue]) -> bool:
    """Whether the regions of an op read a value from outside. `inside` holds the values known inside; the regions' own
    values are added to it."""
    for region in op.regions:
        for block in region:
            inside.update(block.arguments)
            for each in block.ops:
                if not inside.issuperset(each.operands) or _captures(each, inside):
                    return True
                inside.update(each.results)
    return False


def _counted(counts: dict[_Key, int], key: _Key) -> int:
    """Count a key once more; return how often it was counted."""
    count = counts[key] = counts.get(key, 0) + 1
    return count


def _by_frequency(counts: dict[_Key, int]) -> dict[_Key, int]:
    """The position of each key when the most frequent are first; equally frequent ones keep their order."""
    return {key: position for position, key in enumerate(sorted(counts, key=lambda key: -counts[key]))}

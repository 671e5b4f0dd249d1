"""The version of an asset's format, a date: the least one that has all ops, types and attributes of a program.

Facts: the versions that coreai-core 1.0.0b3 stores for programs of one op, one type or one attribute each
(`tests/asset/test_versions.py`). What an op's decomposition needs counts, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from patcomp.emit.bytecode import Op, StoredEntry
from patcomp.emit.stored.forms import DATES

KIND_DATES = {
    "ax.hw_constraints_v1": 20250825,
    "float4E2M1FN_v1": 20250723,
    "float8E8M0FN_v1": 20250723,
    "image_v1": 20251114,
    "sparse_tensor_encoding_v1": 20251112,
    "symbol_ref_v1": 20250909,
    "uint3_v1": 20251003,
    "uint6_v1": 20251003,
    "unit_v1": 20260313,
}
"""The date of each kind of type or attribute that is newer than the oldest ops."""


def least_version(ops: Iterable[Op]) -> int:
    """The version of an asset that has some ops; 0 if there are none."""
    names: set[str] = set()
    entries: set[StoredEntry] = set()
    _collect(ops, names, entries)
    dates = [DATES[name] for name in names]
    return max([0, *dates, *map(_date, entries)])


def _collect(ops: Iterable[Op], names: set[str], entries: set[StoredEntry]) -> None:
    """Add the names of ops, and their types and properties, also of what is in them."""
    for op in ops:
        names.add(op.name)
        entries.update(value.type for value in op.results)
        entries.update(op.properties.values())
        for region in op.regions:
            for block in region:
                entries.update(value.type for value in block.arguments)
                _collect(block.ops, names, entries)


def _date(entry: Any) -> int:
    """The latest date in an entry or list, including nested entries."""
    if not isinstance(entry, tuple) or not entry:
        return 0
    kind = KIND_DATES.get(entry[0], 0) if isinstance(entry[0], str) else 0
    return max(kind, *map(_date, entry))

"""Decode the attributes and types of a file. Each is decoded once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from patcomp.emit.bytecode.encoding import Cursor, read_bits
from patcomp.emit.bytecode.kinds import ATTRIBUTE_KINDS, TYPES, Fields
from patcomp.emit.bytecode.program import StoredEntry

_MOST_DEPTH = 64
"""How deeply attributes and types may be nested."""

_MOST_PARTS = 1 << 20
"""How many parts an attribute or type may have when each part is written out where it is named."""


class Entries:
    """The attributes or the types of a file, by their position.

    Args:
        what: `"attribute"` or `"type"`, for errors.
        records: their encodings.
        kinds: the table of `kinds.py`.
    """

    def __init__(self, what: str, records: list[Cursor], kinds: Mapping[int, tuple[str, Fields]]):
        self.what, self.records, self.kinds = what, records, kinds
        self.decoded: list[StoredEntry | None] = [None] * len(records)
        self.parts = [0] * len(records)
        """How many parts each has; 0 where it is not decoded."""


class EntryDecoder:
    """Decodes attributes and types, which refer to each other.

    Args:
        attributes, types: their encodings.
        texts: the table of texts.
        weights: the names of the weights, in the order of the file.
    """

    def __init__(self, attributes: list[Cursor], types: list[Cursor], texts: list[str], weights: list[str]):
        self._attributes = Entries("attribute", attributes, ATTRIBUTE_KINDS)
        self._types = Entries("type", types, TYPES)
        self._texts, self._weights = texts, weights
        self._open: set[tuple[str, int]] = set()
        self._parts = 0

    def attribute(self, cursor: Cursor) -> StoredEntry:
        """The attribute whose position the cursor is at."""
        return self._entry(self._attributes, cursor, cursor.number())

    def optional_attribute(self, cursor: Cursor) -> StoredEntry | None:
        """The attribute whose position the cursor is at; None if there is none."""
        head = cursor.number()
        return self._entry(self._attributes, cursor, head >> 1) if head & 1 else None

    def type(self, cursor: Cursor) -> StoredEntry:
        """The type whose position the cursor is at."""
        return self._entry(self._types, cursor, cursor.number())

    def attribute_at(self, cursor: Cursor, position: int) -> StoredEntry:
        """An attribute by position."""
        return self._entry(self._attributes, cursor, position)

    def type_at(self, cursor: Cursor, position: int) -> StoredEntry:
        """A type by position."""
        return self._entry(self._types, cursor, position)

    def _entry(self, entries: Entries, cursor: Cursor, position: int) -> StoredEntry:
        if position >= len(entries.decoded):
            cursor.fail(f"the file is damaged: it names {entries.what} {position} of {len(entries.decoded)}")
        found = entries.decoded[position]
        if found is None:
            found = self._decoded(entries, position)
        self._parts += entries.parts[position]
        return found

    def _decoded(self, entries: Entries, position: int) -> StoredEntry:
        record, key = entries.records[position], (entries.what, position)
        if key in self._open:
            record.fail(f"the file is damaged: {entries.what} {position} contains itself")
        if len(self._open) >= _MOST_DEPTH:
            record.fail(f"attributes and types are nested more than {_MOST_DEPTH} deep")
        self._open.add(key)
        outer, self._parts = self._parts, 1
        code = record.number()
        if code not in entries.kinds:
            record.fail(f"the file has {entries.what}s of kind {code}, which this version of patcomp does not know")
        kind, fields = entries.kinds[code]
        found = (kind, *[self._field(field, record) for field in fields])
        record.finish(f"an {entries.what} of kind {kind}")
        if self._parts > _MOST_PARTS:
            record.fail(f"an {entries.what} of kind {kind} has more than {_MOST_PARTS} parts")
        entries.decoded[position], entries.parts[position] = found, self._parts
        self._parts = outer
        self._open.remove(key)
        return found

    def _field(self, field: str, cursor: Cursor) -> Any:
        match field:
            case "text":
                return self._texts[cursor.index(len(self._texts), "text")]
            case "attribute":
                return self.attribute(cursor)
            case "type":
                return self.type(cursor)
            case "number":
                return cursor.number()
            case "signed":
                return cursor.signed()
            case "byte":
                return cursor.byte()
            case "bytes":
                return bytes(cursor.take(cursor.number()))
            case "resource":
                return self._weights[cursor.index(len(self._weights), "weight")]
            case "integer":
                width, unsigned = cursor.number(), cursor.byte()
                return width, unsigned, read_bits(cursor, width)
            case "float":
                width = cursor.number()
                return width, read_bits(cursor, width)
        items = cursor.count("items")
        self._parts += items
        return tuple([self._field(field[:-1], cursor) for _ in range(items)])

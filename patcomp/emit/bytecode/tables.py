"""The tables of a bytecode file: texts, names of ops, attributes and types as records, weights, properties."""

from __future__ import annotations

from dataclasses import dataclass

from patcomp.emit.bytecode.encoding import AssetFormatError, Cursor
from patcomp.emit.bytecode.program import StoredBytes

MAGIC = b"ML\xefR"
BYTECODE_VERSION = 6
DIALECT = "aicode"
STRINGS, DIALECTS, RECORDS, RECORD_SIZES, OP_SECTION, RESOURCES, RESOURCE_SIZES, DIALECT_VERSIONS, PROPERTIES = range(9)
"""The kinds of sections."""

_MOST_NAME = 4096
"""Bytes that the name of the producer may have."""


@dataclass(slots=True)
class _Tables:
    """The tables of a file. Records and properties are cursors on what is not decoded yet."""

    producer: str
    texts: list[str]
    op_names: list[str]
    attributes: list[Cursor]
    types: list[Cursor]
    weights: dict[str, StoredBytes]
    properties: list[Cursor]
    ops: Cursor


def read_tables(data: memoryview) -> _Tables:
    """The tables of a file.

    Raises:
        AssetFormatError: the file is no bytecode, is damaged, or has another version or dialect.
    """
    cursor = Cursor(data)
    if len(data) < len(MAGIC) or bytes(cursor.take(len(MAGIC))) != MAGIC:
        raise AssetFormatError(0, "the file is no MLIR bytecode")
    version = cursor.number()
    if version != BYTECODE_VERSION:
        cursor.fail(
            f"the file has version {version} of MLIR bytecode; this version of patcomp reads version {BYTECODE_VERSION}"
        )
    producer = cursor.text(_MOST_NAME)
    sections: dict[int, Cursor] = {}
    while cursor.left:
        kind, body = cursor.section()
        if kind in sections or kind > PROPERTIES:
            body.fail(f"the file is damaged: section {kind} is not possible here")
        sections[kind] = body
    for kind in (STRINGS, DIALECTS, RECORDS, RECORD_SIZES, OP_SECTION):
        if kind not in sections:
            cursor.fail(f"the file is damaged or cut off: it has no section {kind}")
    texts = _texts(sections[STRINGS])
    op_names = _op_names(sections[DIALECTS], texts)
    attributes, types = _records(sections[RECORD_SIZES], sections[RECORDS])
    weights = _weights(sections.get(RESOURCE_SIZES), sections.get(RESOURCES), texts)
    properties = _properties(sections.get(PROPERTIES))
    return _Tables(producer, texts, op_names, attributes, types, weights, properties, sections[OP_SECTION])


def _texts(cursor: Cursor) -> list[str]:
    """The table of texts, whose lengths are stored from the last one to the first."""
    lengths = [cursor.number() for _ in range(cursor.count("texts"))]
    texts = []
    for length in reversed(lengths):
        text = bytes(cursor.take(length))
        if not text.endswith(b"\0"):
            cursor.fail("the file is damaged: a text has no end")
        texts.append(cursor.decoded(text[:-1]))
    cursor.finish("the texts")
    return texts


def _op_names(cursor: Cursor, texts: list[str]) -> list[str]:
    """The names of ops, without the prefix of the dialect."""
    if cursor.count("dialects") != 1:
        cursor.fail(f"the program must be in the dialect {DIALECT} only")
    head = cursor.number()
    name = texts[head >> 1] if head >> 1 < len(texts) else ""
    if name != DIALECT:
        cursor.fail(f"the program is in the dialect {name[:40]!r}, not in {DIALECT}")
    if head & 1:
        cursor.section()  # its version, which is the same in all assets
    names: list[str] = []
    cursor.count("names of ops")
    while cursor.left:
        cursor.index(1, "dialect")
        for _ in range(cursor.count("names of ops")):
            at = cursor.position
            head = cursor.number()
            if head >> 1 >= len(texts):
                raise AssetFormatError(at, f"the file is damaged: it names text {head >> 1} of {len(texts)}")
            names.append(texts[head >> 1])
    return names


def _records(sizes: Cursor, records: Cursor) -> tuple[list[Cursor], list[Cursor]]:
    """The undecoded attributes and types."""
    counts = sizes.count("attributes"), sizes.count("types")
    tables = []
    for count in counts:
        table: list[Cursor] = []
        while len(table) < count:
            sizes.index(1, "dialect")
            for _ in range(sizes.count("records")):
                head = sizes.number()
                start = records.position
                records.take(head >> 1)
                if not head & 1:
                    raise AssetFormatError(start, "an attribute or type is stored as text, which is not supported")
                table.append(Cursor(records.data, start, records.position))
        if len(table) > count:
            sizes.fail(f"the file is damaged: it has {len(table)} records in place of {count}")
        tables.append(table)
    return tables[0], tables[1]


def _weights(sizes: Cursor | None, resources: Cursor | None, texts: list[str]) -> dict[str, StoredBytes]:
    """The weights by name, in the order of the file; they stay where they are."""
    if sizes is None or resources is None:
        return {}
    weights: dict[str, StoredBytes] = {}
    if sizes.count("groups of other tools"):
        sizes.fail("the file holds resources that belong to no dialect, which is not supported")
    while sizes.left:
        sizes.index(1, "dialect")
        for _ in range(sizes.count("weights", 3)):
            name = texts[sizes.index(len(texts), "text")]
            size, kind = sizes.number(), sizes.byte()
            start = resources.position
            resources.take(size)
            if kind:
                raise AssetFormatError(start, f"the resource {name[:80]!r} is no weight, which is not supported")
            if name in weights:
                raise AssetFormatError(start, f"the file is damaged: it holds two weights with the name {name[:80]!r}")
            entry = Cursor(resources.data, start, resources.position)
            alignment, length = entry.number(), entry.number()
            entry.align(alignment)
            weights[name] = StoredBytes(entry.take(length), alignment)
            entry.finish(f"the weight {name[:80]!r}")
    return weights


def _properties(cursor: Cursor | None) -> list[Cursor]:
    """The undecoded properties of ops."""
    if cursor is None:
        return []
    found = []
    for _ in range(cursor.count("properties")):
        length = cursor.number()
        start = cursor.position
        cursor.take(length)
        found.append(Cursor(cursor.data, start, cursor.position))
    return found

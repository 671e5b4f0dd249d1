"""Write the program of an asset as bytes, in pieces, so that no more than one weight is touched at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patcomp.emit.bytecode import tables
from patcomp.emit.bytecode.encoding import PADDING, bits, encoded_number, encoded_signed
from patcomp.emit.bytecode.kinds import ATTRIBUTE_NUMBERS, PROPERTY_KEYS, TYPE_NUMBERS
from patcomp.emit.bytecode.numbering import Numbering
from patcomp.emit.bytecode.program import Op, Region, StoredEntry, StoredProgram

_RESULTS, _OPERANDS, _REGIONS, _PROPERTIES = 2, 4, 16, 64
_DIALECT_VERSION = b"\x05"
"""The version of the dialect that all assets have; the word `version` of the asset is another one."""


class ProgramWriter:
    """A program as the pieces of a file `main.mlirb`.

    Args:
        program: what to write. Weights that no attribute names are left out.

    Raises:
        KeyError: an attribute names a weight that is not there, or the program has kinds that `kinds.py` lacks.
    """

    def __init__(self, program: StoredProgram):
        self._numbers = Numbering(program.asset)
        self._texts: dict[str, int] = {}
        self._properties: dict[bytes, int] = {}
        self._weights = [(name, program.weights[name]) for name in self._numbers.weights]
        dialect = self._dialect()
        sizes, records = self._records()
        ops = encoded_number(1 << 1) + self._op(program.asset)
        entries, alignment = self._resources()
        sections = [
            tables.MAGIC + encoded_number(tables.BYTECODE_VERSION) + program.producer.encode() + b"\0",
            *_section(tables.DIALECTS, dialect),
            *_section(tables.RECORD_SIZES, sizes),
            *_section(tables.RECORDS, records),
            *_section(tables.OP_SECTION, ops),
            *_section(tables.RESOURCE_SIZES, self._resource_sizes(entries)),
        ]
        self._head = b"".join(sections)
        self._head += self._resource_head(sum(size for _, size in entries), alignment, len(self._head))
        self._entries = [head for head, _ in entries]
        self._tail = b"".join([*_section(tables.STRINGS, self._string_table()), *self._property_table()])

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return sum(map(len, self.pieces()))

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The parts of the file from front to back; weights are given as they are, without a copy."""
        yield self._head
        for head, (_, weight) in zip(self._entries, self._weights, strict=True):
            yield head
            yield weight.data
        yield self._tail

    def _text(self, text: str) -> bytes:
        return encoded_number(self._texts.setdefault(text, len(self._texts)))

    def _dialect(self) -> bytes:
        """The one dialect, its version, and the names of ops."""
        names = self._numbers.names
        head = self._texts.setdefault(tables.DIALECT, len(self._texts))
        made = [encoded_number(1), encoded_number(head << 1 | 1), *_section(tables.DIALECT_VERSIONS, _DIALECT_VERSION)]
        made += [encoded_number(len(names)), encoded_number(0), encoded_number(len(names))]
        made += [encoded_number(self._texts.setdefault(name, len(self._texts)) << 1 | 1) for name in names]
        return b"".join(made)

    def _records(self) -> tuple[bytes, bytes]:
        """The sizes of the attributes and types, and the attributes and types."""
        numbers = self._numbers
        sizes, records = [encoded_number(len(numbers.attributes)), encoded_number(len(numbers.types))], []
        for entries, is_type in ((numbers.attributes, False), (numbers.types, True)):
            if entries:
                sizes += [encoded_number(0), encoded_number(len(entries))]
            for entry in entries:
                record = self._record(entry, is_type)
                records.append(record)
                sizes.append(encoded_number(len(record) << 1 | 1))
        return b"".join(sizes), b"".join(records)

    def _record(self, entry: StoredEntry, is_type: bool) -> bytes:
        code, fields = TYPE_NUMBERS[entry[0], len(entry) - 1] if is_type else ATTRIBUTE_NUMBERS[entry[0]]
        return encoded_number(code) + b"".join(map(self._field, fields, entry[1:]))

    def _field(self, field: str, value: Any) -> bytes:
        match field:
            case "text":
                return self._text(value)
            case "attribute":
                return encoded_number(self._numbers.attributes[value])
            case "type":
                return encoded_number(self._numbers.types[value])
            case "number":
                return encoded_number(value)
            case "signed":
                return encoded_signed(value)
            case "byte":
                return bytes((value,))
            case "bytes":
                return encoded_number(len(value)) + value  # type: ignore[no-any-return]
            case "resource":
                return encoded_number(self._numbers.weights[value])
            case "integer":
                width, unsigned, found = value
                return encoded_number(width) + bytes((unsigned,)) + bits(found, width)
            case "float":
                width, found = value
                return encoded_number(width) + bits(found, width)
        return encoded_number(len(value)) + b"".join([self._field(field[:-1], part) for part in value])

    def _optional(self, attribute: StoredEntry | None) -> bytes:
        return encoded_number(0 if attribute is None else self._numbers.attributes[attribute] << 1 | 1)

    def _op(self, op: Op) -> bytes:
        numbers = self._numbers
        keys = PROPERTY_KEYS.get(op.name)
        mask = _RESULTS * bool(op.results) | _OPERANDS * bool(op.operands)
        mask |= _REGIONS * bool(op.regions) | _PROPERTIES * bool(keys)
        made = [encoded_number(numbers.names[op.name]), bytes((mask,)), encoded_number(numbers.attributes[op.location])]
        if keys:
            made.append(encoded_number(self._property_position(op, keys)))
        if op.results:
            made.append(encoded_number(len(op.results)))
            made += [encoded_number(numbers.types[value.type]) for value in op.results]
        if op.operands:
            made.append(encoded_number(len(op.operands)))
            made += [encoded_number(numbers.values[value]) for value in op.operands]
        if op.regions:
            isolated = self._numbers.is_isolated(op)
            made.append(encoded_number(len(op.regions) << 1 | isolated))
            bodies = [self._region(region) for region in op.regions]
            made += _section(tables.OP_SECTION, b"".join(bodies)) if isolated else bodies
        return b"".join(made)

    def _property_position(self, op: Op, keys: tuple[str, ...]) -> int:
        made = [
            self._optional(op.properties.get(key[:-1]))
            if key.endswith("?")
            else encoded_number(self._numbers.attributes[op.properties[key]])
            for key in keys
        ]
        return self._properties.setdefault(b"".join(made), len(self._properties))

    def _region(self, region: Region) -> bytes:
        if not region:
            return encoded_number(0)
        numbers = self._numbers
        made = [encoded_number(len(region)), encoded_number(numbers.size(region))]
        for block in region:
            made.append(encoded_number(len(block.ops) << 1 | bool(block.arguments)))
            if block.arguments:
                made.append(encoded_number(len(block.arguments)))
                for value, location in zip(block.arguments, block.locations, strict=True):
                    made += [
                        encoded_number(numbers.types[value.type] << 1 | 1),
                        encoded_number(numbers.attributes[location]),
                    ]
                made.append(b"\0")  # the uses have no order
            made += map(self._op, block.ops)
        return b"".join(made)

    def _resources(self) -> tuple[list[tuple[bytes, int]], int]:
        """What precedes each weight and the size of its entry; and the alignment of their section."""
        entries, position = [], 0  # the section begins at an aligned address
        for _, weight in self._weights:
            head = encoded_number(weight.alignment) + encoded_number(len(weight.data))
            head += bytes([PADDING]) * (-(position + len(head)) % weight.alignment)
            size = len(head) + len(weight.data)
            entries.append((head, size))
            position += size
        return entries, max((weight.alignment for _, weight in self._weights), default=1)

    def _resource_sizes(self, entries: list[tuple[bytes, int]]) -> bytes:
        made = [encoded_number(0)]
        if entries:
            made += [encoded_number(0), encoded_number(len(entries))]
        for (name, _), (_, size) in zip(self._weights, entries, strict=True):
            made += [self._text(name), encoded_number(size), b"\0"]
        return b"".join(made)

    @staticmethod
    def _resource_head(size: int, alignment: int, position: int) -> bytes:
        """The head of the section of weights, whose body is aligned, for its position in the file."""
        head = encoded_number(size)
        if (position + 1 + len(head)) % alignment == 0:
            return bytes((tables.RESOURCES,)) + head
        head += encoded_number(alignment)
        return bytes((tables.RESOURCES | 0x80,)) + head + bytes([PADDING]) * (-(position + 1 + len(head)) % alignment)

    def _string_table(self) -> bytes:
        encoded = [text.encode() + b"\0" for text in self._texts]
        return b"".join(
            [encoded_number(len(encoded)), *(encoded_number(len(text)) for text in reversed(encoded)), *encoded]
        )

    def _property_table(self) -> list[bytes]:
        made = [encoded_number(len(self._properties))]
        for encoded in self._properties:
            made += [encoded_number(len(encoded)), encoded]
        return _section(tables.PROPERTIES, b"".join(made))


def _section(kind: int, body: bytes) -> list[bytes]:
    return [bytes((kind,)), encoded_number(len(body)), body]

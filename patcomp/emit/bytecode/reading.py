"""Read the program of an asset from its bytes."""

from __future__ import annotations

from patcomp.emit.bytecode.encoding import Cursor
from patcomp.emit.bytecode.entries import EntryDecoder
from patcomp.emit.bytecode.kinds import PROPERTY_KEYS
from patcomp.emit.bytecode.program import Block, Op, Region, StoredEntry, StoredProgram, StoredValue
from patcomp.emit.bytecode.tables import OP_SECTION, read_tables

_ATTRIBUTES, _RESULTS, _OPERANDS, _SUCCESSORS, _REGIONS, _USE_ORDERS, _PROPERTIES = (1 << bit for bit in range(7))
"""What follows the name of an op, as bits."""

_MOST_DEPTH = 60
"""How deeply regions may be nested; each level takes four calls of Python."""


def read_program(data: memoryview | bytes) -> StoredProgram:
    """The program in the bytes of a `main.mlirb`. Weights stay where they are.

    A damaged, cyclic or hostile file ends in the error; no memory is taken by a number that the file only states.

    Args:
        data: the file, which may be mapped into memory; it must be there as long as the weights are used.

    Raises:
        AssetFormatError: the file is no program of an asset, is damaged, or is newer than this version of patcomp.
    """
    view = memoryview(data).cast("B")
    tables = read_tables(view)
    decoder = EntryDecoder(tables.attributes, tables.types, tables.texts, list(tables.weights))
    reader = _Ops(tables.op_names, tables.properties, decoder)
    cursor = tables.ops
    ops = reader.block(cursor, {}, [], 0, 0).ops
    cursor.finish("the program")
    if len(ops) != 1 or ops[0].name != "serialization.asset" or len(ops[0].regions) != 1:
        cursor.fail("the program is no asset")
    return StoredProgram(ops[0], tables.weights, tables.producer)


class _Ops:
    """Reads ops. A region has numbers for its own values, and those in it continue them."""

    def __init__(self, names: list[str], properties: list[Cursor], decoder: EntryDecoder):
        self._names, self._properties, self._decoder = names, properties, decoder
        self._known: dict[tuple[str, int], dict[str, StoredEntry]] = {}

    def region(self, cursor: Cursor, scope: dict[int, StoredValue], first: int, depth: int) -> Region:
        """A region whose values are numbered from `first`; `scope` has the values that it may read."""
        if depth > _MOST_DEPTH:
            cursor.fail(f"regions are nested more than {_MOST_DEPTH} deep")
        blocks: Region = []
        count = cursor.count("blocks")
        if not count:
            return blocks
        inner = first + cursor.number()
        own: list[StoredValue] = []
        for _ in range(count):
            blocks.append(self.block(cursor, scope, own, first, inner, depth))
        if first + len(own) != inner:
            cursor.fail(f"the file is damaged: a region has {len(own)} values in place of {inner - first}")
        for position in range(len(own)):
            del scope[first + position]
        return blocks

    def block(
        self,
        cursor: Cursor,
        scope: dict[int, StoredValue],
        own: list[StoredValue],
        first: int,
        inner: int,
        depth: int = 0,
    ) -> Block:
        """A block of a region; its values are added to the scope and to the region's own ones."""
        head = cursor.number()
        made = Block([], [])
        if head & 1:
            for _ in range(cursor.count("arguments", 2)):
                kind = cursor.number()
                if not kind & 1:
                    cursor.fail("an argument of a block has no location, which is not supported")
                value = StoredValue(self._decoder.type_at(cursor, kind >> 1))
                made.arguments.append(value)
                made.locations.append(self._decoder.attribute(cursor))
                scope[first + len(own)] = value
                own.append(value)
            if cursor.byte():
                self._skip_use_orders(cursor, cursor.number())
        for _ in range(head >> 1):
            op = self._op(cursor, scope, inner, depth)
            made.ops.append(op)
            for value in op.results:
                scope[first + len(own)] = value
                own.append(value)
        return made

    def _op(self, cursor: Cursor, scope: dict[int, StoredValue], inner: int, depth: int) -> Op:
        name = self._names[cursor.index(len(self._names), "op")]
        mask = cursor.byte()
        if mask & (_ATTRIBUTES | _SUCCESSORS):
            cursor.fail(f"the op {name[:80]} has attributes or successors, which is not supported")
        location = self._decoder.attribute(cursor)
        properties: dict[str, StoredEntry] = {}
        if mask & _PROPERTIES:
            properties = self._properties_of(name, cursor)
        elif any(not key.endswith("?") for key in PROPERTY_KEYS.get(name, ())):
            cursor.fail(f"the file is damaged: the op {name[:80]} has no properties")
        results: list[StoredValue] = []
        if mask & _RESULTS:
            results = [StoredValue(self._decoder.type(cursor)) for _ in range(cursor.count("results"))]
        operands = []
        if mask & _OPERANDS:
            for _ in range(cursor.count("operands")):
                number = cursor.number()
                if number not in scope:
                    cursor.fail(f"the file is damaged: the op {name[:80]} reads value {number}, which is not there yet")
                operands.append(scope[number])
        if mask & _USE_ORDERS:
            self._skip_use_orders(cursor, 1 if len(results) == 1 else cursor.number())
        regions = self._regions(cursor, scope, inner, depth) if mask & _REGIONS else []
        return Op(name, operands, results, properties, regions, location)

    def _regions(self, cursor: Cursor, scope: dict[int, StoredValue], inner: int, depth: int) -> list[Region]:
        head = cursor.number()
        if not head & 1:
            return [self.region(cursor, scope, inner, depth + 1) for _ in range(head >> 1)]
        kind, body = cursor.section()  # the regions read nothing from outside
        if kind != OP_SECTION:
            body.fail(f"the file is damaged: a section of ops is one of kind {kind}")
        regions = [self.region(body, {}, 0, depth + 1) for _ in range(head >> 1)]
        body.finish("regions")
        return regions

    def _properties_of(self, name: str, cursor: Cursor) -> dict[str, StoredEntry]:
        position = cursor.index(len(self._properties), "properties")
        keys = PROPERTY_KEYS.get(name)
        if keys is None:
            cursor.fail(f"the op {name[:80]} has properties, which this version of patcomp does not know")
        known = self._known.get((name, position))
        if known is None:
            record = self._properties[position]
            record = Cursor(record.data, record.position, record.end)
            known = {}
            for key in keys:
                if not key.endswith("?"):
                    known[key] = self._decoder.attribute(record)
                elif (found := self._decoder.optional_attribute(record)) is not None:
                    known[key[:-1]] = found
            record.finish(f"the properties of {name[:80]}")
            self._known[name, position] = known
        return dict(known)

    def _skip_use_orders(self, cursor: Cursor, count: int) -> None:
        """Skip the use-list orders; a program does not depend on them."""
        if count > cursor.left:
            cursor.fail("the file is damaged: it announces more orders of uses than it has room for")
        for _ in range(count):
            if count > 1:
                cursor.number()
            for _ in range(cursor.number() >> 1):
                cursor.number()

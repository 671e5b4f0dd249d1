"""Where an op comes from, in an asset: places in files. Names of nodes, modules and rules are not kept."""

from __future__ import annotations

from patcomp.emit.bytecode import StoredEntry
from patcomp.ir.locations import UNKNOWN, Origin, joined, origin_location, origins
from patcomp.ir.xdsl import LocationAttr

UNIT: StoredEntry = ("unit_v1",)
NO_FILE = "-"
"""The name of the file where none is known, as coreai-core writes it."""


def _place(file: str, line: int, others: tuple[StoredEntry, ...] = ()) -> StoredEntry:
    source = ("source", ("file", file, "", ""), line, 0, line, 0)
    return ("location", source, UNIT, others, ())


UNKNOWN_PLACE = _place(NO_FILE, 0)


def stored_location(location: LocationAttr) -> StoredEntry:
    """The stored form of the places in the user's program that a location leads back to."""
    places = dict.fromkeys((origin.file, origin.line) for origin in origins(location) if origin.file)
    if not places:
        return UNKNOWN_PLACE
    (file, line), *others = places
    return _place(file, line, tuple([_place(*other) for other in others]))


def ir_location(entry: StoredEntry) -> LocationAttr:
    """The location of a stored one; `UNKNOWN` if the op does not come from a file."""
    match entry:
        case ("location", ("source", ("file", str() as file, _, _), int() as line, *_), _, tuple() as others, _) if (
            file not in ("", NO_FILE)
        ):
            return joined([origin_location(Origin("", "", file, line)), *map(ir_location, others)])
    return UNKNOWN

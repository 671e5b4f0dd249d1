"""The origin of an op: FX node, module path, line of the user's source, and the rules that rewrote it.

In the IR: `loc("fx_node@module.path"("model.py":12:0))` for an imported op, and
`loc("rule_name"(fused[...]))` for an op that a rule made out of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from patcomp.errors import Problem
from patcomp.ir.xdsl import (
    ArrayAttr,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    NoneAttr,
    Operation,
    StringAttr,
    UnknownLoc,
    unchecked,
)

UNKNOWN = UnknownLoc()
_NO_METADATA = NoneAttr()


@dataclass(frozen=True)
class Origin:
    """The place in the user's program that an op was imported from."""

    node: str
    module_path: str = ""
    file: str = ""
    line: int = 0

    @property
    def source(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""

    def problem(self, op: str, message: str, advice: str = "") -> Problem:
        """A problem with an op from this place."""
        return Problem(message, op, self.node, self.module_path, self.source, advice)

    def __str__(self) -> str:
        return place_text(self.node, self.module_path, self.source)


def place_text(node: str, module_path: str, source: str) -> str:
    """A place in the user's program for messages: `%add in layers.0 at model.py:12`, without what is unknown."""
    parts = [node and f"%{node}", module_path and f"in {module_path}", source and f"at {source}"]
    return " ".join(filter(None, parts))


def in_brackets(node: str, module_path: str, source: str) -> str:
    """The same in brackets, to follow what is there; empty if nothing is known."""
    text = place_text(node, module_path, source)
    return f" ({text})" if text else ""


def erase_locations(scope: Operation) -> None:
    """Forget where the ops of a program come from."""
    for op in scope.walk():
        op.location = UNKNOWN


@lru_cache(maxsize=4096)
def origin_location(origin: Origin) -> LocationAttr:
    """The location attribute of an imported op."""
    name = f"{origin.node}@{origin.module_path}" if origin.module_path else origin.node
    child = _line(origin.file, origin.line) if origin.file else _NO_METADATA
    return unchecked(NameLoc, desc=unchecked(StringAttr, data=name), location=child)


def joined(locations: Sequence[LocationAttr]) -> LocationAttr:
    """The location of an op that comes from several places."""
    if len(locations) == 1:
        return locations[0]
    return unchecked(FusedLoc, locations=unchecked(ArrayAttr, data=tuple(locations)), metadata=_NO_METADATA)


@lru_cache(maxsize=4096)
def _line(file: str, line: int) -> FileLineColLoc:
    """The location of a source line, which many ops share."""
    return FileLineColLoc(StringAttr(file), IntAttr(line), IntAttr(0))


def fused(rule: str, ops: Iterable[Operation]) -> LocationAttr:
    """The location of the ops that a rule made from `ops`: named after the rule, fused from their locations.

    A rule that works on its own results (folding a chain, step by step) is named once, so that locations
    do not nest deeper with each step.
    """
    locations = [op.location for op in ops if type(op.location) is not UnknownLoc]
    parts = tuple(part for location in locations for part in _without(location, rule))
    if len(locations) > 1:
        parts = tuple(dict.fromkeys(parts))
    return _named(_string(rule), parts or (UNKNOWN,))


def _named(name: StringAttr, parts: tuple[LocationAttr, ...]) -> NameLoc:
    """The name of a rule around the locations that it was fused from."""
    locations = unchecked(ArrayAttr, data=parts)
    return unchecked(NameLoc, desc=name, location=unchecked(FusedLoc, locations=locations, metadata=_NO_METADATA))


_string = lru_cache(maxsize=4096)(StringAttr)


def _parts(location: FusedLoc) -> tuple[LocationAttr, ...]:
    return location.locations.data  # type: ignore[attr-defined, no-any-return]


def _without(location: LocationAttr, rule: str) -> Iterator[LocationAttr]:
    """A location without the name of a rule; the locations that it was fused from take its place."""
    if type(location) is NameLoc and type(location.location) is FusedLoc:
        children = [part for child in _parts(location.location) for part in _without(child, rule)]
        if location.desc.data == rule:
            yield from children
        elif children == list(_parts(location.location)):
            yield location
        else:
            yield _named(location.desc, tuple(dict.fromkeys(children)))
    else:
        yield location


class Moved(dict[LocationAttr, LocationAttr]):
    """Locations with other origins in the place of some; a key that is missing is computed.

    Args:
        others: the origin that takes the place of a node, by the node's name.
    """

    def __init__(self, others: Mapping[str, Origin]):
        super().__init__()
        self.others = others

    def __missing__(self, location: LocationAttr) -> LocationAttr:
        made = location
        if isinstance(location, FusedLoc):
            made = joined([self[part] for part in _parts(location)])
        elif isinstance(location, NameLoc) and isinstance(location.location, FusedLoc):
            made = _named(location.desc, tuple([self[part] for part in _parts(location.location)]))
        elif isinstance(location, NameLoc):
            other = self.others.get(location.desc.data.partition("@")[0])
            made = location if other is None else origin_location(other)
        self[location] = made
        return made


def origins(location: LocationAttr) -> tuple[Origin, ...]:
    """Every place of the user's program that a location leads back to, in order."""
    found: dict[Origin, None] = {}
    _collect(location, found, [])
    return tuple(found)


def rules(location: LocationAttr) -> tuple[str, ...]:
    """The names of the rules that made an op, the last one first."""
    names: list[str] = []
    _collect(location, {}, names)
    return tuple(dict.fromkeys(names))


def _collect(location: LocationAttr, found: dict[Origin, None], names: list[str]) -> None:
    if isinstance(location, FusedLoc):
        for part in _parts(location):
            _collect(part, found, names)
    elif isinstance(location, NameLoc):
        child = location.location
        if isinstance(child, FusedLoc):
            names.append(location.desc.data)
            _collect(child, found, names)
        else:
            node, _, path = location.desc.data.partition("@")
            file, line = "", 0
            if isinstance(child, FileLineColLoc):
                file, line = child.filename.data, child.line.data
            found.setdefault(Origin(node, path, file, line))


def problem_at(op: Operation, message: str, advice: str = "", *, name: str | None = None) -> Problem:
    """A problem with an op and the place in the user's program that it came from; `name` defaults to the op's."""
    return next(iter(origins(op.location)), Origin("")).problem(name or op.name, message, advice)


def describe(op: Operation) -> str:
    """The first origins of an op as text for messages."""
    return describe_location(op.location)


def describe_location(location: LocationAttr) -> str:
    """The first origins of a location as text for messages."""
    places: Sequence[Origin] = origins(location)
    if not places:
        return "unknown source"
    return "; ".join(str(place) for place in places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")

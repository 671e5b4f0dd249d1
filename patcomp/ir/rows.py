"""The language of the dialect table.

A row starts with the op's signature, `softmax[T: F+F8](input: T, axis: IDX[0]) -> output: T`. Each operand and result
has a set of element types: families (`types.FAMILIES`: F, F8, INT, LOW, F4, C, B, IDX, UIDX; ALL is all but the last
two) and single types (`f32`), joined by `+`. Operands and results of type T share one element type out of T's set.
`[0]`, `[1]`, `[0|1]` and `[1;3]` give the rank and, after the semicolon, the static length; no bracket means any rank.
`*` marks a variadic operand or result; ANY, TOKEN, HANDLE and IMAGE are not tensors of a family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any


@dataclass(frozen=True)
class Slot:
    """An operand or result of an op: which types it takes."""

    name: str
    types: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    length: int | None = None
    variadic: bool = False


@dataclass(frozen=True)
class PropertySlot:
    """A property of an op, declared as `name?: kind = default`; `?` marks an optional one.

    The words of an enumeration stand in place of the kind, `update|add|sub`, and make an attribute class. `i32` before
    them means that the property holds the position of the word. `#name` is the name of an attribute; other kinds are
    not checked.
    """

    name: str
    kind: str
    optional: bool = False
    default: str | None = None
    keyword: str = ""
    """The word that introduces an enumeration in text, `mode = <constant>`: `padding_mode as mode: ...`."""
    words: tuple[str, ...] = ()
    is_position: bool = False


@dataclass(frozen=True)
class Row:
    """One op of the dialect."""

    name: str
    operands: tuple[Slot, ...]
    results: tuple[Slot, ...]
    same: tuple[tuple[str, ...], ...]
    """Groups of operands and results that share one element type."""
    doc: str
    infer: str | None = None
    """Name of the function in `patcomp.ir.infer` that computes the result types; None: the caller states them."""
    exact: str = ""
    """When the declared result types must equal the inferred ones: `always`, `to save`, or if the operand of this name
    is constant. Otherwise a dimension may be `?` in one type and a number in the other."""
    free_element: bool = False
    """Whether the caller chooses the result's element type among those that the row lists."""
    form: str = "functional"
    """How the op prints: a template of `patcomp.ir.syntax.template`, or a name that `patcomp.ir.syntax` has."""
    commutative: bool = False
    pure: bool = True
    """Whether the op has no side effects, so that it may be dropped, moved or shared."""
    properties: tuple[PropertySlot, ...] = ()
    regions: tuple[tuple[str, str], ...] = ()
    """Name and terminator of each region."""
    isolated: bool = False
    """Whether the regions are isolated: they use no value from outside."""
    terminator: bool = False
    top_level: bool = False
    """Whether the op is at the level of graphs, not inside a graph."""
    authored: bool = True
    """Whether there is an authoring function; rules create other ops directly."""
    builder: str = ""
    """Name of the authoring function if it differs from the op's own name."""
    updates: str = ""
    """The operand that the result copies, with some elements replaced."""
    multiply_adds: str = ""
    """How many products the op adds up, `output * x[-1]`: for each element of a result or operand as many as an
    operand has along some dimensions (`patcomp.ir.work`). Empty if the op is no product or convolution."""
    trait: str = ""
    """What the op does with elements, a name of `patcomp.ir.traits`, where no other fact implies it."""
    stored: str = ""
    """How an asset stores the op: the date of the first version of the format that has it, then what does not follow
    from the row, a name or an enumeration's `property=kind` (`patcomp.emit.stored.forms`). If it is empty, only
    coreai-core can save programs that have the op."""

    @cached_property
    def has_variadic(self) -> bool:
        """Whether one of the operands is variadic."""
        return any(slot.variadic for slot in self.operands)

    @cached_property
    def result_element(self) -> int | str:
        """The position of an operand that has the first result's element type, or else the first type it may have."""
        result = self.results[0]
        sharing = next((group for group in self.same if result.name in group), ())
        return next((index for index, slot in enumerate(self.operands) if slot.name in sharing), result.types[0])

    @property
    def op_name(self) -> str:
        return self.name if self.name.startswith("coreaix.") else f"coreai.{self.name}"


_SIGNATURE = re.compile(r"(?P<name>[\w.]+)(?:\[(?P<variables>[^]]*)\])?\((?P<operands>.*)\)(?: -> (?P<results>.*))?")
_PROPERTY = re.compile(
    r"(?P<name>\w+)(?P<optional>\??)(?: as (?P<keyword>\w+))?: (?P<kind>[^=]+?)(?: = (?P<default>\w+))?"
)


def _listed(text: str | None) -> list[str]:
    return text.split(", ") if text else []


def _pairs(text: str | None) -> list[tuple[str, str]]:
    return [(name, rest) for name, _, rest in (item.partition(": ") for item in _listed(text))]


def _slot(text: str, variables: dict[str, str]) -> Slot:
    name, _, types = text.partition(": ")
    types, _, shape = types.partition("[")
    ranks, _, length = shape.rstrip("]").partition(";")
    families = variables.get(types, types).replace("ALL", "F+F8+INT+LOW+F4+C+B")
    return Slot(
        name.rstrip("*"),
        tuple(families.split("+")),
        tuple(int(rank) for rank in ranks.split("|")) if ranks else (),
        int(length) if length else None,
        name.endswith("*"),
    )


def _property(text: str) -> PropertySlot:
    found = _PROPERTY.fullmatch(text)
    assert found, text
    kind = found["kind"]
    return PropertySlot(
        found["name"],
        kind,
        bool(found["optional"]),
        found["default"],
        found["keyword"] or found["name"],
        tuple(kind.removeprefix("i32 ").split("|")) if "|" in kind else (),
        kind.startswith("i32 "),
    )


def op(signature: str, doc: str, *, properties: str = "", regions: str = "", builder: str = "", **facts: Any) -> Row:
    """The row of a signature; the other arguments are the fields of `Row`, regions as `name: terminator, ...`."""
    found = _SIGNATURE.fullmatch(signature)
    assert found, signature
    variables = dict(_pairs(found["variables"]))
    sides = {side: _listed(found[side]) for side in ("operands", "results")}
    return Row(
        found["name"],
        tuple(_slot(slot, variables) for slot in sides["operands"]),
        tuple(_slot(slot, variables) for slot in sides["results"]),
        tuple(tuple(_names_of(variable, sides)) for variable in variables),
        doc,
        properties=tuple(map(_property, _listed(properties))),
        regions=tuple(_pairs(regions)),
        builder=builder or found["name"].rpartition(".")[2],
        **facts,
    )


def _names_of(variable: str, sides: dict[str, list[str]]) -> Iterator[str]:
    """The operands and results whose element type is a variable's."""
    for slot in chain(*sides.values()):
        name, _, types = slot.partition(": ")
        if types.partition("[")[0] == variable:
            yield name.rstrip("*")

"""The programs on which a rule is compared: the small ones near its example, listed and not drawn.

    search = Search(drawings, parts)
    for drawing in search:
        if the rule matches it:
            search.keep(drawing)

The list begins with the example in all alternatives and operand orders. Then come programs with one change
(`proof.changes`, `proof.together`): permutations, axes, bools, sizes, broadcasts, ranks, slices, numbers, element
types; programs with open sizes; the same value for two operands; inputs in the place of constants; and inner values
that are returned. Then two parts of the example change together. Last come further changes of programs that the rule
matched, because a rule that needs a slice of equal parts matches few programs that differ from its example in one
way. Many programs are invalid, or do not match; the search counts what the rule matched, and goes on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from patcomp.patterns.aspects import RANKS
from patcomp.patterns.example_types import ExampleType
from patcomp_lab.proof.changes import ExampleParts, changed_part
from patcomp_lab.proof.drawing import Drawing, axes_in
from patcomp_lab.proof.op_calls import OpDrawing, axis_arguments, has_one_tensor, operator_schema
from patcomp_lab.proof.openings import openings, tensor_parts
from patcomp_lab.proof.ranks import with_other_ranks
from patcomp_lab.proof.together import TOGETHER, in_turn, of_equal_sizes, spread, with_types

_TRIED = 16
"""How many programs are tried for each that may match."""

_PARTS = 12
"""How many values of each of two parts that change together."""

_OPENED = 6
"""How many programs with open sizes are compared at least."""

EQUAL_RANKS = (3, 4)
"""The ranks of tensors whose sizes are all equal."""

_OPEN, OPEN_CHANGED, TOGETHER_CHANGED, FURTHER = (
    "open sizes",
    "open sizes of a variation",
    "two parts",
    "further changes",
)


class Search:
    """The programs near some drawings. The user says which of them the rule matched."""

    def __init__(self, firsts: Sequence[Any], parts: ExampleParts, count: int):
        """
        Args:
            firsts: the example in all its variants.
            parts: what is known of the parts of the example.
            count: the number of matched programs of each kind.
        """
        self.firsts, self.parts, self.count = firsts, parts, count
        self.kept: list[Any] = []
        self._seen: set[str] = set()

    def keep(self, drawing: Any) -> None:
        """Tell that the rule matched a program."""
        self.kept.append(drawing)

    def __iter__(self) -> Iterator[Any]:
        yield from self._some(self.firsts, len(self.firsts), len(self.firsts))
        bases = self.kept[:2] or list(self.firsts[:1])
        for base in bases[:1]:
            for drawings in self._kinds(base):
                yield from self._some(drawings)
        for base in bases[1:]:
            for drawings in self._kinds(base):
                yield from self._some(drawings, self.count // 4, 2 * self.count)
        singles = self.kept[len(bases) :]
        yield from self._opened(bases, singles)
        start = len(self.kept)
        for base in bases[:1]:
            yield from self._some(self._two_parts(base), 4 * self.count, 3 * _TRIED * self.count)
        yield from self._further(bases[0], self.kept[start:])

    def _some(self, drawings: Iterable[Any], matched: int | None = None, tried: int | None = None) -> Iterator[Any]:
        """Drawings until enough of them match, each once in the whole search."""
        enough = len(self.kept) + (self.count if matched is None else matched)
        left = _TRIED * self.count if tried is None else tried
        for drawing in drawings:
            if left <= 0 or len(self.kept) >= enough:
                return
            if (key := _key(drawing)) in self._seen:
                continue
            self._seen.add(key)
            left -= 1
            yield drawing

    # ---- one change ----------------------------------------------------------------------------------

    def _kinds(self, base: Any) -> Iterator[Iterator[Any]]:
        example = _varied(base)
        for change in TOGETHER:
            yield self._made(base, change.__name__, spread(change(example)))
        for rank in EQUAL_RANKS:
            if _may_change_tensors(base, self.parts):
                yield self._made(base, "equal sizes", of_equal_sizes(example, rank))
        yield self._made(base, "parts", self._one_part(base))
        ranks = self._made(base, RANKS, with_other_ranks(example, _axes(base)))
        yield ranks if _may_change_tensors(base, self.parts) else (replace(each, compared=False) for each in ranks)
        if isinstance(base, Drawing):
            yield _aliased(base)
            if not base.returns_all:
                yield iter([replace(base, returns_all=True, aspect="inner values are returned")])
            yield _with_inputs(base)

    def _made(self, base: Any, aspect: str, examples: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
        for changed in examples:
            yield _with(base, changed, aspect)

    def _one_part(self, base: Any) -> Iterator[dict[str, Any]]:
        """The first other value of each part, then the second one, and so on."""
        values = self._values(base)
        for index in range(max(map(len, values.values()), default=0)):
            for name, others in values.items():
                if index < len(others):
                    yield {name: others[index]}

    def _values(self, base: Any) -> dict[str, list[Any]]:
        """Other values of each part."""
        example = {**_varied(base), **{name: base.example[name] for name in self.parts.words if name in base.example}}
        fixed = () if _may_change_tensors(base, self.parts) else tensor_parts(base)
        return {name: changed_part(name, example, self.parts) for name in example if name not in fixed}

    # ---- open sizes ----------------------------------------------------------------------------------

    def _opened(self, bases: Sequence[Any], singles: Sequence[Any]) -> Iterator[Any]:
        start = len(self.kept)
        for base in bases[:1]:
            yield from self._some(openings(base), max(2 * self.count, _OPENED))
        opened = self.kept[start:]
        for base in opened[:4]:
            changed = self._made(base, OPEN_CHANGED, self._one_part_of_numbers(base))
            yield from self._some(changed, self.count // 2, 6 * self.count)
        for single in _of_each_kind(singles, 3):
            if not single.runs:
                yield from self._some(openings(single, OPEN_CHANGED), self.count // 4, self.count)

    def _one_part_of_numbers(self, base: Any) -> Iterator[dict[str, Any]]:
        for changed in self._one_part(base):
            ((_, value),) = changed.items()
            if not isinstance(value, str):
                yield changed

    # ---- two changes, and more -----------------------------------------------------------------------

    def _two_parts(self, base: Any) -> Iterator[Any]:
        """Each pair of parts with each pair of other values, those that matter most first."""
        values = {name: others[:_PARTS] for name, others in self._values(base).items()}
        for total in range(2 * _PARTS - 1):
            for one, other in itertools.combinations(values, 2):
                for first in range(total + 1):
                    if first < len(values[one]) and total - first < len(values[other]):
                        changed = {one: values[one][first], other: values[other][total - first]}
                        yield _with(base, changed, TOGETHER_CHANGED)

    def _further(self, base: Any, pairs: Sequence[Any]) -> Iterator[Any]:
        """Changes of programs that differ from the example in two parts, each pair of parts in turn."""
        chosen = _of_each_kind(pairs, 1, base)
        if not chosen:
            return
        each = max(4 * _TRIED * self.count // len(chosen), 24)
        for drawing in chosen:
            example = _varied(drawing)
            kinds = [
                *(self._made(drawing, FURTHER, change(example)) for change in TOGETHER if change is not with_types),
                self._made(drawing, FURTHER, self._one_part(drawing)),
            ]
            yield from self._some(in_turn(kinds), max(4 * self.count // len(chosen), 2), each)


def _key(drawing: Any) -> str:
    """A text that two programs share if they are the same."""
    free = list(drawing.ignored.values()) if isinstance(drawing, Drawing) else []
    return f"{drawing} {drawing.runs} {free}".removeprefix(drawing.aspect)


def _of_each_kind(drawings: Sequence[Any], count: int, base: Any = None) -> list[Any]:
    """The first drawings of each aspect, or of each set of parts that differ from a base."""
    groups: dict[Any, list[Any]] = {}
    for drawing in drawings:
        key: Any = drawing.aspect
        if base is not None or drawing.aspect == "parts":
            other = (base or drawings[0]).example
            changed = {n: value for n, value in drawing.example.items() if str(value) != str(other.get(n))}
            key = tuple((n, None if isinstance(value, str) else str(value)) for n, value in changed.items())
        groups.setdefault(key, []).append(drawing)
    return [drawing for group in groups.values() for drawing in group[:count]]


def _varied(drawing: Any) -> dict[str, Any]:
    """The parts of an example to vary. Words are left out; some look like types."""
    tensors = tensor_parts(drawing)
    fixed: set[str] = set()
    if isinstance(drawing, Drawing):
        fixed = set(drawing.same)
    else:
        schema = operator_schema(drawing.op)
        if not has_one_tensor(drawing.example, schema):  # a size of one of the tensors, which kernels do not check
            fixed = {name for name in drawing.example if schema[name].type == "SymInt"}
    return {
        name: value
        for name, value in drawing.example.items()
        if name not in fixed and not (isinstance(value, str) and name not in tensors)
    }


def _with(base: Any, changed: Mapping[str, Any], aspect: str) -> Any:
    """A program with other parts. The other runs of a program with open sizes have the new parts, too; there are none
    if a part changes that is open."""
    runs = [] if any(name in run for run in base.runs for name in changed) else base.runs
    return replace(base, example={**base.example, **changed}, aspect=aspect, runs=runs)


def _may_change_tensors(drawing: Any, parts: ExampleParts) -> bool:
    """Whether one tensor may have another shape than the others: kernels of other ops may read beyond it."""
    if not isinstance(drawing, OpDrawing) or parts.is_elementwise:
        return True
    return has_one_tensor(drawing.example, operator_schema(drawing.op))


def _axes(drawing: Any) -> set[str]:
    if isinstance(drawing, OpDrawing):
        return axis_arguments(operator_schema(drawing.op))
    return axes_in(drawing.rule, drawing.variant)


# ---- the values of a pattern -----------------------------------------------------------------------------


def _aliased(base: Drawing) -> Iterator[Drawing]:
    """The same value in the place of two inputs of one shape."""
    types = [name for name in sorted(tensor_parts(base)) if ExampleType.parsed(base.example[name])]
    for one, other in itertools.combinations(types, 2):
        for example in (base.example, {**base.example, other: base.example[one]}):
            if example[other] == example[one]:
                yield replace(base, example=example, same={other: one}, aspect="the same value twice")


def _with_inputs(base: Drawing) -> Iterator[Drawing]:
    """A number or a list of numbers that is an input of the program, where the pattern takes any value."""
    from patcomp.patterns.language import Capture, Const, OpNode

    found: dict[str, str] = {}
    for node in base.rule.graph.nodes:
        for name, argument in node.arguments.items() if isinstance(node, OpNode) else ():
            if isinstance(argument, Capture) and not isinstance(argument, Const):
                value = base.example[argument.name]
                if not isinstance(value, str | bool):
                    found.setdefault(argument.name, _element_of(node, name, base))
    chosen = [{name: element} for name, element in found.items()] + ([found] if len(found) > 1 else [])
    for as_inputs in chosen:
        drawing = replace(base, as_inputs=as_inputs, aspect="inputs in the place of constants")
        yield drawing
        yield from openings(drawing, drawing.aspect)


def _element_of(node: Any, argument: str, base: Drawing) -> str:
    """The element type of a number that is an operand."""
    declared = node.spec.argument(argument).type.partition("+")[0]
    first = next((t for value in base.example.values() if (t := ExampleType.parsed(value))), None)
    return {"IDX": "si32", "UIDX": "ui32", "B": "i1"}.get(declared, first.element if first else "f32")

"""The structural difference of two programs: ops that only one has, and ops that take other values.

The order of ops, names of values, locations and the names of composites' graphs do not count.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from patcomp.ir.constants import attribute_values, is_constant
from patcomp.ir.module import IRModule, callee, graph_name, names_of
from patcomp.ir.text import TextPrinter
from patcomp.ir.xdsl import Attribute, Operation, Region, SSAValue, maker_of, ops_inside

Lines = Sequence[tuple[Operation, str]]
"""Ops, and the text of each without names of values."""


@dataclass(frozen=True)
class Line:
    """One difference of two graphs."""

    sign: str
    """`-` for what only the first has, `+` for what only the second has, `~` for an op that takes other values."""
    text: str
    first: Operation | None = None
    """The op of the first graph, if the difference is of one."""
    second: Operation | None = None

    def __str__(self) -> str:
        return f"{self.sign} {self.text}"


@dataclass(frozen=True)
class GraphPair:
    """A graph of the first program and the corresponding graph of the second; None in place of a missing one."""

    first: Operation | None
    second: Operation | None
    lines: tuple[Line, ...]
    """How they differ."""
    ops: Mapping[Operation, Operation] = field(default_factory=dict)
    """The op of the second graph for each of the first that has an equal one."""


@dataclass(frozen=True)
class GraphDifference:
    """How the graphs of one name differ."""

    graph: str
    lines: tuple[str, ...]
    """`- op` for what only the first program has, `+ op` for what only the second has, `~ op` for an op of both that
    takes other values."""


@dataclass(frozen=True)
class Difference:
    """How two programs differ; it is true if they do, and prints as lines."""

    graphs: tuple[GraphDifference, ...] = ()
    weights: tuple[str, ...] = ()
    """The weights of both whose values differ."""

    def __bool__(self) -> bool:
        return bool(self.graphs or self.weights)

    @property
    def other_values(self) -> int:
        """How many weights and constants have other values; 0 if the ops of the programs differ beyond them."""
        lines = [line for each in self.graphs for line in each.lines if not line.startswith("~")]
        constants = sum(line.startswith("- coreai.constant ") for line in lines)
        same_ops = all(line[2:].startswith("coreai.constant ") for line in lines) and 2 * constants == len(lines)
        return len(self.weights) + constants if same_ops else 0

    def __str__(self) -> str:
        parts = [f"graph @{each.graph}\n" + "\n".join(f"  {line}" for line in each.lines) for each in self.graphs]
        if self.weights:
            parts.append("weights with other values\n" + "\n".join(f"  {name}" for name in self.weights))
        return "\n".join(parts) or "the programs have the same structure"


def difference(
    first: IRModule,
    second: IRModule,
    values: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {}),
) -> Difference:
    """Compare two programs.

    Args:
        first, second: the programs, at any stage.
        values: what stands for the values of each program's weights, such as a hash, by name. Weights are compared
            that both have; others count by name and type only.
    """
    found = [
        GraphDifference(graph_name(pair.first or pair.second), tuple(map(str, pair.lines)))  # type: ignore[arg-type]
        for pair in paired_graphs(first, second)
        if pair.lines
    ]
    shared = [name for name in values[0] if name in values[1]]
    return Difference(tuple(found), tuple(name for name in shared if values[0][name] != values[1][name]))


def paired_graphs(first: IRModule, second: IRModule) -> list[GraphPair]:
    """Pair the graphs of two programs, in the order of the first; unpaired graphs of the second follow."""
    ours = {graph_name(graph): graph for graph in first.graphs}
    theirs = {graph_name(graph): graph for graph in second.graphs}
    partners = _partners(ours, theirs)
    renamed = {other: name for name, other in partners.items()}
    found = [
        _compare(graph, theirs[partners[name]], renamed)
        if name in partners
        else GraphPair(graph, None, (Line("-", "the graph", graph),))
        for name, graph in ours.items()
    ]
    alone = [graph for name, graph in theirs.items() if name not in renamed]
    return found + [GraphPair(None, graph, (Line("+", "the graph", None, graph),)) for graph in alone]


def _partners(ours: Mapping[str, Operation], theirs: Mapping[str, Operation]) -> dict[str, str]:
    """The graph of the second program for each of the first: of the same name, or of the same composite and type."""
    found = {name: name for name in ours if name in theirs}
    free = [name for name in theirs if name not in found]
    for name, graph in ours.items():
        if name in found or "composite_decl" not in graph.properties:
            continue
        match = next((other for other in free if _declared(theirs[other]) == _declared(graph)), None)
        if match is not None:
            found[name] = match
            free.remove(match)
    return found


def _declared(graph: Operation) -> tuple[Attribute | None, ...]:
    return graph.properties.get("composite_decl"), graph.properties["function_type"]


def _compare(first: Operation, second: Operation, renamed: Mapping[str, str]) -> GraphPair:
    lines = [
        Line(sign, line)
        for sign, own, other in (("-", first, second), ("+", second, first))
        for line in _interface(own)
        if line not in _interface(other)
    ]
    texts, match = _Texts(), _Matching(first, second)
    ours = [(op, texts.line(op, {})) for op in _ops(first)]
    theirs = [(op, texts.line(op, renamed)) for op in _ops(second)]
    pairs = match.pairs(ours, theirs)
    found = set(pairs.values())
    shown = [texts.shown(op, line) for op, line in ours], [texts.shown(op, line) for op, line in theirs]

    def only_theirs(start: int, end: int) -> Iterator[Line]:
        return (Line("+", shown[1][at], None, theirs[at][0]) for at in range(start, end) if at not in found)

    given = 0
    for index, (op, _) in enumerate(ours):
        line, partner = shown[0][index], pairs.get(index)
        if partner is None:
            lines.append(Line("-", line, op))
            continue
        lines += only_theirs(given, partner)
        given = max(given, partner)
        other = theirs[partner][0]
        for position, (mine, its) in enumerate(zip(op.operands, other.operands, strict=True)):
            if not match.agree(mine, its):
                changed = f"{line}: operand {position} is {_origin(its)}, and was {_origin(mine)}"
                lines.append(Line("~", changed, op, other))
        if not match.agree(op.parent_region(), other.parent_region()):
            lines.append(Line("~", f"{line}: it is in another region", op, other))
    lines += only_theirs(given, len(theirs))
    return GraphPair(first, second, tuple(lines), {ours[mine][0]: theirs[its][0] for mine, its in pairs.items()})


class _Matching:
    """The correspondence of the values of two graphs: corresponding values have equal tokens."""

    def __init__(self, first: Operation, second: Operation) -> None:
        self._tokens: dict[SSAValue | Region | None, object] = {}
        self._pair(first, second)

    def agree(self, mine: SSAValue | Region | None, its: SSAValue | Region | None) -> bool:
        """Whether two values or regions correspond, or neither has a counterpart."""
        return self._tokens.get(mine) == self._tokens.get(its)

    def pairs(self, ours: Lines, theirs: Lines) -> dict[int, int]:
        """The op of the second graph, by its number, for each op of the first that has an equal one.

        An op of equal operands is preferred; what is left is matched in the order of the graphs.
        """
        free: dict[str, list[int]] = {}
        for number, (op, line) in enumerate(theirs):
            free.setdefault(line, []).append(number)
            self._same_constant(op, line)
        pairs: dict[int, int] = {}
        for exact in (True, False):
            for number, (op, line) in enumerate(ours):
                self._same_constant(op, line)
                candidates = free.get(line, ()) if number not in pairs else ()
                for other in candidates:
                    partner = theirs[other][0]
                    if not exact or all(map(self.agree, _inputs(op), _inputs(partner))):
                        pairs[number] = other
                        free[line].remove(other)
                        self._pair(op, partner)
                        break
        return pairs

    def _pair(self, op: Operation, partner: Operation) -> None:
        for mine, its in zip(_outputs(op), _outputs(partner), strict=False):
            if mine not in self._tokens:
                self._tokens[mine] = self._tokens[its] = object()

    def _same_constant(self, op: Operation, line: str) -> None:
        """Equal constants are one value, however many there are."""
        if not op.operands and not op.regions and len(op.results) == 1:
            self._tokens[op.results[0]] = line


def _interface(graph: Operation) -> list[str]:
    """A line for each argument and result of a graph."""
    type_ = graph.properties["function_type"]
    sides = (("argument", "arg_attrs", type_.inputs), ("result", "res_attrs", type_.outputs))  # type: ignore[attr-defined]
    return [
        f"{what} {index} {name or ''}: {kind}"
        for what, attribute, types in sides
        for index, (name, kind) in enumerate(zip(names_of(graph, attribute), types, strict=True))
    ]


def _ops(graph: Operation) -> list[Operation]:
    return [op for region in graph.regions for op in ops_inside(region)]


def _inputs(op: Operation) -> tuple[SSAValue | Region | None, ...]:
    """The operands of an op, and its parent region."""
    return (*op.operands, op.parent_region())


def _outputs(op: Operation) -> Iterator[SSAValue | Region]:
    """What an op makes: its results, its regions and their arguments."""
    yield from op.results
    for region in op.regions:
        yield region
        for block in region.blocks:
            yield from block.args


def _origin(value: SSAValue) -> str:
    maker = maker_of(value)
    name = f"%{value.name_hint} " if value.name_hint else ""
    return f"{name}of {maker.name}" if maker is not None else f"argument {name.strip() or value.index}"  # type: ignore[attr-defined]


_READ = 8
"""The numbers of a constant that one reads."""


class _Texts:
    """The text of ops without the names of values."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self._printer = TextPrinter(self._stream, names=False)

    def line(self, op: Operation, renamed: Mapping[str, str]) -> str:
        """An op's name, attributes and types, as text; the name of a called graph is replaced by its name in
        `renamed`."""
        attributes = {**op.attributes, **op.properties}
        called = ""
        if op.name == "coreai.invoke":
            called = f" @{renamed.get(callee(op), callee(op))}"
            attributes.pop("callee", None)
        shown = ", ".join(f"{name} = {self._text(attributes[name])}" for name in sorted(attributes))
        takes, gives = ([self._text(value.type) for value in values] for values in (op.operands, op.results))
        types = f" : ({', '.join(takes)}) -> ({', '.join(gives)})" if takes or gives else ""
        return f"{op.name}{called}{f' {{{shown}}}' if shown else ''}{types}"

    def shown(self, op: Operation, line: str) -> str:
        """The line of an op as its reader sees it: of a constant the name of the weight, or the first numbers."""
        if not is_constant(op):
            return line
        value = op.properties["value"]
        numbers = attribute_values(value)
        if numbers is None or numbers.size <= _READ or not any(numbers.strides):
            return f"{op.name} {self._text(value)}"
        first = ", ".join(
            f"{each:.6g}" if isinstance(each, float) else str(each) for each in numbers.flat[:_READ].tolist()
        )
        return f"{op.name} dense<[{first}, ...]> : {self._text(op.results[0].type)}"

    def _text(self, attribute: Attribute) -> str:
        self._stream.seek(0)
        self._stream.truncate()
        self._printer.print_attribute(attribute)
        return self._stream.getvalue()

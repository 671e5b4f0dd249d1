"""The program after one stage as plain data: its graphs, the text of each op, and where each op comes from.

Texts and places are numbers of tables that all stages share, because most ops are equal in several stages.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from patcomp.ir.module import IRModule, callee, graph_name
from patcomp.ir.region import RegionOp
from patcomp.ir.text import TextPrinter
from patcomp.ir.xdsl import (
    Block,
    FileLineColLoc,
    FusedLoc,
    LocationAttr,
    NameLoc,
    Operation,
    OpResult,
    SSAValue,
    ops_inside,
)
from patcomp.report.facts import op_kind, operand_names, shown_facts

_UNKNOWN_PLACE = 0
"""The number of the place of an op without a location."""


class Tables:
    """The texts and places that the ops of all stages share; `places` says whether to name places in the model."""

    def __init__(self, places: bool = True) -> None:
        self._named = places
        self._texts: dict[str, int] = {}
        self._places: dict[tuple[Any, ...], int] = {(): _UNKNOWN_PLACE}
        self._known: dict[int, tuple[LocationAttr, int]] = {}
        self._kinds: dict[str, str] = {}

    def text(self, text: str) -> int:
        """The number of a text."""
        return self._texts.setdefault(text, len(self._texts))

    def name(self, op: Operation) -> int:
        """The number of an op's name, whose kind is kept."""
        if op.name not in self._kinds:
            self._kinds[op.name] = op_kind(op)
        return self.text(op.name)

    def place(self, location: LocationAttr) -> int:
        """The number of a location, by its content."""
        known = self._known.get(id(location))
        if known is None:  # the location is kept, so that no other object gets its id
            known = self._known[id(location)] = (location, self._number(location))
        return known[1]

    def _number(self, location: LocationAttr) -> int:
        key: tuple[Any, ...] = ()
        if isinstance(location, FusedLoc):
            key = ("", *self._parts(location))
        elif isinstance(location, NameLoc):
            child = location.location
            if isinstance(child, FusedLoc):
                key = (location.desc.data, *self._parts(child))
            else:
                node, _, path = location.desc.data.partition("@")
                source = f"{child.filename.data}:{child.line.data}" if isinstance(child, FileLineColLoc) else ""
                key = (None, node, path, source)
        return self._places.setdefault(key, len(self._places))

    def _parts(self, location: FusedLoc) -> Iterator[int]:
        for part in location.locations.data:  # type: ignore[attr-defined]
            if number := self.place(part):
                yield number

    def data(self) -> dict[str, Any]:
        """The tables. A place is `[rule, parts...]`, or `[null, node, module path, source]`; texts are numbers.

        Places without names stay distinct, so that the ops of a stage still lead to the ops of the stage before.
        """
        places = [self._place(*key) if key else [] for key in self._places]
        return {"places": places, "texts": list(self._texts), "kinds": self._kinds}

    def _place(self, rule: str | None, *parts: Any) -> list[int | None]:
        if rule is not None:
            return [self.text(rule), *parts]
        return [None, *map(self.text, parts if self._named else ("", "", ""))]


def snapshot(module: IRModule, tables: Tables) -> list[dict[str, Any]]:
    """The graphs of a module, in order, each with its ops."""
    printer = _OpTexts()
    printer.print_op(module.op)
    texts = printer.texts()
    graphs: dict[str, Operation] = {graph_name(graph): graph for graph in module.graphs}
    return [_graph(graph, graphs, texts, tables) for graph in graphs.values()]


def _graph(
    graph: Operation, graphs: dict[str, Operation], texts: dict[Operation, str], tables: Tables
) -> dict[str, Any]:
    """A graph as lists, with an entry for each op at any depth in the order of the program.

    `inputs` has, for each operand, the number of the op that made it, and `takes` their names; an argument of the
    graph is a negative number. An argument of an inner block counts as the operand that it stands for, or else as made
    by the op around it.
    """
    ops = ops_inside(graph)
    numbers = {op: number for number, op in enumerate(ops)}
    own = graph.regions[0].block
    ops_data: dict[str, list[Any]] = {
        key: [] for key in ("name", "text", "parent", "inputs", "takes", "facts", "place", "calls", "value")
    }
    for op in ops:
        around = op.parent_op()
        ops_data["name"].append(tables.name(op))
        ops_data["text"].append(tables.text(texts[op]))
        ops_data["parent"].append(-1 if around is None or around is graph else numbers[around])
        ops_data["inputs"].append([_source(operand, numbers, own) for operand in op.operands])
        ops_data["takes"].append(tables.text(",".join(operand_names(op, graphs))))
        ops_data["facts"].append(tables.text("\n".join(shown_facts(op, graphs))))
        ops_data["place"].append(tables.place(op.location))
        ops_data["calls"].append(tables.text(_called(op)))
        result = op.results[0] if op.results else None
        ops_data["value"].append([tables.text(result.name_hint or ""), tables.text(str(result.type))] if result else [])
    declaration: Any = graph.properties.get("composite_decl")
    return {
        "name": graph_name(graph),
        "composite": declaration.composite_name.data if declaration is not None else "",
        "private": "priv" in graph.properties,
        "arguments": [[argument.name_hint or "", str(argument.type)] for argument in own.args],
        "text": tables.text(texts[graph]),
        "ops": ops_data,
    }


def _source(operand: SSAValue, numbers: dict[Operation, int], own: Block) -> int:
    if isinstance(operand, OpResult):
        return numbers[operand.op]
    block = operand.owner
    assert isinstance(block, Block)
    around = block.parent_op()
    if block is own or around is None:
        return -1 - operand.index  # type: ignore[attr-defined]
    if around.name in _PASSING and block is around.regions[0].block:
        return _source(around.operands[operand.index], numbers, own)  # type: ignore[attr-defined]
    return numbers[around]


_PASSING = ("patcomp.region", "coreai.while", "coreai.isolated_group")
"""The ops whose first block has an argument for each operand."""


def _called(op: Operation) -> str:
    """The graph whose content an op stands for; empty if there is none."""
    if op.name == "coreai.invoke":
        return callee(op)
    if isinstance(op, RegionOp) and op.graph is not None:
        return op.graph.string_value()
    return ""


class _OpTexts(TextPrinter):
    """A printer that knows where the text of each op is."""

    def __init__(self) -> None:
        self._text = io.StringIO()
        super().__init__(self._text)
        self._spans: dict[Operation, tuple[int, int]] = {}

    def print_op(self, op: Operation) -> None:
        start = self._text.tell()
        super().print_op(op)
        self._spans[op] = (start, self._text.tell())

    def texts(self) -> dict[Operation, str]:
        """The text of each op; of an op with regions, its first line."""
        text = self._text.getvalue()
        return {
            op: text[start : text.find("\n", start, end) if op.regions and "\n" in text[start:end] else end]
            for op, (start, end) in self._spans.items()
        }

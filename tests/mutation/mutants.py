"""Finds the mutants of a file: small changes of its code, each of which a test should notice.

A mutant makes a condition always true or always false, drops an operand of `and` or `or`, exchanges an operator
(`<` for `<=`, `+` for `-`, `min` for `max`), changes a number, a flag or a name in quotes, or leaves a statement out.
Messages, annotations and assertions are left alone.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

EXCHANGED: dict[type[ast.AST], type[ast.AST]] = {
    left: right
    for pair in (
        (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn),
        (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.BitAnd, ast.BitOr),
    )
    for left, right in (pair, pair[::-1])
} | {ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.Div: ast.Mult, ast.LShift: ast.RShift}  # fmt: skip
FUNCTIONS = {"any": "all", "all": "any", "min": "max", "max": "min"}
NAME = re.compile(r"[\w.:]+")


@dataclass(frozen=True)
class Mutant:
    """A change of one place of a file."""

    function: str
    """The name of the innermost function around the place, with its classes; empty outside of functions."""
    first_line: int
    """The line on which that function starts, its decorators included; 0 outside of functions."""
    line: int
    before: str
    after: str
    number: int
    """Counts equal changes in one function."""
    start: int
    """Where the place starts and ends, in bytes."""
    end: int

    @property
    def key(self) -> str:
        """Names the mutant as long as its function keeps its name and the changed code."""
        again = f" #{self.number}" if self.number else ""
        return f"{self.function or 'module'}: `{self.before}` -> `{self.after}`{again}"

    def apply(self, source: str) -> str:
        """The source of the file with the change."""
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


def mutants(source: str) -> list[Mutant]:
    """All mutants of a source, in the order of its lines."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=_place)


def sample(found: list[Mutant], size: int, share: float, seed: int) -> list[Mutant]:
    """At least `size` mutants and at least this share of all, drawn by their keys: a change elsewhere in the file
    leaves most of the sample as it is."""
    count = max(size, round(share * len(found)))
    drawn = sorted(found, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest())[:count]
    return sorted(drawn, key=_place)


def _place(mutant: Mutant) -> tuple[int, int, str]:
    return mutant.start, mutant.end, mutant.after


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str):
        self.found: list[Mutant] = []
        self._data = source.encode()
        self._lines = [0, *accumulate(len(line) for line in self._data.splitlines(keepends=True))]
        self._scope: list[str] = []
        self._function = ("", 0)
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._conditions: set[ast.AST] = set()

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef):
            self._visit_function(node)
        elif isinstance(node, ast.ClassDef):
            self._visit_class(node)
        elif not _is_left_alone(node):
            for after in self._changes(node):
                self._record(node, after)
            for child in ast.iter_child_nodes(node):
                if child is not getattr(node, "annotation", None) and getattr(child, "arg", "") != "strict":
                    self.visit(child)

    def _visit_function(self, node: ast.FunctionDef) -> None:
        for outside in (*node.decorator_list, node.args):
            self.visit(outside)
        before = self._function
        self._scope.append(node.name)
        self._function = (".".join(self._scope), min(part.lineno for part in (node, *node.decorator_list)))
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()
        self._function = before

    def _visit_class(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    def _changes(self, node: ast.AST) -> Iterator[str]:
        """The texts that may stand in a node's place."""
        for condition in _conditions(node):
            self._conditions.add(condition)
        if node in self._conditions:
            yield from (text for text in ("True", "False") if text != ast.unparse(node))
        match node:
            case ast.Compare(ops=ops):
                for index, op in enumerate(ops):
                    # to negate a condition changes more than to fix it, and is noticed more easily
                    if type(op) in EXCHANGED and (node not in self._conditions or _is_bound(op)):
                        yield _changed(
                            node, lambda new, at=index, op=op: new.ops.__setitem__(at, EXCHANGED[type(op)]())
                        )
            case ast.BoolOp(values=values):
                for index in range(len(values)):
                    yield _changed(node, lambda new, at=index: new.values.pop(at))
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand) if node not in self._conditions:
                yield f"({ast.unparse(operand)})"
            case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in EXCHANGED:
                yield _changed(node, lambda new: setattr(new, "op", EXCHANGED[type(op)]()))
            case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
                yield _changed(node, lambda new: setattr(new.func, "id", FUNCTIONS[name]))
            case ast.Constant(value=bool(value)):
                yield str(not value)
            case ast.Constant(value=int(value)):
                yield str(value + 1)
            case ast.Constant(value=str(value)) if NAME.fullmatch(value):
                yield repr(f"{value}_changed")
            case ast.Continue() | ast.Break() | ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
                yield "pass"
            case ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                if self._scope[-1:] != ["__init__"]:
                    yield "pass"

    def _record(self, node: ast.AST, after: str) -> None:
        start = self._lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        before = " ".join(self._data[start:end].decode().split())
        function, first_line = self._function
        number = self._counts[function, before, after]
        self._counts[function, before, after] += 1
        self.found.append(Mutant(function, first_line, node.lineno, before, after, number, start, end))  # type: ignore


def _conditions(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.If | ast.IfExp):
        return [node.test]
    return node.ifs if isinstance(node, ast.comprehension) else []


def _is_bound(op: ast.cmpop) -> bool:
    return isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)


def _is_left_alone(node: ast.AST) -> bool:
    """Messages, types and what only readers of the code see."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.AnnAssign(value=None):
            return True
        case ast.Expr(value=ast.Constant()) | ast.Call(func=ast.Name(id="dataclass" | "TypeVar" | "cast")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name.startswith("__")
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _changed(node: ast.AST, change: Callable[[Any], object]) -> str:
    new = copy.deepcopy(node)
    change(new)
    text = ast.unparse(new)
    return text if isinstance(node, ast.stmt) else f"({text})"

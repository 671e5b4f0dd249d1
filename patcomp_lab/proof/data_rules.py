"""Which rules are data: a pattern or a formula, whose functions build the replacement without a branch."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from patcomp.patterns import Rule
from patcomp.patterns.formula import Formula

_BRANCHES = ast.If | ast.IfExp | ast.For | ast.While | ast.Try | ast.Match | ast.BoolOp | ast.Raise
_REFUSALS = ("expect", "reject")
_FUNCTIONS = ast.FunctionDef | ast.Lambda


def is_data(rule: Rule) -> bool:
    """Whether a rule has a pattern or a formula, and none of its functions has a branch, a loop or a refusal.

    Comprehensions are no loops, and what the functions call is vocabulary.
    """
    return (rule.is_declarative or rule.is_formula) and not any(map(_branches, _functions(rule)))


def _functions(rule: Rule) -> Iterator[Callable[..., Any]]:
    """The functions that build the replacement of a rule."""
    if isinstance(rule.function, Formula):
        yield from rule.function.written
    yield from (call.function for call in rule.target_calls() if inspect.isfunction(call.function))


def _branches(function: Callable[..., Any]) -> bool:
    """Whether the text of a function has a branch, or is not known. Of several lambdas on one line, whether one has."""
    code = inspect.unwrap(function).__code__
    known = _defined(code.co_filename).get(code.co_firstlineno, [])
    return not known or any(map(_has_branch, known))


@cache
def _defined(file: str) -> dict[int, list[_FUNCTIONS]]:
    """The functions of a file by the line on which each begins, a decorator's if there is one."""
    found: dict[int, list[_FUNCTIONS]] = {}
    for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
        if isinstance(node, _FUNCTIONS):
            lines = [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]
            found.setdefault(min(lines), []).append(node)
    return found


def _has_branch(function: _FUNCTIONS) -> bool:
    parts = function.body if isinstance(function.body, list) else [function.body]
    nodes = [node for part in parts for node in ast.walk(part)]
    called = [node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return any(isinstance(node, _BRANCHES) for node in nodes) or any(name in _REFUSALS for name in called)

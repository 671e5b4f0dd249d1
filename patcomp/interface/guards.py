"""Conditions on the sizes of an entry point's inputs, as data that can be printed and checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "or": lambda a, b: a or b,
    "and": lambda a, b: a and b,
    "not": operator.not_,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "**": operator.pow,
    "min": min,
    "max": max,
    "abs": abs,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
    "float": float,
}

_BINDING = {"or": 1, "and": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "+": 4, "-": 4}
_BINDING |= {"*": 5, "//": 5, "%": 5, "/": 5, "**": 6}
"""How strongly each infix operator binds."""


@dataclass(frozen=True)
class Guard:
    """A condition on named dimensions, or a number computed from them: `seq % 2 == 0`."""

    operator: str
    """A key of `_FUNCTIONS`: an operator of Python or the name of a function."""
    operands: tuple[Guard | str | int | float, ...]
    """Operands of the expression; the leaves are numbers and names of dimensions."""

    def __str__(self) -> str:
        binding = _BINDING.get(self.operator)
        if binding is None:
            return f"{self.operator}({', '.join(map(str, self.operands))})"
        left, right = (
            f"({operand})" if isinstance(operand, Guard) and self._parts(operand, index) else f"{operand}"
            for index, operand in enumerate(self.operands)
        )
        return f"{left}*{right}" if self.operator == "*" else f"{left} {self.operator} {right}"

    def _parts(self, operand: Guard, index: int) -> bool:
        """Whether an operand of an infix operator is printed in parentheses."""
        own, other = _BINDING[self.operator], _BINDING.get(operand.operator, 9)
        return other < own or (other == own and (index > 0 or operand.operator != self.operator))

    @property
    def names(self) -> tuple[str, ...]:
        """The named dimensions in the expression, each once."""
        found: dict[str, None] = {}
        for operand in self.operands:
            names = operand.names if isinstance(operand, Guard) else (operand,) if isinstance(operand, str) else ()
            found |= dict.fromkeys(names)
        return tuple(found)

    def value(self, sizes: Mapping[str, int]) -> Any:
        """The value for sizes of all its names; False for a condition that divides by zero."""
        try:
            return _FUNCTIONS[self.operator](*(_value(operand, sizes) for operand in self.operands))
        except ZeroDivisionError:
            return False

    def given(self, sizes: Mapping[str, int]) -> Guard:
        """The same with some names replaced by numbers."""
        operands = (
            operand.given(sizes) if isinstance(operand, Guard)
            else sizes.get(operand, operand) if isinstance(operand, str)
            else operand
            for operand in self.operands
        )  # fmt: skip
        return Guard(self.operator, tuple(operands))


def _value(operand: Guard | str | int | float, sizes: Mapping[str, int]) -> Any:
    if isinstance(operand, Guard):
        return operand.value(sizes)
    return sizes[operand] if isinstance(operand, str) else operand

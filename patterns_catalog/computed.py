"""Formulas of numbers that are known now, as numpy arrays, or only at run time, as values: one spelling for both.

`Computed` has the operators of Python; the functions here take numpy arrays as well. A formula that is given arrays
alone gives an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value


class Computed:
    """A value of float32, int32 or bool with Python's operators; the other operand gets its element type."""

    __array_ufunc__ = None
    """Makes numpy leave `array + computed` to this class."""

    def __init__(self, c: Coreai, value: Value):
        self.c, self.value = c, value

    @classmethod
    def of(cls, c: Coreai, number: Any, element: str) -> Computed:
        """A number, array or value in an element type."""
        if isinstance(number, Computed):
            number = number.value
        return cls(c, c.cast(number, element) if isinstance(number, Value) else c.constant(number, element))

    def _with(self, name: str, left: Any, right: Any) -> Computed:
        function = getattr(self.c, f"broadcasting_{name}")
        return Computed(self.c, function(*(self._operand(side) for side in (left, right))))

    def _operand(self, other: Any) -> Value:
        """The other operand, in the element type of this value."""
        if isinstance(other, Computed):
            return other.value
        return self.c.constant(np.asarray(other), self.value.element_type)

    def __add__(self, other: Any) -> Computed:
        return self._with("add", self, other)

    def __radd__(self, other: Any) -> Computed:
        return self._with("add", other, self)

    def __sub__(self, other: Any) -> Computed:
        return self._with("sub", self, other)

    def __rsub__(self, other: Any) -> Computed:
        return self._with("sub", other, self)

    def __mul__(self, other: Any) -> Computed:
        return self._with("mul", self, other)

    def __rmul__(self, other: Any) -> Computed:
        return self._with("mul", other, self)

    def __truediv__(self, other: Any) -> Computed:
        return self._with("divide", self, other)

    def __floordiv__(self, other: Any) -> Computed:
        return self._with("floor_divide", self, other)

    def __lt__(self, other: Any) -> Computed:
        return self._with("greater", other, self)

    def __abs__(self) -> Computed:
        return Computed(self.c, self.c.abs_(self.value))

    def __getitem__(self, key: tuple[slice | None, slice | None]) -> Computed:
        """A vector as a column, `x[:, None]`, or as a row, `x[None, :]`."""
        return Computed(self.c, self.c.expand_dims(self.value, [key.index(None)]))


def maximum(a: Any, b: Any) -> Any:
    """The larger of two numbers, at each place."""
    return _first(a, b)._with("maximum", a, b) if _any(a, b) else np.maximum(a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two numbers, at each place."""
    return _first(a, b)._with("minimum", a, b) if _any(a, b) else np.minimum(a, b)


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where a condition holds, `b` elsewhere; a computed condition needs a computed branch."""
    if not _any(condition, a, b):
        return np.where(condition, a, b)
    branch = _first(a, b)
    c, flag = branch.c, condition.value if isinstance(condition, Computed) else branch.c.constant(condition)
    return Computed(c, c.broadcasting_where(flag, branch._operand(a), branch._operand(b)))


def floor(x: Any) -> Any:
    """The largest integer that is not larger, as a float."""
    return Computed(x.c, x.c.broadcasting_floor_divide(x.value, 1.0)) if isinstance(x, Computed) else np.floor(x)


def whole(x: Any) -> Any:
    """A float cut toward zero, as an int32."""
    return Computed(x.c, x.c.cast(x.value, "si32")) if isinstance(x, Computed) else np.trunc(x).astype(np.int32)


def real(x: Any) -> Any:
    """An int32 as a float32; arrays stay as they are."""
    return Computed(x.c, x.c.cast(x.value, "f32")) if isinstance(x, Computed) else x


def row_sums(x: Any) -> Any:
    """The sum of each row of a matrix, as a column."""
    return Computed(x.c, x.c.reduce_sum(x.value, [1])) if isinstance(x, Computed) else x.sum(1, keepdims=True)


def not_zero(x: Any) -> Any:
    """A number, or 1 in place of 0."""
    if isinstance(x, Computed):
        return Computed(x.c, x.c.broadcasting_where(x.c.broadcasting_equal(x.value, 0), 1.0, x.value))
    return np.where(x == 0, 1, x)


def _any(*numbers: Any) -> bool:
    return any(isinstance(number, Computed) for number in numbers)


def _first(*numbers: Any) -> Computed:
    return next(number for number in numbers if isinstance(number, Computed))

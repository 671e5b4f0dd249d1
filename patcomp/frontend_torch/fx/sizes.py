"""Sizes that are only known when the program runs, as values of the IR.

Export records such a size as a `SymInt`: an expression over symbols, simplified with the program's bounds, equalities
and divisibility. Nodes that compute sizes are not imported one by one. Where an op uses a size, its expression is built
from the dimensions of tensors. Sizes that export can prove are numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import sympy
import torch

from patcomp.ir import aten
from patcomp.ir.builder import Builder
from patcomp.ir.elements import numpy_dtype
from patcomp.ir.types import TensorType, element_type, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import set_name
from patcomp.pytorch import ValueRanges, bound_sympy, free_unbacked_symbols, int_oo, pytree, sympy_interp

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

_INTEGER = tensor((), "si64")


def scalar_type(size: Any) -> TensorType:
    """The type of the 0-d tensor that holds a size or a condition on sizes."""
    if isinstance(size, torch.SymBool | bool):
        return tensor((), "i1")
    return _INTEGER if isinstance(size, torch.SymInt | int) else tensor((), "f64")


class SizeError(TypeError):
    """A size cannot be computed when the program runs."""


def known(size: Any) -> Any:
    """A size as a Python number if it is the same on every run; otherwise unchanged."""
    number = number_in(size.node.expr) if isinstance(size, SYMBOLIC) else None
    return size if number is None else number


def number_in(expression: Any) -> bool | int | float | None:
    """The value of a SymPy expression without symbols; None if it has symbols."""
    if isinstance(expression, sympy.Integer | int):
        return int(expression)
    if expression is sympy.true or expression is sympy.false:
        return expression is sympy.true
    return float(expression) if isinstance(expression, sympy.Number) else None


def number_at(expression: Any, case: Mapping[sympy.Symbol, int]) -> bool | int | float | None:
    """The value of a SymPy expression at some sizes; None if it has further symbols."""
    try:
        return _computed(expression, case)
    except (LookupError, ZeroDivisionError):  # SymPy knows more functions, and takes a hundred times as long
        return number_in(expression.xreplace({symbol: sympy.Integer(size) for symbol, size in case.items()}))


def _computed(expression: Any, case: Mapping[sympy.Symbol, int]) -> Any:
    if isinstance(expression, sympy.Symbol):
        return case[expression]
    if isinstance(expression, sympy.Integer | int):
        return int(expression)
    return _OF_INTEGERS[type(expression)]([_computed(part, case) for part in expression.args])


_OF_INTEGERS: Mapping[type, Callable[[list[Any]], Any]] = {
    sympy.Add: sum, sympy.Mul: math.prod, sympy.And: all, sympy.Or: any,
    sympy.Eq: lambda pair: pair[0] == pair[1], sympy.Ne: lambda pair: pair[0] != pair[1],
    sympy.Le: lambda pair: pair[0] <= pair[1], sympy.Lt: lambda pair: pair[0] < pair[1],
    sympy.Ge: lambda pair: pair[0] >= pair[1], sympy.Gt: lambda pair: pair[0] > pair[1],
}  # fmt: skip
"""SymPy's functions of integers whose values are integers or truths."""


def number_of_dtype(number: Any, dtype: torch.dtype) -> bool | int | float:
    """A SymPy number as the Python number of a dtype, as `sympy_interp` asks for constants."""
    return {torch.bool: bool, torch.int64: int, torch.double: float}[dtype](number)


def known_shape(fake: torch.Tensor) -> list[Any]:
    """The shape of a (fake) tensor, with a number for each size that export proved.

    The tensor itself may still have a symbol that export replaced by a number later.
    """
    return [size if type(size) is int else known(size) for size in fake.shape]


def symbols_in(recorded: Any) -> set[sympy.Symbol]:
    """The symbols in recorded sizes and in the shapes of recorded tensors, in any nesting."""
    leaves = pytree.tree_leaves(recorded)
    sizes = (size for leaf in leaves for size in (leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,)))
    return {symbol for size in sizes if isinstance(size, SYMBOLIC) for symbol in size.node.expr.free_symbols}


def may_be_zero(size: torch.SymInt, ranges: Mapping[sympy.Symbol, Any]) -> bool:
    """Whether a size may be 0 where no input has a size of 0.

    Args:
        size: the size.
        ranges: the ranges of the program's symbols (`ExportedProgram.range_constraints`). PyTorch's own are narrower.
    """
    known, used = size.node.shape_env.var_to_range, size.node.expr.free_symbols
    limits = {symbol: ranges.get(symbol, known[symbol]) for symbol in used if symbol in known}
    inputs = {
        symbol: own & ValueRanges(1, int_oo) for symbol, own in limits.items() if not free_unbacked_symbols(symbol)
    }
    return bool(bound_sympy(size.node.expr, limits | inputs).lower < 1)


def _element(size: Any) -> str:
    if isinstance(size, Value):
        return size.dtype
    return "i1" if isinstance(size, bool) else "si64" if isinstance(size, int) else "f64"


def _common(a: Any, b: Any) -> str:
    return next((element for element in ("f64", "si64") if element in (_element(a), _element(b))), "i1")


def _binary(
    op: str, fold: Callable[[Any, Any], Any], *, element: str = "", result: str = "", right: str = "other", **more: Any
) -> Any:
    def method(self: GraphSizes, a: Any, b: Any) -> Any:
        if not isinstance(a, Value) and not isinstance(b, Value):
            return fold(a, b)
        common = element or _common(a, b)
        a, b = self._converted(a, common), self._converted(b, common)
        return self._op(op, tensor((), result or common), self=a, **{right: b}, **more)

    return method


def _unary(op: str, fold: Callable[[Any], Any], *, result: str = "") -> Any:
    def method(self: GraphSizes, size: Any, *index_dtype: torch.dtype) -> Any:
        if not isinstance(size, Value):
            return fold(size)
        made = self._op(op, size.ssa.type, self=size)
        return self._converted(made, result) if result else made

    return method


class GraphSizes:
    """The sizes of a graph's tensors, and the values computed from them."""

    def __init__(self) -> None:
        self._symbols: dict[sympy.Symbol, Callable[[], Any]] = {}
        self._made: dict[Any, Value] = {}
        self._outer: list[tuple[dict[sympy.Symbol, Callable[[], Any]], dict[Any, Value]]] = []

    def enter(self, operands: Iterable[tuple[Value, Any]]) -> None:
        """Enter a region with these operands; sizes inside are built inside, from the operands where possible."""
        outer = self._symbols
        self._outer.append((outer, self._made))
        self._symbols, self._made = {}, {}
        for value, recorded in operands:
            self.record(value, recorded)
        self._symbols = outer | self._symbols

    def leave(self, results: Iterable[tuple[Value, Any]]) -> None:
        """Leave the innermost region, which returns these results; values built inside are no longer used."""
        inner = self._symbols
        self._symbols, self._made = self._outer.pop()
        for value, recorded in results:
            self.record(value, recorded)
        self._symbols = inner | self._symbols

    @contextmanager
    def block(self) -> Iterator[None]:
        """Scope of a nested block: values built inside are not visible outside."""
        symbols, made = dict(self._symbols), dict(self._made)
        try:
            yield
        finally:
            self._symbols, self._made = symbols, made

    def record(self, value: Value, recorded: Any) -> None:
        """Record the sizes that can be computed from a value.

        Args:
            value: a tensor, whose dimensions determine the symbols in its shape, or a 0-d tensor that holds a size: an
                input, or the result of `.item()`.
            recorded: what export recorded for the value.
        """
        if isinstance(recorded, torch.Tensor):
            for axis, size in enumerate(recorded.shape):
                if type(size) is not int and isinstance(size := known(size), torch.SymInt):
                    dimension = partial(self._op, "aten.sym_size.int", _INTEGER, self=value, dim=axis)
                    self._solve(size.node.expr, dimension)
        elif isinstance(known(recorded), SYMBOLIC):
            expression = recorded.node.expr
            if isinstance(expression, sympy.Eq) and expression.rhs == 1:  # export writes a bool as `symbol == 1`
                self._solve(expression.lhs, lambda: self._converted(value, "si64"))
            elif isinstance(expression, sympy.Expr):
                self._solve(expression, lambda: value)

    def _solve(self, expression: sympy.Expr, size: Callable[[], Value]) -> None:
        """Record where the value of an expression is available, and solve for its symbol if possible."""
        free = [symbol for symbol in expression.free_symbols if symbol not in self._symbols]
        if len(free) != 1:
            return
        (symbol,) = free
        if expression == symbol:
            self._symbols[symbol] = size
            return
        # a derived dimension, `2 * s0 + 1`: solved for its symbol
        factor, rest = expression.coeff(symbol, 1), expression.coeff(symbol, 0)
        if factor.is_Integer and factor > 0 and sympy.expand(factor * symbol + rest - expression) == 0:
            self._symbols[symbol] = lambda: self.floordiv(self.add(size(), self.mul(-1, self._of(rest))), int(factor))

    def of(self, size: Any) -> Any:
        """A size as a number, or as a 0-d value built at the insertion point.

        Raises:
            SizeError: no tensor determines the size, or its expression has no op.
        """
        found = known(size)
        return self._of(found.node.expr) if isinstance(found, SYMBOLIC) else found

    def _of(self, expression: Any) -> Any:
        if expression in self._made:
            return self._made[expression]
        try:
            result = sympy_interp(self, {}, expression, missing_handler=self._symbol)
        except (AttributeError, KeyError) as error:
            raise SizeError(f"the size {expression} cannot be computed when the program runs: {error}") from error
        if isinstance(result, Value):
            self._made[expression] = result
        return result

    def _symbol(self, symbol: sympy.Symbol) -> Any:
        if symbol not in self._symbols:
            raise SizeError(f"no input and no tensor computed before has the size {symbol}")
        value = self._made.get(symbol)
        if value is None:
            value = self._made[symbol] = self._symbols[symbol]()
            if value.ssa.name_hint is None:
                set_name(value.ssa, str(symbol))
        return value

    def _op(self, name: str, type_: Any, /, **arguments: Any) -> Value:
        key = (name, *arguments.items())
        if key not in self._made:
            self._made[key] = aten.build(name, type_, **arguments)
        return self._made[key]

    def lifted(self, size: Any) -> Value:
        """The result of `of`, as a 0-d value even if it is a number."""
        if isinstance(size, Value):
            return size
        return Builder.current().constant(np.array(size), element_type(_element(size)))

    def _converted(self, size: Any, element: str) -> Value:
        if not isinstance(size, Value):
            return Builder.current().constant(np.array(size, numpy_dtype(element)), element_type(element))
        if size.dtype == element:
            return size
        return self._op("aten._to_copy", tensor((), element), self=size, dtype=element_type(element))

    # ---- the handlers of `sympy_interp`: of numbers they compute numbers, of values they build ops ------

    add = _binary("aten.add.Tensor", operator.add)
    mul = _binary("aten.mul.Tensor", operator.mul)
    floordiv = _binary("aten.div.Tensor_mode", operator.floordiv, rounding_mode="floor")
    mod = _binary("aten.remainder.Tensor", operator.mod)
    python_mod = _binary("aten.remainder.Tensor", operator.mod)
    minimum = _binary("aten.minimum", min)
    maximum = _binary("aten.maximum", max)
    int_truediv = _binary("aten.div.Tensor", operator.truediv, element="f64")
    truediv = _binary("aten.div.Tensor", operator.truediv, element="f64")
    pow = _binary("aten.pow.Tensor_Tensor", operator.pow, element="f64", right="exponent")
    bitwise_and = _binary("aten.bitwise_and.Tensor", operator.and_)
    bitwise_or = _binary("aten.bitwise_or.Tensor", operator.or_)
    bitwise_xor = _binary("aten.bitwise_xor.Tensor", operator.xor)
    and_ = _binary("aten.logical_and", operator.and_, element="i1")
    or_ = _binary("aten.logical_or", operator.or_, element="i1")
    not_ = _unary("aten.logical_not", operator.not_)
    abs = _unary("aten.abs", abs)
    sqrt = _unary("aten.sqrt", math.sqrt)
    trunc_to_int = _unary("aten.trunc", math.trunc, result="si64")
    floor_to_int = _unary("aten.floor", math.floor, result="si64")
    ceil_to_int = _unary("aten.ceil", math.ceil, result="si64")
    round_to_int = _unary("aten.round", round, result="si64")
    eq = _binary("aten.eq.Tensor", operator.eq, result="i1")
    ne = _binary("aten.ne.Tensor", operator.ne, result="i1")
    lt = _binary("aten.lt.Tensor", operator.lt, result="i1")
    le = _binary("aten.le.Tensor", operator.le, result="i1")
    gt = _binary("aten.gt.Tensor", operator.gt, result="i1")
    ge = _binary("aten.ge.Tensor", operator.ge, result="i1")

    constant = staticmethod(number_of_dtype)

    def identity(self, size: Any) -> Any:
        return size

    def to_dtype(self, size: Any, dtype: torch.dtype) -> Any:
        return self._converted(size, "f64") if isinstance(size, Value) else float(size)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        if not isinstance(condition, Value):
            return a if condition else b
        element = _common(a, b)
        a, b = self._converted(a, element), self._converted(b, element)
        return self._op("aten.where.self", tensor((), element), condition=condition, self=a, other=b)

    def expr_cond_pair(self, size: Any, condition: Any) -> tuple[Any, Any]:
        return size, condition

    def piecewise(self, *pairs: tuple[Any, Any]) -> Any:
        *others, (result, _) = pairs  # the last pair applies where no condition before holds
        for size, condition in reversed(others):
            result = self.where(condition, size, result)
        return result

    def pow_by_natural(self, base: Any, exponent: Any) -> Any:
        if isinstance(exponent, Value):
            raise SizeError("a power with a dynamic exponent cannot be computed when the program runs")
        result: Any = 1
        for _ in range(exponent):
            result = self.mul(result, base)
        return result

    def modular_indexing(self, base: Any, divisor: Any, modulus: Any) -> Any:
        return self.mod(self.floordiv(base, divisor), modulus)

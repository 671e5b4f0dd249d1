"""Expressions over a match: conditions and computed attributes, which carry their own text.

`w.shape[0] == x.shape[-1]` is an object that can be evaluated on a match and quoted when it is false.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from patcomp.errors import RuleError
from patcomp.ir.value import Value


class Bindings(Protocol):
    """The part of a match (`patterns.match.Match`) that expressions read."""

    @property
    def tags(self) -> Mapping[str, Any]: ...

    @property
    def assumed(self) -> Collection[str]: ...

    def value_of(self, node: Any) -> Any: ...

    def attribute_of(self, attribute: Any) -> Any: ...


class Undefined(Exception):  # noqa: N818  (not an error: the condition cannot hold, and says why)
    """An expression has no value on a match: a dynamic dimension, a rank too small, an unbound capture."""


_OPERATORS: Mapping[str, tuple[int, Callable[[Any, Any], Any]]] = {
    "==": (4, operator.eq),
    "!=": (4, operator.ne),
    "<": (4, operator.lt),
    "<=": (4, operator.le),
    ">": (4, operator.gt),
    ">=": (4, operator.ge),
    "+": (6, operator.add),
    "-": (6, operator.sub),
    "*": (7, operator.mul),
    "/": (7, operator.truediv),
    "//": (7, operator.floordiv),
    "%": (7, operator.mod),
    "**": (9, operator.pow),
}
"""How tightly each operator binds, and its function."""


def binary(symbol: str, *, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """The method of a Python operator; the reflected one has the object on the right."""

    def build(self: Operators, other: Any) -> Any:
        return self._operator(symbol, *((other, self) if reflected else (self, other)))

    return build


class Operators:
    """The arithmetic operators of Python, on what a rule is written with. They are built, not computed."""

    def _operator(self, symbol: str, *operands: Any) -> Any:
        """The expression or pattern node of an operator."""
        raise NotImplementedError

    __add__ = binary("+")
    __radd__ = binary("+", reflected=True)
    __sub__ = binary("-")
    __rsub__ = binary("-", reflected=True)
    __mul__ = binary("*")
    __rmul__ = binary("*", reflected=True)
    __truediv__ = binary("/")
    __rtruediv__ = binary("/", reflected=True)
    __pow__ = binary("**")
    __rpow__ = binary("**", reflected=True)


class Expression(Operators):
    """Base of all expressions. Operators build larger ones; nothing is evaluated when a rule is declared."""

    precedence = 10
    is_shape = False
    """Whether the value is a shape. None in a shape is a dynamic dimension."""
    is_local = False
    """Whether the value depends only on the types and the constants that the match bound, not on ops around them."""

    def evaluate(self, match: Bindings) -> Any:
        """The value on a match.

        Raises:
            Undefined: it has no value.
        """
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The expression as its author wrote it."""
        raise NotImplementedError

    def leaves(self) -> Iterator[Expression]:
        """The parts that read the match, for the explanation of a false condition."""
        yield self

    def captured(self) -> Iterator[Any]:
        """The pattern nodes that the expression reads."""
        return iter(())

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text}>"

    def __bool__(self) -> bool:
        raise RuleError(
            f"`{self.text}` has no truth value while a rule is declared; combine conditions with &, | and ~, "
            f"write chained comparisons apart, and pass them in where="
        )

    def __hash__(self) -> int:
        return id(self)

    def _operator(self, symbol: str, *operands: Any) -> Expression:
        return Binary(symbol, *operands)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Binary("==", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Binary("!=", self, other)

    __lt__ = binary("<")
    __le__ = binary("<=")
    __gt__ = binary(">")
    __ge__ = binary(">=")
    __floordiv__ = binary("//")
    __rfloordiv__ = binary("//", reflected=True)
    __mod__ = binary("%")
    __rmod__ = binary("%", reflected=True)

    def __neg__(self) -> Expression:
        return Unary("-", operator.neg, self)

    def __abs__(self) -> Expression:
        return _FunctionCall("abs", abs, self)

    def __and__(self, other: object) -> Expression:
        return Both(self, other)

    def __or__(self, other: object) -> Expression:
        return Either(self, other)

    def __invert__(self) -> Expression:
        return Unary("~", operator.not_, self)

    def __getitem__(self, index: Any) -> Expression:
        return Item(self, index)

    def __iter__(self) -> Iterator[Any]:
        raise RuleError(f"`{self.text}` cannot be unpacked while a rule is declared; index it")

    def is_in(self, *values: Any) -> Expression:
        """Whether the value is one of `values`."""
        return Member(self, values)

    def says(self, reason: str, *parts: Any) -> Expression:
        """The condition with the reason that a user reads where it does not hold.

        Args:
            reason: a sentence; each `{}` in it is filled with the value of a part.
            parts: expressions, or values.
        """
        return Said(self, reason, parts)


class PythonValue(Expression):
    """A Python value."""

    is_local = True

    def __init__(self, value: Any):
        self.value = value

    def evaluate(self, match: Bindings) -> Any:
        return self.value

    @property
    def text(self) -> str:
        return f'"{self.value}"' if isinstance(self.value, str) else repr(self.value)

    def leaves(self) -> Iterator[Expression]:
        return iter(())


def lift(value: Any) -> Expression:
    """A value as an expression."""
    if isinstance(value, Expression):
        return value
    if hasattr(value, "as_expression"):
        return value.as_expression()
    if isinstance(value, list | tuple):
        return _Sequence(value, type(value))
    return PythonValue(value)


class _Compound(Expression):
    """Base of expressions with parts."""

    parts: tuple[Expression, ...]

    @property
    def is_local(self) -> bool:  # type: ignore[override]
        return all(part.is_local for part in self.parts)

    def leaves(self) -> Iterator[Expression]:
        for part in self.parts:
            yield from part.leaves()

    def captured(self) -> Iterator[Any]:
        for part in self.parts:
            yield from part.captured()

    def _check_numbers(self, *values: Any) -> None:
        """Checks that the values of the parts are no `None` (an argument left out) and no SSA values (dynamic sizes).

        Raises:
            Undefined: one is.
        """
        for part, value in zip(self.parts, values, strict=True):
            if value is None or isinstance(value, Value):
                raise Undefined(f"`{self.text}` has no value, {part.text} is {value!r}")

    def _quoted(self, part: Expression, minimum: int) -> str:
        return part.text if part.precedence >= minimum else f"({part.text})"


class _Sequence(_Compound):
    """A list or tuple with expressions in it."""

    def __init__(self, items: Iterable[Any], kind: type):
        self.parts, self.kind = tuple(lift(item) for item in items), kind

    def evaluate(self, match: Bindings) -> Any:
        return self.kind([item.evaluate(match) for item in self.parts])

    @property
    def text(self) -> str:
        inside = ", ".join(item.text for item in self.parts)
        return f"[{inside}]" if self.kind is list else f"({inside}{',' if len(self.parts) == 1 else ''})"


class Binary(_Compound):
    """`a <operator> b`. It is undefined if a side is undefined."""

    def __init__(self, symbol: str, left: Any, right: Any):
        self.symbol, self.parts = symbol, (lift(left), lift(right))
        self.precedence, self.function = _OPERATORS[symbol]

    def evaluate(self, match: Bindings) -> Any:
        first, second = self.parts
        left = _static(first, match) if first.is_shape else first.evaluate(match)
        right = _static(second, match) if second.is_shape else second.evaluate(match)
        if type(left) is int and type(right) is int:  # most operands
            pass
        elif self.symbol in ("==", "!="):
            left, right = _comparable(left), _comparable(right)
        else:
            self._check_numbers(left, right)
        try:
            return self.function(left, right)
        except ZeroDivisionError as error:
            raise Undefined(f"`{self.text}` has no value ({error})") from None

    @property
    def text(self) -> str:
        left, right = self.parts
        return f"{self._quoted(left, self.precedence)} {self.symbol} {self._quoted(right, self.precedence + 1)}"


def _static(part: Expression, match: Bindings) -> Any:
    """The value of a side of an operator; a shape must be static."""
    value = part.evaluate(match)
    if part.is_shape and None in value:
        raise Undefined(f"{part.text} is {value!r}, which has dynamic dimensions")
    return value


def _comparable(side: Any) -> Any:
    """A shape, a list of an op's argument and a constant compare as sequences."""
    return tuple(side) if isinstance(side, list | tuple) or getattr(side, "ndim", 0) == 1 else side


class Unary(_Compound):
    """`-a` or `~a`."""

    precedence = 8

    def __init__(self, symbol: str, function: Callable[[Any], Any], part: Any):
        self.symbol, self.function = symbol, function
        self.parts = (lift(part),)

    def evaluate(self, match: Bindings) -> Any:
        value = self.parts[0].evaluate(match)
        if self.function is operator.not_:
            return not value
        self._check_numbers(value)
        return self.function(value)

    @property
    def text(self) -> str:
        return f"{self.symbol}{self._quoted(self.parts[0], self.precedence)}"


class Both(_Compound):
    """`a & b`. The second condition is evaluated only if the first one holds."""

    precedence = 3

    def __init__(self, *parts: Any):
        self.parts = tuple(lift(part) for part in parts)

    def evaluate(self, match: Bindings) -> Any:
        return all(part.evaluate(match) for part in self.parts)

    @property
    def text(self) -> str:
        return " & ".join(self._quoted(part, 5) for part in self.parts)


class Either(_Compound):
    """`a | b`. If a side is undefined and the other does not hold, the whole is undefined: so is its negation."""

    precedence = 2

    def __init__(self, *parts: Any):
        self.parts = tuple(lift(part) for part in parts)

    def evaluate(self, match: Bindings) -> Any:
        reasons = []
        for part in self.parts:
            try:
                if part.evaluate(match):
                    return True
            except Undefined as reason:
                reasons.append(reason)
        if reasons:
            raise reasons[-1]
        return False

    @property
    def text(self) -> str:
        return " | ".join(self._quoted(part, 5) for part in self.parts)


class Member(_Compound):
    """Whether a value is one of several."""

    precedence = 4

    def __init__(self, part: Any, values: Iterable[Any]):
        self.parts = (lift(part), *(lift(value) for value in values))

    def evaluate(self, match: Bindings) -> Any:
        first, *others = (part.evaluate(match) for part in self.parts)
        return first in others

    @property
    def text(self) -> str:
        return f"{self.parts[0].text}.is_in({', '.join(part.text for part in self.parts[1:])})"


class Item(_Compound):
    """`a[i]`."""

    def __init__(self, part: Expression, index: Any):
        self.parts = (part,) if isinstance(index, slice) else (part, lift(index))
        self.index = index
        self.is_shape = part.is_shape and isinstance(index, slice)

    def evaluate(self, match: Bindings) -> Any:
        whole = self.parts[0].evaluate(match)
        index = self.index if isinstance(self.index, slice) else self.parts[1].evaluate(match)
        self._check_numbers(whole, *([] if isinstance(index, slice) else [index]))
        try:
            item = whole[index]
        except IndexError:
            raise Undefined(f"`{self.text}` does not exist, {self.parts[0].text} is {whole!r}") from None
        if item is None and self.parts[0].is_shape:
            raise Undefined(f"`{self.text}` is dynamic")
        return item

    @property
    def text(self) -> str:
        if isinstance(self.index, slice):
            ends = [self.index.start, self.index.stop] + ([self.index.step] if self.index.step is not None else [])
            return f"{self.parts[0].text}[{':'.join('' if end is None else str(end) for end in ends)}]"
        return f"{self.parts[0].text}[{self.parts[1].text}]"

    def leaves(self) -> Iterator[Expression]:
        yield self


class _FunctionCall(_Compound):
    """A function of the values of expressions."""

    def __init__(self, name: str, function: Callable[..., Any], *parts: Any):
        self.name, self.function = name, function
        self.parts = tuple(lift(part) for part in parts)

    def evaluate(self, match: Bindings) -> Any:
        return self.function(*[part.evaluate(match) for part in self.parts])

    @property
    def text(self) -> str:
        return f"{self.name}({', '.join(part.text for part in self.parts)})"


class Named(_FunctionCall):
    """A condition of a vocabulary (`patterns.conditions`), which reads as a sentence."""

    precedence = 1

    def __init__(self, sentence: str, function: Callable[..., Any], named: Mapping[str, Any]):
        super().__init__(function.__name__, function, *named.values())
        self.sentence, self.names = sentence, tuple(named)

    @property
    def text(self) -> str:
        return self.sentence.format(**{n: part.text for n, part in zip(self.names, self.parts, strict=True)})


class Said(_Compound):
    """A condition, and the reason that a user reads where it does not hold."""

    def __init__(self, condition: Expression, reason: str, filled: Sequence[Any]):
        self.condition, self.reason = condition, reason
        self.parts = (condition, *map(lift, filled))
        self.precedence = condition.precedence

    def evaluate(self, match: Bindings) -> Any:
        return self.condition.evaluate(match)

    def refusal(self, match: Bindings) -> str:
        """The reason, filled with the values of a match."""
        return self.reason.format(*(part.evaluate(match) for part in self.parts[1:]))

    @property
    def text(self) -> str:
        return self.condition.text

    def leaves(self) -> Iterator[Expression]:
        return self.condition.leaves()


class Bound(Expression):
    """The value that a pattern node matched, as an argument of a condition or a computed attribute."""

    def __init__(self, node: Any):
        self.node = node

    def evaluate(self, match: Bindings) -> Any:
        value = match.value_of(self.node)
        if value is None:
            raise Undefined(f"{self.node} is not part of the alternative that matched")
        return value

    @property
    def text(self) -> str:
        return str(self.node)

    def leaves(self) -> Iterator[Expression]:
        return iter(())

    def captured(self) -> Iterator[Any]:
        yield self.node


class Property(Expression):
    """A property of a matched value, such as `x.rank` or `eps.value`."""

    is_local = True

    def __init__(self, node: Any, name: str, read: Callable[[Any], Any]):
        self.node, self.name, self.read = node, name, read
        self.is_shape = name == "shape"

    def evaluate(self, match: Bindings) -> Any:
        value = match.value_of(self.node)
        if value is None:
            raise Undefined(f"{self.node} is not part of the alternative that matched")
        return self.read(value)

    @property
    def text(self) -> str:
        return f"{self.node}.{self.name}"

    def captured(self) -> Iterator[Any]:
        yield self.node


class Tag(Expression):
    """The alternative that an `any_of(..., tag="name")` took."""

    def __init__(self, name: str):
        self.name = name

    def evaluate(self, match: Bindings) -> Any:
        return match.tags.get(self.name)

    @property
    def text(self) -> str:
        return f'tag("{self.name}")'


class Assumption(Expression):
    """Whether the user declared a fact about the model that no rule can prove; none holds by default.

    Args:
        name: what the user writes in `assume=`.
        meaning: the fact, in a sentence.
    """

    def __init__(self, name: str, meaning: str):
        self.name, self.meaning = name, meaning

    def evaluate(self, match: Bindings) -> Any:
        return self.name in match.assumed

    @property
    def text(self) -> str:
        return f'assume=["{self.name}"]'


class Computed(Expression):
    """A function of the whole match, with the text that stands for it."""

    def __init__(self, text: str, function: Callable[[Any], Any]):
        self._text, self.function = text, function

    def evaluate(self, match: Bindings) -> Any:
        return self.function(match)

    @property
    def text(self) -> str:
        return self._text

    def leaves(self) -> Iterator[Expression]:
        return iter(())


def tag(name: str) -> Expression:
    """The tag of the alternative that matched in `any_of(..., tag=name)`; None if the match does not include the
    `any_of`."""
    return Tag(name)


def call(function: Callable[..., Any], *arguments: Any) -> Expression:
    """The result of a function of the values of expressions: `call(sorted, p.values) == p.values`."""
    return _FunctionCall(function.__name__.strip("_"), function, *arguments)


def check(text: str, function: Callable[[Any], Any]) -> Expression:
    """A condition in Python: `function(match)`, where `match["x"]` is what the capture `x` stands for."""
    return Computed(text, function)


def compute(text: str, function: Callable[[Any], Any]) -> Expression:
    """An attribute in Python: `function(match)`, where `match["x"]` is what the capture `x` stands for."""
    return Computed(text, function)


def is_in(expression: Any, *values: Any) -> Expression:
    """Whether an expression's value is one of `values`."""
    return Member(expression, values)

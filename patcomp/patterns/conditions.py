"""Conditions that many rules share, by name; none knows an op.

@condition("{axes} is a permutation of {count} axes")
def is_permutation_of(axes, count): ...         # a function of values

    where=[is_permutation_of(dims, x.rank), is_floating(x)]

A name is declared once, with its sentence. Called with captures and expressions, it gives a condition on the match, in
whose sentence the names of the arguments stand for them. A capture is given as its `Value`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from patcomp.errors import RuleError
from patcomp.ir.types import is_float, is_integer
from patcomp.ir.value import Value, ValueType
from patcomp.patterns.expressions import Expression, Named


def condition(sentence: str) -> Callable[[Callable[..., bool]], Callable[..., Expression]]:
    """Declare a condition: the decorated function of values becomes a function of captures and expressions.

    Args:
        sentence: what holds; each `{name}` stands for the argument of that parameter.

    Raises:
        RuleError: the sentence names something that is no parameter.
    """

    def declare(function: Callable[..., bool]) -> Callable[..., Expression]:
        signature = inspect.signature(function)
        try:
            sentence.format(**dict.fromkeys(signature.parameters, ""))
        except (KeyError, IndexError) as error:
            raise RuleError(f"condition {function.__name__}: the sentence names {error}, no parameter") from None

        @wraps(function)
        def build(*arguments: Any, **keywords: Any) -> Expression:
            bound = signature.bind(*arguments, **keywords)
            bound.apply_defaults()
            return Named(sentence, function, bound.arguments)

        return build

    return declare


# ---- types ----------------------------------------------------------------------------------------------


@condition("{x} has floats")
def is_floating(x: Value) -> bool:
    return is_float(x.element_type)


@condition("{x} has integers")
def is_integral(x: Value) -> bool:
    return is_integer(x.element_type)


@condition("{x} has the type {wanted}")
def has_type(x: Value, wanted: ValueType) -> bool:
    return x.type == wanted


@condition("{x} and {y} have the same element type")
def same_element_type(x: Value, y: Value) -> bool:
    return x.element_type == y.element_type


@condition("{argument} is given")
def is_given(argument: Any) -> bool:
    return argument is not None


@condition("{argument} is a tensor")
def is_tensor(argument: Any) -> bool:
    return isinstance(argument, Value)


@condition("{item} is in {items}")
def contains(items: Sequence[Any], item: Any) -> bool:
    return item in items


# ---- axes and sizes -------------------------------------------------------------------------------------


@condition("{axes} is a permutation of {count} axes")
def is_permutation_of(axes: Sequence[int], count: int) -> bool:
    return sorted(axes) == list(range(count))


@condition("{number} divides {size}")
def divides(number: int, size: int) -> bool:
    return size % number == 0


@condition("{x} has no elements")
def has_no_elements(x: Value) -> bool:
    return 0 in x.shape


# ---- constants ------------------------------------------------------------------------------------------


@condition("{x} is a constant")
def is_constant(x: Value) -> bool:
    return x.constant is not None

"""Whether a value that the user gives is of an option's type: `--set` makes values of texts."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def fits_type(value: Any, wanted: Any) -> bool:
    """Whether a value is of a type, as far as the type says it.

    Args:
        value: of an option.
        wanted: a class, or a union, a sequence or a choice of literals.
    """
    parts = get_args(wanted)
    if wanted is Any:
        return True
    if get_origin(wanted) in (Union, UnionType):
        return any(fits_type(value, each) for each in parts)
    if get_origin(wanted) is Literal:
        return value in parts
    if get_origin(wanted) is Sequence:
        return isinstance(value, list | tuple) and all(fits_type(each, parts[0]) for each in value)
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, get_origin(wanted) or wanted) and not (wanted is int and isinstance(value, bool))


def shown_type(wanted: Any) -> str:
    """The name of a type, as a user reads it."""
    parts = get_args(wanted)
    if get_origin(wanted) in (Union, UnionType):
        return " or ".join(shown_type(each) for each in parts if each is not NoneType)
    if get_origin(wanted) is Literal:
        return " or ".join(map(repr, parts))
    if get_origin(wanted) is Sequence:
        return f"a list, each of it {shown_type(parts[0])}"
    return _WORDS.get(wanted) or f"a {wanted.__name__}"

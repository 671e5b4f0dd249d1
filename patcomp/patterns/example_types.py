"""Types as examples of rules write them: `"2x?x8xf32"`, `"f32"` or, with a range of values, `"3xsi64[0,2]"`."""

from __future__ import annotations

import re

from patcomp.errors import RuleError
from patcomp.ir.types import Shape, tensor
from patcomp.ir.xdsl import Attribute

TENSOR_TYPE = re.compile(
    r"(?P<dims>(?:\d+x)*)(?P<element>[a-z]+\d+|complex<f32>)(?:\[(?P<low>[-\d.]+),(?P<high>[-\d.]+)\])?"
)


def parse_type(text: str) -> Attribute:
    """The tensor type that a text names.

    Raises:
        RuleError: it names none.
    """
    match = re.fullmatch(r"((?:(?:\d+|\?)x)*)([^[]+)(\[.*\])?", text)
    if match is None:
        raise RuleError(f"{text!r} is not the type of a tensor")
    shape: Shape = tuple(None if dim == "?" else int(dim) for dim in match[1].split("x") if dim)
    return tensor(shape, match[2])


def limits_of(text: str) -> tuple[float, float] | None:
    """The least and the greatest value that a type's text gives, or None where it gives none."""
    match = TENSOR_TYPE.fullmatch(text)
    return (float(match["low"]), float(match["high"])) if match and match["low"] else None

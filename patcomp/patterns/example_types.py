"""The text of types in examples: `"2x?x8xf32"`, `"f32"` or, with a range of values, `"3xsi64[0,2]"`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from patcomp.errors import RuleError
from patcomp.ir.types import Shape, tensor
from patcomp.ir.xdsl import Attribute

_STATIC = re.compile(
    r"(?P<dims>(?:\d+x)*)(?P<element>[a-z]+\d+|complex<f32>)(?:\[(?P<low>[-\d.]+),(?P<high>[-\d.]+)\])?"
)


@dataclass(frozen=True)
class ExampleType:
    """The parts of a static type. Its text is the one that examples write."""

    sizes: tuple[int, ...]
    element: str
    limits: tuple[str, str] | None = None
    """The least and the greatest value."""

    @classmethod
    def parsed(cls, text: object) -> ExampleType | None:
        """The parts of a text; None if it is not the text of a static type."""
        match = _STATIC.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            return None
        limits = (match["low"], match["high"]) if match["low"] else None
        return cls(tuple(int(size) for size in match["dims"].split("x") if size), match["element"], limits)

    def __str__(self) -> str:
        limits = f"[{','.join(self.limits)}]" if self.limits else ""
        return "x".join([*map(str, self.sizes), self.element]) + limits

    @property
    def is_float(self) -> bool:
        return self.element.startswith(("f", "bf"))

    @property
    def is_integer(self) -> bool:
        return self.element.startswith(("si", "ui"))


def parse_type(text: str) -> Attribute:
    """The tensor type that a text names.

    Raises:
        RuleError: the text is not the text of a type.
    """
    match = re.fullmatch(r"((?:(?:\d+|\?)x)*)([^[]+)(\[.*\])?", text)
    if match is None:
        raise RuleError(f"{text!r} is not the type of a tensor")
    shape: Shape = tuple(None if dim == "?" else int(dim) for dim in match[1].split("x") if dim)
    return tensor(shape, match[2])


def limits_of(text: str) -> tuple[float, float] | None:
    """The least and the greatest value in a type's text; None if the text has no range."""
    type_ = ExampleType.parsed(text)
    return (float(type_.limits[0]), float(type_.limits[1])) if type_ and type_.limits else None

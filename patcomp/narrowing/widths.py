"""How to treat 64-bit numbers (the runtime has few kernels for them, and its indices are always 32-bit)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from patcomp.ir.types import TensorType, element_name, runtime_type
from patcomp.ir.xdsl import Attribute

Choice = Literal["narrow", "keep", "error"]


@dataclass(frozen=True)
class Widths:
    """The choice for 64-bit integers and for 64-bit floats.

    `"narrow"`: 32 bits. Constants and inputs of `program.run` that do not fit are errors; conversion warns of results
    that may not fit, or of floats that may differ by more than their rounding. `"error"`: the same, but such results
    are errors. `"keep"`: 64 bits; only indices are narrowed, where they are used, and complex numbers.

    Raises:
        ValueError: another choice.
    """

    int64: Choice = "narrow"
    float64: Choice = "narrow"

    def __post_init__(self) -> None:
        for field in fields(self):
            if (choice := getattr(self, field.name)) not in get_args(Choice):
                raise ValueError(
                    f"{field.name} must be one of {', '.join(map(repr, get_args(Choice)))}, got {choice!r}"
                )

    def of(self, type_: Attribute) -> Attribute:
        """The type that a PyTorch tensor type has after lowering."""
        if not isinstance(type_, TensorType):
            return type_
        name = element_name(type_.element_type)
        kept = (self.int64 == "keep" and name in ("si64", "ui64")) or (self.float64 == "keep" and name == "f64")
        return type_ if kept else runtime_type(type_)  # the dialect has no wide complex numbers

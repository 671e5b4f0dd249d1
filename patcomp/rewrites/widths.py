"""What becomes of 64-bit numbers, of which the runtime has few kernels and its indices none."""

from __future__ import annotations

from dataclasses import dataclass, fields

from patcomp.ir.types import TensorType, element_name, runtime_type
from patcomp.ir.xdsl import Attribute

CHOICES = ("narrow", "keep", "error")


@dataclass(frozen=True)
class Widths:
    """The choice for 64-bit integers and for 64-bit floats.

    `"narrow"`: 32 bits. Constants and the inputs of `program.run` that do not fit are errors; by this choice the user
    declares that what is computed from them fits too. `"keep"`: 64 bits; only indices are narrowed, where they are
    used, and complex numbers. `"error"`: every op with such a result is refused.

    Raises:
        ValueError: another choice.
    """

    int64: str = "narrow"
    float64: str = "narrow"

    def __post_init__(self) -> None:
        for field in fields(self):
            if (choice := getattr(self, field.name)) not in CHOICES:
                raise ValueError(f"{field.name} must be one of {', '.join(map(repr, CHOICES))}, got {choice!r}")

    def choice(self, type_: Attribute) -> str:
        """What was chosen for the elements of a type; `"keep"` for those of other widths."""
        if not isinstance(type_, TensorType) or runtime_type(type_) == type_:
            return "keep"
        name = element_name(type_.element_type)
        if name.startswith("complex"):  # the dialect has no wide ones
            return "error" if self.float64 == "error" else "narrow"
        return self.int64 if name in ("si64", "ui64") else self.float64

    def of(self, type_: Attribute) -> Attribute:
        """The type that a PyTorch tensor type has after lowering."""
        return type_ if self.choice(type_) == "keep" else runtime_type(type_)

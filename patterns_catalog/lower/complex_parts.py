"""Complex tensors at the borders of a program; what lies between is real (`decompositions/complex_arithmetic.py`)."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import example, formula
from patterns_catalog.lower.rows import row
from patterns_catalog.lower.shapes import broadcast_together

_COMPLEX = "complex<f32>"


@formula("lower", "aten.complex", examples=[example("2x3xf32", "3xf32"), example("f32", "f32")])
def complex_(c: Coreai, real: Value, imag: Value) -> Value:
    "real + i imag, broadcast"
    return c.create_complex(*broadcast_together(c, [real, imag]))


real_part = row(
    "real", "real_part", f"2x3x{_COMPLEX}", where=lambda self: [self.dtype == _COMPLEX], doc="the real part",
)  # fmt: skip
real_of_real = row(
    "real", lambda c, x: x, "2x3xf16", where=lambda self: [self.dtype != _COMPLEX], name="real of real numbers",
    doc="real numbers stay",
)  # fmt: skip
imag = row("imag", "imaginary_part", f"2x3x{_COMPLEX}", doc="the imaginary part")

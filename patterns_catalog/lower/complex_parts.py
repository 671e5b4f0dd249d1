"""Complex tensors at the borders of a program; what lies between is real (`decompositions/complex_arithmetic.py`)."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.sizes import broadcast_sizes


@lowering("aten.complex", examples=[example("2x3xf32", "3xf32"), example("f32", "f32")])
def complex_(op: OpView, c: Coreai) -> Value:
    "real + i imag, broadcast"
    parts = [op.real, op.imag]
    if any(part.shape != op.result.shape for part in parts):
        sizes = broadcast_sizes(c, parts)
        parts = [part if part.shape == op.result.shape else c.broadcast_to(part, sizes) for part in parts]
    return c.create_complex(*parts)


@lowering("aten.real", examples=[example("2x3xcomplex<f32>"), example("2x3xf16")])
def real(op: OpView, c: Coreai) -> Value:
    "the real part; real numbers stay"
    if op["self"].dtype != "complex<f32>":
        return op["self"]
    return c.real_part(op["self"])


@lowering("aten.imag", examples=[example("2x3xcomplex<f32>")])
def imag(op: OpView, c: Coreai) -> Value:
    "the imaginary part"
    return c.imaginary_part(op["self"])

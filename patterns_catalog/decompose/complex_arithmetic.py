"""Complex arithmetic in real parts, by the formulas of eager PyTorch (c10/util/complex.h)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from patcomp.patterns import Rejected, Rule, decomposition, example
from patterns_catalog.decompose.complex_parts import (
    Number,
    complex_function,
    function_of_truth,
    joined,
    nonzero,
    parts,
    real_dtype,
    tensors,
)

_Z = "2x3xcomplex<f32>"
_PAIR = example(_Z, "3xcomplex<f32>")


@decomposition("aten.view_as_complex", examples=[example("3x2xf32")])
def view_as_complex(self: Tensor) -> Tensor:
    "x[..., 0] + i x[..., 1]"
    return torch.complex(self.select(-1, 0), self.select(-1, 1))


@decomposition("aten.polar", examples=[example("2x3xf32", "3xf32")])
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    "abs (cos angle + i sin angle)"
    return torch.complex(abs * torch.cos(angle), abs * torch.sin(angle))


def _sum(name: str) -> Rule:
    """`add`, `sub`: self +- alpha * other, part by part."""
    op = getattr(operator, name)

    @decomposition(
        f"aten.{name}.Tensor", f"aten.{name}.Scalar", name=f"decompose complex {name}", of_complex=True,
        unspecified={"infinities and zeros": "eager multiplies by alpha, which is 1, as a complex number"},
        examples=[_PAIR, example(_Z, "3xf32", alpha=2), example(_Z, 1.5)],
    )  # fmt: skip
    def total(self: Tensor, other: Tensor | Number, alpha: Number = 1) -> Tensor:
        "part by part"
        if alpha != 1:  # in the type of the result: bytes would wrap
            other = (other.to(torch.result_type(self, other)) if isinstance(other, Tensor) else other) * alpha
        return joined(*(op(x, y) for x, y in zip(parts(self), parts(other), strict=True)))

    return total


add = _sum("add")
sub = _sum("sub")


@decomposition("aten.rsub.Tensor", "aten.rsub.Scalar", of_complex=True, examples=[
    _PAIR, example(_Z, 1.0, op="aten.rsub.Scalar"),
])  # fmt: skip
def rsub(self: Tensor, other: Tensor | Number, alpha: Number = 1) -> Tensor:
    "other - alpha * self"
    if isinstance(other, Tensor):
        return torch.sub(other, self, alpha=alpha)  # type: ignore[arg-type]
    return torch.add(torch.neg(self * alpha if alpha != 1 else self), other)


@decomposition("aten.mul.Tensor", "aten.mul.Scalar", of_complex=True, examples=[
    _PAIR, example(_Z, "3xf32"), example(_Z, "3xsi32"), example(_Z, 2.0),
])  # fmt: skip
def mul(self: Tensor, other: Tensor | Number) -> Tensor:
    "(a + ib)(c + id) = ac - bd + i (ad + bc)"
    (a, b), (c, d) = parts(self), parts(other)
    return joined(a * c - b * d, a * d + b * c)


@decomposition("aten.div.Tensor", "aten.div.Scalar", of_complex=True, unspecified={
    "infinities and zeros": "PyTorch's kernels differ in the signs of quotients by zero",
}, examples=[
    _PAIR, example(_Z, "3xf32"), example(_Z, 4.0), example("3xf32", "3xcomplex<f32>"),
])  # fmt: skip
def div(self: Tensor, other: Tensor | Number) -> Tensor:
    "self conj(other) / |other|², scaled by the larger part of the divisor so that its square is in range"
    dtype = real_dtype(self, other)
    (a, b), (c, d) = tensors(self, dtype), tensors(other, dtype)
    if not (other.is_complex() if isinstance(other, Tensor) else isinstance(other, complex)):
        return torch.complex(a / c, b / c)
    scale = torch.maximum(c.abs(), d.abs())
    a, b, c, d = a / scale, b / scale, c / scale, d / scale
    square = c * c + d * d
    return torch.complex((a * c + b * d) / square, (b * c - a * d) / square)


@decomposition("aten._neg_view", examples=[example("2x3xf32")])
def neg_view(self: Tensor) -> Tensor:
    "the imaginary part of a conjugated view: the values negated"
    if self.dtype == torch.bool:
        raise Rejected("the negation of bools is not supported, as in PyTorch; use logical_not")
    return torch.neg(self)


@decomposition("aten._conj", "aten._conj_physical", "aten.conj_physical", examples=[example(_Z)], of_complex=True)
def conj(self: Tensor) -> Tensor:
    "a - ib"
    return torch.complex(torch.real(self), -torch.imag(self))


@decomposition("aten.abs", examples=[example(_Z)], of_complex=True)
def abs_(self: Tensor) -> Tensor:
    "sqrt(a² + b²), scaled by the larger part so that the squares are in range"
    a, b = torch.real(self).abs(), torch.imag(self).abs()
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    ratio = torch.where(large == 0, 0.0, small / large)
    finite = large * torch.sqrt(1 + ratio * ratio)
    infinite = (a == torch.inf) | (b == torch.inf)
    return torch.where(infinite, torch.inf, finite)


@decomposition("aten.sgn", examples=[example(_Z)], of_complex=True)
def sgn(self: Tensor) -> Tensor:
    "z / |z|; of zero, zero"
    length = self.abs()
    return joined(*(torch.where(length == 0, 0.0, part / length) for part in (torch.real(self), torch.imag(self))))


FUNCTIONS = [
    complex_function("reciprocal", "1 / z", lambda z: torch.full((), 1.0, dtype=z.dtype.to_real()) / z, example(_Z)),
    complex_function(
        "neg", "both parts negated", lambda z: torch.complex(-torch.real(z), -torch.imag(z)), example(_Z)
    ),
    complex_function("angle", "atan2(b, a)", lambda z: torch.atan2(torch.imag(z), torch.real(z)), example(_Z)),
    complex_function(
        "addcmul", "self + value * tensor1 * tensor2",
        lambda self, tensor1, tensor2, *, value=1: self + value * (tensor1 * tensor2), example(_Z, _Z, _Z, value=0.5),
    ),
    complex_function(
        "addcdiv", "self + value * tensor1 / tensor2",
        lambda self, tensor1, tensor2, *, value=1: self + value * (tensor1 / tensor2), example(_Z, _Z, _Z, value=0.5),
    ),
]  # fmt: skip
"""Of z = a + ib."""


# ---- comparison and logic --------------------------------------------------------------------------


@decomposition(
    "aten.eq.Tensor", "aten.eq.Scalar", examples=[_PAIR, example(_Z, 1.0, op="aten.eq.Scalar")], of_complex=True
)
def eq(self: Tensor, other: Tensor | Number) -> Tensor:
    "both parts equal"
    (a, b), (c, d) = parts(self), parts(other)
    return torch.as_tensor(a == c) & torch.as_tensor(b == d)


@decomposition(
    "aten.ne.Tensor", "aten.ne.Scalar", examples=[_PAIR, example(_Z, 1.0, op="aten.ne.Scalar")], of_complex=True
)
def ne(self: Tensor, other: Tensor | Number) -> Tensor:
    "not equal"
    return torch.logical_not(torch.eq(self, other))


def _test(name: str, doc: str, op: Callable[[Tensor], Tensor], join: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    def test(self: Tensor) -> Tensor:
        return join(op(torch.real(self)), op(torch.imag(self)))

    return complex_function(name, doc, test, example(_Z))


isnan = _test("isnan", "NaN in either part", lambda x: x != x, torch.bitwise_or)
isinf = _test("isinf", "an infinity in either part", lambda x: x.abs() == torch.inf, torch.bitwise_or)
isfinite = _test("isfinite", "both parts finite", lambda x: x.abs() < torch.inf, torch.bitwise_and)


LOGIC = [
    function_of_truth("logical_not", example(_Z)),
    *(function_of_truth(name, _PAIR) for name in ("logical_and", "logical_or", "logical_xor")),
]


@decomposition("aten._to_copy", of_complex=True, examples=[
    example(_Z, dtype="f32"), example("3xsi32", dtype="complex<f32>"), example(_Z, dtype="i1"),
])  # fmt: skip
def to_copy(self: Tensor, *, dtype: torch.dtype | None = None, **memory: Any) -> Tensor:
    "a cast: to a real type the real part, to bool whether the number is not zero"
    target = dtype or self.dtype
    if target == torch.bool:
        return nonzero(self)
    if not target.is_complex:
        return torch.real(self).to(target)
    return torch.complex(*tensors(self, target.to_real()))

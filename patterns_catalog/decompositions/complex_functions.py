"""Targets of complex numbers in real parts.

Principal branches as in C99; the inverse functions by Kahan, "Branch cuts for complex elementary functions" (1987),
which do not lose digits near the cuts.
"""

from __future__ import annotations

import cmath
import math

import torch
from torch import Tensor

from patcomp.patterns import Rejected, Rule, decomposition, example
from patterns_catalog.decompositions.complex_parts import Number, joined

_Z = "2x9xcomplex<f32>"
_EXAMPLES = [example(_Z)]


def _both(z: Tensor) -> tuple[Tensor, Tensor]:
    return torch.real(z), torch.imag(z)


@decomposition("aten.exp", examples=_EXAMPLES, of_complex=True)
def exp(self: Tensor) -> Tensor:
    "exp a (cos b + i sin b)"
    a, b = _both(self)
    return torch.polar(torch.exp(a), b)


@decomposition("aten.exp2", examples=_EXAMPLES, of_complex=True)
def exp2(self: Tensor) -> Tensor:
    "exp(z ln 2)"
    return torch.exp(self * math.log(2))


@decomposition("aten.expm1", examples=_EXAMPLES, of_complex=True)
def expm1(self: Tensor) -> Tensor:
    "expm1 a cos b - 2 sin² b/2 + i exp a sin b"
    a, b = _both(self)
    half = torch.sin(b / 2)
    return torch.complex(torch.expm1(a) * torch.cos(b) - 2 * half * half, torch.exp(a) * torch.sin(b))


@decomposition("aten.log", examples=_EXAMPLES, of_complex=True)
def log(self: Tensor) -> Tensor:
    "log |z| + i angle z"
    return torch.complex(torch.log(self.abs()), self.angle())


def _logarithm(name: str, base: int) -> Rule:
    @decomposition(f"aten.{name}", name=f"decompose complex {name}", examples=_EXAMPLES, of_complex=True)
    def logarithm(self: Tensor) -> Tensor:
        "log z / log of the base"
        a, b = _both(torch.log(self))
        return torch.complex(a / math.log(base), b / math.log(base))

    return logarithm


log2 = _logarithm("log2", 2)
log10 = _logarithm("log10", 10)


@decomposition("aten.log1p", examples=_EXAMPLES, of_complex=True)
def log1p(self: Tensor) -> Tensor:
    "log |1 + z| + i angle(1 + z), the first from |1 + z|² - 1 where that is small"
    a, b = _both(self)
    square = a * (2 + a) + b * b
    length = torch.where(self.abs() < 0.5, torch.log1p(square) / 2, torch.log((self + 1).abs()))
    return torch.complex(length, torch.atan2(b, a + 1))


@decomposition("aten.sqrt", examples=_EXAMPLES, of_complex=True)
def sqrt(self: Tensor) -> Tensor:
    "of the part that does not cancel, sqrt((|z| + |a|) / 2), and of the other from b = 2 re im"
    a, b = _both(self)
    large = torch.sqrt((self.abs() + a.abs()) / 2)
    small = torch.where(large == 0, large, b.abs() / (2 * large))
    return torch.complex(torch.where(a < 0, small, large), torch.copysign(torch.where(a < 0, large, small), b))


@decomposition("aten.rsqrt", examples=_EXAMPLES, of_complex=True)
def rsqrt(self: Tensor) -> Tensor:
    "1 / sqrt z"
    return torch.reciprocal(torch.sqrt(self))


@decomposition("aten.sin", examples=_EXAMPLES, of_complex=True)
def sin(self: Tensor) -> Tensor:
    "sin a cosh b + i cos a sinh b"
    a, b = _both(self)
    return torch.complex(torch.sin(a) * torch.cosh(b), torch.cos(a) * torch.sinh(b))


@decomposition("aten.cos", examples=_EXAMPLES, of_complex=True)
def cos(self: Tensor) -> Tensor:
    "cos a cosh b - i sin a sinh b"
    a, b = _both(self)
    return torch.complex(torch.cos(a) * torch.cosh(b), -torch.sin(a) * torch.sinh(b))


@decomposition("aten.sinh", examples=_EXAMPLES, of_complex=True)
def sinh(self: Tensor) -> Tensor:
    "sinh a cos b + i cosh a sin b"
    a, b = _both(self)
    return torch.complex(torch.sinh(a) * torch.cos(b), torch.cosh(a) * torch.sin(b))


@decomposition("aten.cosh", examples=_EXAMPLES, of_complex=True)
def cosh(self: Tensor) -> Tensor:
    "cosh a cos b + i sinh a sin b"
    a, b = _both(self)
    return torch.complex(torch.cosh(a) * torch.cos(b), torch.sinh(a) * torch.sin(b))


_SATURATED = 20.0
"""From here on tanh is 1 in float32."""


@decomposition("aten.tanh", examples=[*_EXAMPLES, example("9xcomplex<f32>", op="aten.tanh")], of_complex=True)
def tanh(self: Tensor) -> Tensor:
    "(sinh a cosh a + i sin b cos b) / (sinh² a + cos² b)"
    a, b = _both(self)
    a = torch.clamp(a, -_SATURATED, _SATURATED)
    scale = torch.sinh(a) ** 2 + torch.cos(b) ** 2
    return torch.complex(torch.sinh(a) * torch.cosh(a) / scale, torch.sin(b) * torch.cos(b) / scale)


def _turned(z: Tensor) -> Tensor:
    """i z"""
    a, b = _both(z)
    return torch.complex(-b, a)


def _turned_back(z: Tensor) -> Tensor:
    """-i z"""
    a, b = _both(z)
    return torch.complex(b, -a)


@decomposition("aten.tan", examples=_EXAMPLES, of_complex=True)
def tan(self: Tensor) -> Tensor:
    "-i tanh(i z)"
    return _turned_back(torch.tanh(_turned(self)))


@decomposition("aten.sigmoid", examples=_EXAMPLES, of_complex=True)
def sigmoid(self: Tensor) -> Tensor:
    "1 / (1 + exp -z)"
    return torch.reciprocal(torch.exp(-self) + 1)


@decomposition("aten.silu", examples=_EXAMPLES, of_complex=True)
def silu(self: Tensor) -> Tensor:
    "z / (1 + exp -z)"
    return self / (torch.exp(-self) + 1)


def _roots_beside_one(z: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The parts of sqrt(1 - z) and sqrt(1 + z). A zero imaginary part keeps its sign, which says on which side of the
    branch cut z is; a sum with the complex number 1 would lose it."""
    x, y = _both(z)
    return _both(torch.sqrt(torch.complex(1 - x, -y))), _both(torch.sqrt(torch.complex(1 + x, y)))


@decomposition("aten.asin", examples=_EXAMPLES, of_complex=True)
def asin(self: Tensor) -> Tensor:
    "atan2(a, Re rs) + i asinh Im(conj(r) s) of r = sqrt(1 - z), s = sqrt(1 + z)"
    (a, b), (c, d) = _roots_beside_one(self)
    return torch.complex(torch.atan2(torch.real(self), a * c - b * d), torch.asinh(a * d - b * c))


@decomposition("aten.acos", examples=_EXAMPLES, of_complex=True)
def acos(self: Tensor) -> Tensor:
    "2 atan2(Re r, Re s) + i asinh Im(conj(s) r) of r = sqrt(1 - z), s = sqrt(1 + z)"
    (a, b), (c, d) = _roots_beside_one(self)
    return torch.complex(2 * torch.atan2(a, c), torch.asinh(c * b - d * a))


@decomposition("aten.acosh", examples=_EXAMPLES, of_complex=True)
def acosh(self: Tensor) -> Tensor:
    "asinh Re(conj(r) s) + 2 i atan2(Im r, Re s) of r = sqrt(z - 1), s = sqrt(z + 1)"
    (a, b), (c, d) = _both(torch.sqrt(self - 1)), _roots_beside_one(self)[1]
    return torch.complex(torch.asinh(a * c + b * d), 2 * torch.atan2(b, c))


@decomposition("aten.asinh", examples=_EXAMPLES, of_complex=True)
def asinh(self: Tensor) -> Tensor:
    "-i asin(i z)"
    return _turned_back(torch.asin(_turned(self)))


@decomposition("aten.atanh", examples=_EXAMPLES, of_complex=True)
def atanh(self: Tensor) -> Tensor:
    "log1p(4a / ((1 - a)² + b²)) / 4 + i atan2(2b, (1 - a)(1 + a) - b²) / 2"
    a, b = _both(self)
    square = (1 - a) ** 2 + b * b
    return torch.complex(torch.log1p(4 * a / square) / 4, torch.atan2(2 * b, (1 - a) * (1 + a) - b * b) / 2)


@decomposition("aten.atan", examples=_EXAMPLES, of_complex=True)
def atan(self: Tensor) -> Tensor:
    "-i atanh(i z)"
    return _turned_back(torch.atanh(_turned(self)))


@decomposition("aten.pow.Tensor_Tensor", examples=[example(_Z, "9xcomplex<f32>")], of_complex=True)
def power(self: Tensor, exponent: Tensor) -> Tensor:
    "exp(exponent log z); of a zero, zero, infinity or NaN by the sign of the exponent's real part"
    powered = torch.exp(exponent * torch.log(self.to(torch.promote_types(self.dtype, torch.complex64))))
    real = torch.real(exponent) if exponent.is_complex() else exponent
    grows, shrinks = real > 0, real < 0
    of_zero = torch.where(grows, 0.0, torch.where(shrinks, math.inf, math.nan)), torch.where(grows, 0.0, math.nan)
    return joined(*(torch.where(self == 0, zero, part) for zero, part in zip(of_zero, _both(powered), strict=True)))


@decomposition("aten.pow.Tensor_Scalar", of_complex=True, examples=[
    example(_Z, 2), example(_Z, 3), example(_Z, -1), example(_Z, 0.5), example(_Z, 1.7), example(_Z, 0),
])  # fmt: skip
def power_of_number(self: Tensor, exponent: Number) -> Tensor:
    "products for small whole exponents, roots for halves"
    if exponent == 0:
        return torch.full(self.shape, 1.0, dtype=torch.result_type(self, exponent))
    if exponent in (1, 2, 3, 4):
        product = self
        for _ in range(int(exponent.real) - 1):
            product = product * self
        return product
    if exponent in (-1, -2):
        return torch.reciprocal(torch.pow(self, -exponent))
    if exponent in (0.5, -0.5):
        return torch.sqrt(self) if exponent == 0.5 else torch.rsqrt(self)
    return torch.pow(self, torch.full((), exponent, dtype=torch.result_type(self, exponent)))


@decomposition("aten.pow.Scalar", examples=[example(2.0, _Z), example(1.0, _Z)], of_complex=True)
def power_of_base(self: Number, exponent: Tensor) -> Tensor:
    "exp(exponent log of the number)"
    if self == 0:
        raise Rejected("the number 0 to the power of a complex tensor is not supported")
    return torch.exp(exponent * cmath.log(self))

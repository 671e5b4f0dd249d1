"""Functions of complex numbers in real parts.

Principal branches as in C99; the inverse functions by Kahan, "Branch cuts for complex elementary functions" (1987),
which do not lose digits near the cuts.
"""

from __future__ import annotations

import cmath
import math

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example
from patterns_catalog.decompose.complex_parts import Number, complex_function, function_of_parts, joined

_Z = "2x9xcomplex<f32>"
_SATURATED = 20.0
"""From here on tanh is 1 in float32."""

Parts = tuple[Tensor, Tensor]


def _both(z: Tensor) -> Parts:
    return torch.real(z), torch.imag(z)


def _turned(z: Tensor) -> Tensor:
    """i z"""
    a, b = _both(z)
    return torch.complex(-b, a)


def _turned_back(z: Tensor) -> Tensor:
    """-i z"""
    a, b = _both(z)
    return torch.complex(b, -a)


def _exp(z: Tensor) -> Tensor:
    a, b = _both(z)
    return torch.polar(torch.exp(a), b)


def _expm1(a: Tensor, b: Tensor) -> Parts:
    half = torch.sin(b / 2)
    return torch.expm1(a) * torch.cos(b) - 2 * half * half, torch.exp(a) * torch.sin(b)


def _log1p(z: Tensor) -> Tensor:
    a, b = _both(z)
    square = a * (2 + a) + b * b
    length = torch.where(z.abs() < 0.5, torch.log1p(square) / 2, torch.log((z + 1).abs()))
    return torch.complex(length, torch.atan2(b, a + 1))


def _logarithm(z: Tensor, base: int) -> Tensor:
    a, b = _both(torch.log(z))
    return torch.complex(a / math.log(base), b / math.log(base))


def _sqrt(z: Tensor) -> Tensor:
    a, b = _both(z)
    large = torch.sqrt((z.abs() + a.abs()) / 2)
    small = torch.where(large == 0, large, b.abs() / (2 * large))
    return torch.complex(torch.where(a < 0, small, large), torch.copysign(torch.where(a < 0, large, small), b))


def _tanh(a: Tensor, b: Tensor) -> Parts:
    a = torch.clamp(a, -_SATURATED, _SATURATED)
    scale = torch.sinh(a) ** 2 + torch.cos(b) ** 2
    return torch.sinh(a) * torch.cosh(a) / scale, torch.sin(b) * torch.cos(b) / scale


def _roots_beside_one(z: Tensor) -> tuple[Parts, Parts]:
    """The parts of sqrt(1 - z) and sqrt(1 + z). A zero imaginary part keeps its sign, which says on which side of the
    branch cut z is; a sum with the complex number 1 would lose it."""
    x, y = _both(z)
    return _both(torch.sqrt(torch.complex(1 - x, -y))), _both(torch.sqrt(torch.complex(1 + x, y)))


def _asin(z: Tensor) -> Tensor:
    (a, b), (c, d) = _roots_beside_one(z)
    return torch.complex(torch.atan2(torch.real(z), a * c - b * d), torch.asinh(a * d - b * c))


def _acos(z: Tensor) -> Tensor:
    (a, b), (c, d) = _roots_beside_one(z)
    return torch.complex(2 * torch.atan2(a, c), torch.asinh(c * b - d * a))


def _acosh(z: Tensor) -> Tensor:
    (a, b), (c, d) = _both(torch.sqrt(z - 1)), _roots_beside_one(z)[1]
    return torch.complex(torch.asinh(a * c + b * d), 2 * torch.atan2(b, c))


def _atanh(a: Tensor, b: Tensor) -> Parts:
    square = (1 - a) ** 2 + b * b
    return torch.log1p(4 * a / square) / 4, torch.atan2(2 * b, (1 - a) * (1 + a) - b * b) / 2


FUNCTIONS = [
    complex_function("exp", "exp a (cos b + i sin b)", _exp),
    complex_function("exp2", "exp(z ln 2)", lambda z: torch.exp(z * math.log(2))),
    function_of_parts("expm1", "expm1 a cos b - 2 sin² b/2 + i exp a sin b", _expm1),
    complex_function("log", "log |z| + i angle z", lambda z: torch.complex(torch.log(z.abs()), z.angle())),
    complex_function("log2", "log z / log 2", lambda z: _logarithm(z, 2)),
    complex_function("log10", "log z / log 10", lambda z: _logarithm(z, 10)),
    complex_function("log1p", "log |1 + z| + i angle(1 + z), the first from |1 + z|² - 1 if that is small", _log1p),
    complex_function("sqrt", "the larger part is sqrt((|z| + |a|) / 2), without cancellation; b = 2 re im", _sqrt),
    complex_function("rsqrt", "1 / sqrt z", lambda z: torch.reciprocal(torch.sqrt(z))),
    function_of_parts(
        "sin", "sin a cosh b + i cos a sinh b",
        lambda a, b: (torch.sin(a) * torch.cosh(b), torch.cos(a) * torch.sinh(b)),
    ),
    function_of_parts(
        "cos", "cos a cosh b - i sin a sinh b",
        lambda a, b: (torch.cos(a) * torch.cosh(b), -torch.sin(a) * torch.sinh(b)),
    ),
    function_of_parts(
        "sinh", "sinh a cos b + i cosh a sin b",
        lambda a, b: (torch.sinh(a) * torch.cos(b), torch.cosh(a) * torch.sin(b)),
    ),
    function_of_parts(
        "cosh", "cosh a cos b + i sinh a sin b",
        lambda a, b: (torch.cosh(a) * torch.cos(b), torch.sinh(a) * torch.sin(b)),
    ),
    complex_function("tan", "-i tanh(i z)", lambda z: _turned_back(torch.tanh(_turned(z)))),
    function_of_parts(
        "tanh", "(sinh a cosh a + i sin b cos b) / (sinh² a + cos² b)", _tanh, example(_Z), example("9xcomplex<f32>")
    ),
    complex_function("sigmoid", "1 / (1 + exp -z)", lambda z: torch.reciprocal(torch.exp(-z) + 1)),
    complex_function("silu", "z / (1 + exp -z)", lambda z: z / (torch.exp(-z) + 1)),
    complex_function("asin", "atan2(a, Re rs) + i asinh Im(conj(r) s) of r = sqrt(1 - z), s = sqrt(1 + z)", _asin),
    complex_function("acos", "2 atan2(Re r, Re s) + i asinh Im(conj(s) r), r = sqrt(1 - z), s = sqrt(1 + z)", _acos),
    complex_function("acosh", "asinh Re(conj(r) s) + 2 i atan2(Im r, Re s), r = sqrt(z - 1), s = sqrt(z + 1)", _acosh),
    complex_function("asinh", "-i asin(i z)", lambda z: _turned_back(torch.asin(_turned(z)))),
    function_of_parts("atanh", "log1p(4a / ((1 - a)² + b²)) / 4 + i atan2(2b, (1 - a)(1 + a) - b²) / 2", _atanh),
    complex_function("atan", "-i atanh(i z)", lambda z: _turned_back(torch.atanh(_turned(z)))),
]  # fmt: skip
"""Of z = a + ib."""


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

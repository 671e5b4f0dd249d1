"""NaN, infinities, signs, and choices by them. The sign of a NaN cannot be told: it counts as positive."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example
from patterns_catalog.decompose.promotion import float_function, in_one_type


@decomposition("aten.isnan", examples=[example("2x3xf32"), example("4xsi32")])
def isnan(self: Tensor) -> Tensor:
    "x != x"
    return self != self


@decomposition("aten.isinf", examples=[example("2x3xf32"), example("4xi1")])
def isinf(self: Tensor) -> Tensor:
    "abs(x) == infinity"
    return self.abs() == math.inf if self.is_floating_point() else self != self


@decomposition("aten.isfinite", examples=[example("2x3xf32"), example("4xsi32")])
def isfinite(self: Tensor) -> Tensor:
    "abs(x) < infinity, which is false of NaN"
    return self.abs() < math.inf if self.is_floating_point() else self == self


@decomposition("aten._is_all_true", examples=[example("4xi1"), example("2x3xi1")])
def is_all_true(self: Tensor) -> Tensor:
    "all elements of a bool tensor; what `torch._check_tensor_all` checks"
    return self.all()


@decomposition("aten._is_any_true", examples=[example("4xi1"), example("2x3xi1")])
def is_any_true(self: Tensor) -> Tensor:
    "any element of a bool tensor"
    return self.any()


@decomposition("aten.signbit", examples=[example("2x3xf32"), example("4xsi32[-2,2]"), example("4xi1")])
def signbit(self: Tensor) -> Tensor:
    "x < 0, or 1 / x < 0 for a zero"
    if not self.is_floating_point():
        return self != self if self.dtype in (torch.bool, torch.uint8) else self < 0
    return torch.where(self == 0, self.reciprocal(), self) < 0


@float_function("aten.copysign.Tensor", "aten.copysign.Scalar", examples=[
    example("2x3xf32", "3xf32"), example("4xsi32", "4xsi32"), example("3xf32", -2.0, op="aten.copysign.Scalar"),
])  # fmt: skip
def copysign(magnitude: Tensor, sign: Tensor) -> Tensor:
    "abs(x) with the sign of the other number, which a zero has too"
    magnitude = magnitude.abs()
    return torch.where(sign.signbit(), -magnitude, magnitude)


@decomposition("aten.fmax", examples=[example("2x3xf32", "3xf32"), example("4xsi32", "4xsi32")])
def fmax(self: Tensor, other: Tensor) -> Tensor:
    "the larger of two numbers; if one is NaN, the other"
    x, y = in_one_type(self, other)
    return torch.where((x >= y) | y.isnan(), x, y)


@decomposition("aten.fmin", examples=[example("2x3xf32", "3xf32"), example("4xsi32", "4xsi32")])
def fmin(self: Tensor, other: Tensor) -> Tensor:
    "the smaller of two numbers; if one is NaN, the other"
    x, y = in_one_type(self, other)
    return torch.where((x <= y) | y.isnan(), x, y)


@decomposition("aten.nan_to_num", examples=[example("2x3xf32"), example("2x3xf32", 0.5, 7.0, -7.0), example("4xsi32")])
def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    "NaN becomes 0 and infinities the largest numbers, unless other numbers are given"
    if not self.is_floating_point():
        return self.clone()
    limits = torch.finfo(torch.float32 if self.dtype == torch.float64 else self.dtype)
    x = torch.where(self.isnan(), 0.0 if nan is None else nan, self)
    x = torch.where(self == math.inf, limits.max if posinf is None else posinf, x)
    return torch.where(self == -math.inf, limits.min if neginf is None else neginf, x)

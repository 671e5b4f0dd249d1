"""Angles, distances and products with logarithms, right at zero and at infinities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example
from patterns_catalog.decompose.promotion import float_function, in_floats


@float_function("aten.atan2", examples=[example("2x9xf32", "9xf32"), example("4xsi32[-2,2]", "4xsi32[-1,1]")])
def atan2(y: Tensor, x: Tensor) -> Tensor:
    "atan(y / x), plus or minus pi left of zero; two infinities count as two ones, and two zeros give 0 or pi"
    both_infinite = y.isinf() & x.isinf()
    one = torch.ones_like(x)
    slope = torch.where(both_infinite, one.copysign(y) * one.copysign(x), y / x)
    slope = torch.where((y == 0) & (x == 0), y, slope)
    angle = slope.atan()
    return torch.where(x.signbit(), angle + torch.full_like(y, math.pi).copysign(y), angle)


@decomposition("aten.angle", examples=[example("2x3xf32"), example("4xsi32"), example("4xi1")])
def angle(self: Tensor) -> Tensor:
    "the angle of a real number: pi if the number is negative, NaN of NaN, else 0"
    if self.is_complex():
        return NotImplemented
    (x,), result = in_floats(self)
    return torch.where(x < 0, math.pi, torch.where(x.isnan(), x, 0.0)).to(result)


@float_function("aten.hypot", examples=[example("2x3xf32", "3xf32")])
def hypot(x: Tensor, y: Tensor) -> Tensor:
    "sqrt(x^2 + y^2), both divided by the larger one, so that no square overflows"
    x, y = x.abs(), y.abs()
    larger, smaller = torch.maximum(x, y), torch.minimum(x, y)
    ratio = smaller / torch.where(larger == 0, 1.0, larger)
    length = larger * (1.0 + ratio * ratio).sqrt()
    return torch.where(x.isinf() | y.isinf(), math.inf, length)


@float_function("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other", examples=[
    example("2x3xf32[0,2]", "3xf32[0,2]"), example(0.0, "3xf32[0,0]", op="aten.xlogy.Scalar_Self"),
    example("3xsi32[0,2]", 2.5, op="aten.xlogy.Scalar_Other"),
])  # fmt: skip
def xlogy(x: Tensor, y: Tensor) -> Tensor:
    "x * log(y), but 0 where x is 0 and y is not NaN"
    return torch.where(y.isnan(), y, torch.where(x == 0, 0.0, x * y.log()))

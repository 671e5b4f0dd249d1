"""Shifts of integers, and the parts that a float consists of."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from patcomp.patterns import decomposition, example
from patterns_catalog.decompose.promotion import in_floats, in_one_type

_LEFT = ("aten.__lshift__.Tensor", "aten.__lshift__.Scalar", "aten.bitwise_left_shift.Tensor",
         "aten.bitwise_left_shift.Tensor_Scalar", "aten.bitwise_left_shift.Scalar_Tensor")  # fmt: skip
_RIGHT = tuple(name.replace("lshift", "rshift").replace("left", "right") for name in _LEFT)


def _shifted(x: Tensor, count: Tensor, by_power: Callable[[Tensor, int], Tensor], beyond: Tensor | int) -> Tensor:
    """`x` shifted for each bit of `count`, and `beyond` if that is negative or reaches the width."""
    width = torch.iinfo(x.dtype).bits
    for bit in range((width - 1).bit_length()):
        shifted = x
        for power in _powers(bit):
            shifted = by_power(shifted, power)
        x = torch.where(count & (1 << bit) != 0, shifted, x)
    return torch.where((count < 0) | (count >= width), beyond, x)


def _powers(bit: int) -> list[int]:
    """Factors whose product is 2 ** (2 ** bit); each fits 32 bits, to which 64-bit constants are narrowed."""
    return [1 << (1 << bit)] if bit < 5 else [1 << 16, 1 << 16]


@decomposition(*_LEFT, examples=[
    example("2x9xsi32", "9xsi32[-1,33]"), example("4xsi32", 3, op="aten.__lshift__.Scalar"),
    example(5, "9xui8", op="aten.bitwise_left_shift.Scalar_Tensor"),
])  # fmt: skip
def left_shift(self: Tensor | int, other: Tensor | int) -> Tensor:
    "x * 2^n, n taken bit by bit; 0 where n is negative or beyond the width"
    x, count = in_one_type(self, other)
    return _shifted(x, count, torch.mul, 0)


@decomposition(*_RIGHT, examples=[
    example("2x9xsi32[-999,999]", "9xsi32[-1,33]"), example("4xsi32", 3, op="aten.__rshift__.Scalar"),
    example(-5, "9xsi8", op="aten.bitwise_right_shift.Scalar_Tensor"),
])  # fmt: skip
def right_shift(self: Tensor | int, other: Tensor | int) -> Tensor:
    "x / 2^n rounded down, n taken bit by bit; the sign alone where n is negative or beyond the width"
    x, count = in_one_type(self, other)
    return _shifted(x, count, partial(torch.div, rounding_mode="floor"), (x < 0).to(x.dtype) * -1)


@decomposition("aten.lcm", examples=[example("2x9xsi32", "9xsi32")])
def lcm(self: Tensor, other: Tensor) -> Tensor:
    "abs(x / gcd(x, y) * y), 0 where both are 0"
    x, y = in_one_type(self, other)
    divisor = torch.gcd(x, y)
    return (x.div(torch.where(divisor == 0, 1, divisor), rounding_mode="trunc") * y).abs()


@decomposition("aten.ldexp.Tensor", examples=[example("2x3xf32", "3xsi32"), example("2x3xsi32", "3xsi32")])
def ldexp(self: Tensor, other: Tensor) -> Tensor:
    "x * 2^n; of floats in two factors, because 2^n itself may overflow where the product does not"
    (x, n), result = in_floats(self, other)
    if not self.is_floating_point():
        return (x * torch.exp2(n)).to(result)
    half = (n * 0.5).trunc().clamp(-999.0, 999.0)  # also of infinite n
    return (x * torch.exp2(half) * torch.exp2(n - half)).to(result)


@decomposition("aten.frexp.Tensor", examples=[example("2x9xf32[-99,99]")])
def frexp(self: Tensor) -> tuple[Tensor, Tensor]:
    "mantissa in [0.5, 1) and exponent, found by halving the range of exponents; each scaling is exact"
    mantissa = self.to(torch.float32)
    exponent = torch.zeros_like(mantissa)
    special = (mantissa == 0) | ~mantissa.isfinite()
    for step in (64, 64, 32, 16, 8, 4, 2, 1):
        large = mantissa.abs() >= 2.0 ** (step - 1)
        small = mantissa.abs() < 2.0**-step
        shift = large.to(torch.float32) * step - small.to(torch.float32) * step
        mantissa = torch.where(large, mantissa * 2.0**-step, torch.where(small, mantissa * 2.0**step, mantissa))
        exponent = exponent + shift
    exponent = torch.where(special, 0.0, exponent).to(torch.int32)
    return torch.where(special, self, mantissa.to(self.dtype)), exponent


@decomposition("aten.nextafter", examples=[example("2x9xf32", "9xf32"), example("9xf32[-0.0001,0.0001]", "9xf32")])
def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """The neighbour of x toward y: x plus or minus half a unit in the last place and a little, rounded.

    S. M. Rump, P. Zimmermann, S. Boldo, G. Melquiond, Computing predecessor and successor in rounding to nearest,
    BIT 49, 2009, algorithm 2. Small numbers are scaled first.
    """
    x, y = in_one_type(self, other)
    limits = torch.finfo(torch.float32 if x.dtype == torch.float64 else x.dtype)
    half_unit = limits.eps / 2
    largest, smallest = limits.max, limits.tiny * limits.eps
    outward = x.abs() * (half_unit * (1 + 2 * half_unit))
    scale = 1 / limits.eps
    scaled = x * scale
    scaled_outward = scaled.abs() * (half_unit * (1 + 2 * half_unit))
    up = y > x
    tiny = x.abs() < limits.tiny / limits.eps
    normal = torch.where(up, x + outward, x - outward)
    lifted = torch.where(up, scaled + scaled_outward, scaled - scaled_outward) / scale
    subnormal = torch.where(up, x + smallest, x - smallest)
    moved = torch.where(tiny, torch.where(x.abs() < limits.tiny, subnormal, lifted), normal)
    moved = torch.where(x.isinf(), torch.full_like(x, largest).copysign(x), moved)
    return torch.where(x == y, y, torch.where(x.isnan() | y.isnan(), math.nan, moved))

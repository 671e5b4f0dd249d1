"""Norms written out in the element type of their input, for a device that has no float32.

The composites of half precision compute in float32. In float16 the square of a number overflows from 256 on, and the
result of a norm would then be zero, without a sign of it. So these forms divide by the largest magnitude first:

    x / sqrt(mean(x^2) + eps)  =  y / sqrt(mean(y^2) + eps / s^2)  with  y = x / s,  s = max |x|
"""

from __future__ import annotations

import math

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import example, formula
from patterns_catalog.composites.norms import batch_norm, group_norm, instance_norm, layer_norm, rms_norm

_SMALLEST = 2.0**-14
"""The smallest normal number of float16."""


def over_root_mean_square(c: Coreai, x: Value, axes: list[int], eps: float) -> Value:
    """x / sqrt(mean(x^2) + eps) over some axes; nothing in it exceeds 16384 unless x does."""
    root = math.sqrt(eps)
    least = max(_SMALLEST, root / 128)
    scale = c.broadcasting_maximum(c.reduce_max(c.abs_(x), axes), c.constant(least, x.element_type))
    small = c.broadcasting_divide(x, scale)
    added = c.broadcasting_divide(c.constant(root, x.element_type), scale)
    mean = c.reduce_mean(c.broadcasting_mul(small, small), axes)
    return c.broadcasting_mul(small, c.rsqrt(c.broadcasting_add(mean, c.broadcasting_mul(added, added))))


def _normalized(c: Coreai, x: Value, axes: list[int], eps: float) -> Value:
    """(x - mean) / sqrt(variance + eps) over some axes."""
    return over_root_mean_square(c, c.broadcasting_sub(x, c.reduce_mean(x, axes)), axes, eps)


def _affine(c: Coreai, normal: Value, scale: Value, shift: Value) -> Value:
    """normal * scale + shift in the type of the normalized values."""
    element = normal.element_type
    return c.broadcasting_add(c.broadcasting_mul(normal, c.cast(scale, element)), c.cast(shift, element))


INFINITE = {"infinities and zeros": "a row with an infinity is divided by it"}


@formula("target", rms_norm, name="rms_norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x3x8xf32", program=lambda torch, x: torch.nn.functional.rms_norm(x, [8], torch.linspace(1, 2, 8), 1e-6)),
])  # fmt: skip
def rms_norm_divided_first(
    c: Coreai, input: Value, scale: Value, axes: int, eps: float, result: ValueType
) -> Value:  # fmt: skip
    "x / sqrt(mean(x^2) + eps) * scale, divided by max |x| first"
    normal = over_root_mean_square(c, input, [axes % input.rank], eps)
    return c.cast(c.broadcasting_mul(normal, c.cast(scale, normal.element_type)), result.element_type)


@formula("target", layer_norm, name="layer_norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x3x8xf32", program=lambda torch, x: torch.nn.functional.layer_norm(x, [8], torch.linspace(1, 2, 8))),
    example("2x3x8xf32", program=lambda torch, x: torch.nn.functional.layer_norm(x, [3, 8])),
])  # fmt: skip
def layer_norm_divided_first(
    c: Coreai, input: Value, gamma: Value, beta: Value, axes: list[int], eps: float
) -> Value:  # fmt: skip
    "(x - mean) / sqrt(variance + eps) * gamma + beta, divided by max |x - mean| first"
    return _affine(c, _normalized(c, input, [axis % input.rank for axis in axes], eps), gamma, beta)


@formula("target", instance_norm, name="instance_norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x4x5x3xf32", program=lambda torch, x: torch.nn.functional.instance_norm(x)),
])  # fmt: skip
def instance_norm_divided_first(c: Coreai, input: Value, gamma: Value, beta: Value, eps: float) -> Value:
    "layer_norm over the positions of each channel"
    return _affine(c, _normalized(c, input, list(range(2, input.rank)), eps), gamma, beta)


@formula("target", group_norm, name="group_norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x6x4x5xf32", program=lambda torch, x: torch.nn.functional.group_norm(x, 2, torch.linspace(1, 2, 6))),
], where=lambda input: [input.is_static.says("the input has dynamic sizes")])  # fmt: skip
def group_norm_divided_first(
    c: Coreai, input: Value, weight: Value, bias: Value, num_groups: int, num_channels: int, eps: float
) -> Value:
    "layer_norm over the channels and positions of each group, of shape (B groups, C / groups, ...)"
    batch, _, *positions = input.static_shape
    parts = c.reshape(input, [batch * num_groups, num_channels // num_groups, *positions])
    normal = c.reshape(_normalized(c, parts, list(range(1, input.rank)), eps), list(input.static_shape))
    column = [num_channels, *([1] * len(positions))]
    return _affine(c, normal, c.reshape(weight, column), c.reshape(bias, column))


@formula("target", batch_norm, name="batch_norm as scale and shift", targets=("neural_engine",), examples=[
    example("2x3x4x5xf32", program=lambda torch, x: torch.nn.functional.batch_norm(
        x, torch.linspace(-1, 1, 3), torch.linspace(1, 2, 3), torch.linspace(1, 3, 3), torch.linspace(2, 3, 3),
    )),
], where=lambda gamma: [gamma.is_static.says("the number of channels is dynamic")])  # fmt: skip
def batch_norm_as_scale_and_shift(
    c: Coreai, input: Value, gamma: Value, beta: Value, mean: Value, variance: Value, eps: float
) -> Value:
    "x * (gamma / sqrt(variance + eps)) + (beta - mean * gamma / sqrt(variance + eps)), which weights alone give"
    mean, variance, gamma, beta = (c.cast(each, "f32") for each in (mean, variance, gamma, beta))
    factor = c.broadcasting_divide(gamma, c.sqrt(c.broadcasting_add(variance, eps)))
    shift = c.broadcasting_sub(beta, c.broadcasting_mul(mean, factor))
    column = [*gamma.static_shape, *([1] * (input.rank - 2))]
    return _affine(c, input, c.reshape(factor, column), c.reshape(shift, column))

"""Norms written out in the element type of their input, for a device that has no float32.

The composites of half precision compute in float32. In float16 the square of a number overflows from 256 on, and the
result of a norm would then be zero, without a sign of it. So these forms divide by the largest magnitude first:

    x / sqrt(mean(x^2) + eps)  =  y / sqrt(mean(y^2) + eps / s^2)  with  y = x / s,  s = max |x|
"""

from __future__ import annotations

import math

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.recover.normalization import batch_norm, group_norm, instance_norm, layer_norm, rms_norm

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


@op_rule("target", rms_norm, name="rms_norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x3x8xf32", program=lambda torch, x: torch.nn.functional.rms_norm(x, [8], torch.linspace(1, 2, 8), 1e-6)),
])  # fmt: skip
def rms_norm_divided_first(op: OpView, c: Coreai) -> Value:
    "x / sqrt(mean(x^2) + eps) * scale, divided by max |x| first"
    normal = over_root_mean_square(c, op.input, [op.axes % op.input.rank], op.eps)
    return c.cast(c.broadcasting_mul(normal, c.cast(op.scale, normal.element_type)), op.result.element_type)


@op_rule("target", layer_norm, name="layer_norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x3x8xf32", program=lambda torch, x: torch.nn.functional.layer_norm(x, [8], torch.linspace(1, 2, 8))),
    example("2x3x8xf32", program=lambda torch, x: torch.nn.functional.layer_norm(x, [3, 8])),
])  # fmt: skip
def layer_norm_divided_first(op: OpView, c: Coreai) -> Value:
    "(x - mean) / sqrt(variance + eps) * gamma + beta, divided by max |x - mean| first"
    axes = [axis % op.input.rank for axis in op.axes]
    return _affine(c, _normalized(c, op.input, axes, op.eps), op.gamma, op.beta)


@op_rule("target", instance_norm, name="instance_norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x4x5x3xf32", program=lambda torch, x: torch.nn.functional.instance_norm(x)),
])  # fmt: skip
def instance_norm_divided_first(op: OpView, c: Coreai) -> Value:
    "layer_norm over the positions of each channel"
    return _affine(c, _normalized(c, op.input, list(range(2, op.input.rank)), op.eps), op.gamma, op.beta)


@op_rule("target", group_norm, name="group_norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x6x4x5xf32", program=lambda torch, x: torch.nn.functional.group_norm(x, 2, torch.linspace(1, 2, 6))),
])  # fmt: skip
def group_norm_divided_first(op: OpView, c: Coreai) -> Value:
    "layer_norm over the channels and positions of each group, of shape (B groups, C / groups, ...)"
    x, groups, channels = op.input, op.num_groups, op.num_channels
    op.expect(x.is_static, "the input has dynamic sizes")
    batch, _, *positions = x.static_shape
    parts = c.reshape(x, [batch * groups, channels // groups, *positions])
    normal = c.reshape(_normalized(c, parts, list(range(1, x.rank)), op.eps), list(x.static_shape))
    column = [channels, *([1] * len(positions))]
    return _affine(c, normal, c.reshape(op.weight, column), c.reshape(op.bias, column))


@op_rule("target", batch_norm, name="batch_norm as scale and shift", targets=("neural_engine",), examples=[
    example("2x3x4x5xf32", program=lambda torch, x: torch.nn.functional.batch_norm(
        x, torch.linspace(-1, 1, 3), torch.linspace(1, 2, 3), torch.linspace(1, 3, 3), torch.linspace(2, 3, 3),
    )),
])  # fmt: skip
def batch_norm_as_scale_and_shift(op: OpView, c: Coreai) -> Value:
    "x * (gamma / sqrt(variance + eps)) + (beta - mean * gamma / sqrt(variance + eps)), which weights alone give"
    x = op.input
    mean, variance, gamma, beta = (c.cast(each, "f32") for each in (op.mean, op.variance, op.gamma, op.beta))
    factor = c.broadcasting_divide(gamma, c.sqrt(c.broadcasting_add(variance, op.eps)))
    shift = c.broadcasting_sub(beta, c.broadcasting_mul(mean, factor))
    op.expect(gamma.is_static, "the number of channels is dynamic")
    column = [*gamma.static_shape, *([1] * (x.rank - 2))]
    return _affine(c, x, c.reshape(factor, column), c.reshape(shift, column))

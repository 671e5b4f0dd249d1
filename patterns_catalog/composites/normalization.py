"""Normalisation layers as composites, and the ATen ops that export keeps whole for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import OpView, composites, example, op_rule


def _centered(c: Any, x: Value, axes: list[int]) -> tuple[Value, Value]:
    """x - mean and the mean of its square, over axes that stay as 1."""
    centered = c.broadcasting_sub(x, c.reduce_mean(x, axes))
    return centered, c.reduce_mean(c.broadcasting_mul(centered, centered), axes)


def compute_type(x: Value) -> str:
    """Normalisations of half precision are computed in float32, as PyTorch does."""
    return "f32" if x.dtype in ("f16", "bf16") else x.dtype


@composites.define
@composite("layer_norm", inputs=("input", "gamma", "beta"), attributes=("axes", "eps"))
def layer_norm(c: Any, x: Value, gamma: Value, beta: Value, *, axes: list[int], eps: float) -> Value:
    "(x - mean) * rsqrt(var + eps) * gamma + beta over the trailing axes (Ba et al. 2016, arXiv:1607.06450)"
    wide = c.cast(x, compute_type(x))
    centered, variance = _centered(c, wide, axes)
    normal = c.broadcasting_mul(centered, c.rsqrt(c.broadcasting_add(variance, eps)))
    scaled = c.broadcasting_mul(normal, c.cast(gamma, wide.element_type))
    return c.cast(c.broadcasting_add(scaled, c.cast(beta, wide.element_type)), x.element_type)


@composites.define
@composite("group_norm", inputs=("input", "weight", "bias"), attributes=("num_groups", "num_channels", "eps"))
def group_norm(
    c: Any, x: Value, weight: Value, bias: Value, *, num_groups: int, num_channels: int, eps: float
) -> Value:
    "layer_norm over the channels of each group and all positions (Wu and He 2018, arXiv:1803.08494)"
    shape = list(x.shape)
    wide = c.reshape(c.cast(x, compute_type(x)), [shape[0], num_groups, num_channels // num_groups, -1])
    centered, variance = _centered(c, wide, [2, 3])
    normal = c.broadcasting_mul(centered, c.rsqrt(c.broadcasting_add(variance, eps)))
    normal = c.reshape(normal, shape)
    per_channel = [num_channels, *([1] * (len(shape) - 2))]
    scaled = c.broadcasting_mul(normal, c.cast(c.reshape(weight, per_channel), normal.element_type))
    shifted = c.broadcasting_add(scaled, c.cast(c.reshape(bias, per_channel), normal.element_type))
    return c.cast(shifted, x.element_type)


@composites.define
@composite("instance_norm", inputs=("input", "gamma", "beta"), attributes=("eps",))
def instance_norm(c: Any, x: Value, gamma: Value, beta: Value, *, eps: float) -> Value:
    "layer_norm over the positions of each channel, gamma and beta of shape [C, 1, ...] (arXiv:1607.08022)"
    wide = c.cast(x, compute_type(x))
    centered, variance = _centered(c, wide, list(range(2, x.rank)))
    normal = c.broadcasting_mul(centered, c.rsqrt(c.broadcasting_add(variance, eps)))
    scaled = c.broadcasting_mul(normal, c.cast(gamma, wide.element_type))
    return c.cast(c.broadcasting_add(scaled, c.cast(beta, wide.element_type)), x.element_type)


@composites.define
@composite("batch_norm", inputs=("input", "gamma", "beta", "mean", "variance"), attributes=("eps",))
def batch_norm(c: Any, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value, *, eps: float) -> Value:
    "(x - mean) / sqrt(variance + eps) * gamma + beta for each channel (Ioffe and Szegedy 2015, arXiv:1502.03167)"
    wide = c.cast(x, compute_type(x))
    element = wide.element_type

    def per_channel(value: Value) -> Value:
        return c.reshape(c.cast(value, element), [1, value.shape[0], *([1] * (x.rank - 2))])

    deviation = c.sqrt(per_channel(c.broadcasting_add(c.cast(variance, element), eps)))
    normal = c.broadcasting_divide(c.broadcasting_sub(wide, per_channel(mean)), deviation)
    scaled = c.broadcasting_mul(normal, per_channel(gamma))
    return c.cast(c.broadcasting_add(scaled, per_channel(beta)), x.element_type)


@composites.define
@composite("rms_norm", inputs=("input", "scale"), attributes=("axes", "eps"))
def rms_norm(c: Any, x: Value, scale: Value, *, axes: int, eps: float) -> Value:
    "x * rsqrt(mean(x ** 2) + eps) * scale over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467)"
    wide = c.cast(x, compute_type(x))
    square = c.reduce_mean(c.broadcasting_mul(wide, wide), [axes % x.rank])
    normal = c.broadcasting_mul(wide, c.rsqrt(c.broadcasting_add(square, eps)))
    if scale.element_type == wide.element_type:  # a float32 scale of half precision rounds once, at the end
        return c.cast(c.broadcasting_mul(normal, scale), x.element_type)
    return c.broadcasting_mul(c.cast(normal, scale.element_type), scale)


# ---- from the ATen ops that export preserves -------------------------------------------------------


def affine(c: Any, weight: Value | None, fill: float, size: Sequence[int | None], element: Any) -> Value:
    """A weight or bias; ones or zeros where the layer has none."""
    return weight if weight is not None else c.broadcast_to(c.constant(fill, element), size)


@op_rule("recover", "aten.native_layer_norm", name="layer_norm", examples=[
    example("2x3x4xf32", [4], "4xf32", "4xf32", 1e-5), example("2x3x4xf32", [3, 4], None, None, 1e-3),
])  # fmt: skip
def native_layer_norm(op: OpView, c: Any) -> list[Value] | None:
    "(x - mean) / sqrt(var + eps) * weight + bias over the last axes; ones and zeros where the layer has no weights"
    op.expect(not op.used(1) and not op.used(2), "the mean and deviation of native_layer_norm")
    x, size = op.input, list(op.normalized_shape)
    axes = list(range(x.rank - len(size), x.rank))
    weight, bias = (affine(c, value, fill, size, x.element_type) for value, fill in ((op.weight, 1.0), (op.bias, 0.0)))
    result = layer_norm(x, weight, bias, axes=axes, eps=op.eps)
    return [result, *_unused(c, op, 1)]


@op_rule("recover", "aten.native_group_norm", name="group_norm", examples=[
    example("2x6x4x5xf32", "6xf32", "6xf32", 2, 6, 20, 3, 1e-5), example("2x4x5xf32", None, None, 2, 4, 5, 2, 1e-5),
])  # fmt: skip
def native_group_norm(op: OpView, c: Any) -> list[Value]:
    "(x - mean) / sqrt(var + eps) * weight + bias, the statistics of each group of channels"
    op.expect(not op.used(1) and not op.used(2), "the mean and deviation of native_group_norm")
    op.ignore("N", "HxW", because="the input's shape has them")
    x = op.input
    op.expect(x.is_static, "a group norm of a dynamic shape")
    weight, bias = (affine(c, v, fill, [op.C], x.element_type) for v, fill in ((op.weight, 1.0), (op.bias, 0.0)))
    result = group_norm(x, weight, bias, num_groups=op.group, num_channels=op.C, eps=op.eps)
    return [result, *_unused(c, op, 1)]


@op_rule("recover", "aten._native_batch_norm_legit_no_training", name="batch_norm", examples=[
    example("2x3x4x5xf32", "3xf32", "3xf32", "3xf32", "3xf32[0.5,2]", 0.1, 1e-5),
    example("2x3xf32", None, None, "3xf32", "3xf32[0.5,2]", 0.1, 1e-5),
])  # fmt: skip
def native_batch_norm(op: OpView, c: Any) -> list[Value]:
    "(x - mean) / sqrt(var + eps) * weight + bias with the running statistics of each channel"
    op.expect(not op.used(1) and not op.used(2), "the saved statistics of batch norm")
    op.ignore("momentum", because="it only concerns training")
    x, mean = op.input, op.running_mean
    size = list(mean.shape)
    weight, bias = (affine(c, v, fill, size, mean.element_type) for v, fill in ((op.weight, 1.0), (op.bias, 0.0)))
    result = batch_norm(x, weight, bias, mean, op.running_var, eps=op.eps)
    return [result, *_unused(c, op, 1)]


@op_rule("recover", "aten.instance_norm", name="instance_norm", examples=[
    example("2x4x5x3xf32", "4xf32", "4xf32", None, None, True, 0.1, 1e-5, False),
    example("2x4x5xf32", None, None, None, None, True, 0.1, 1e-3, False),
    example("2x4x5xf32", "4xf32", None, "4xf32", "4xf32[0.5,2]", False, 0.1, 1e-5, False),
])  # fmt: skip
def aten_instance_norm(op: OpView, c: Any) -> Value:
    """The composite; with statistics of its own, arithmetic: (x - mean) * rsqrt(variance + eps) * weight + bias."""
    x, mean, variance = op.input, op.running_mean, op.running_var
    op.ignore("momentum", "cudnn_enabled", because="they concern training, and how PyTorch computes it")
    op.expect(x.rank > 2, "an instance norm without positions")
    channels = x.shape[1]
    op.expect(channels is not None, "an instance norm of a dynamic number of channels")
    weight, bias = (affine(c, v, fill, [channels], x.element_type) for v, fill in ((op.weight, 1.0), (op.bias, 0.0)))
    if op.use_input_stats:
        op.expect(mean is None and variance is None, "an instance norm that updates its running statistics")
        column = [channels, *([1] * (x.rank - 2))]
        return instance_norm(x, c.reshape(weight, column), c.reshape(bias, column), eps=op.eps)
    op.expect(mean is not None and variance is not None, "an instance norm without any statistics")
    element = c.cast(x, compute_type(x)).element_type

    def per_channel(value: Value) -> Value:
        return c.reshape(c.cast(value, element), [channels, *([1] * (x.rank - 2))])

    deviation = c.rsqrt(c.broadcasting_add(per_channel(variance), op.eps))
    normal = c.broadcasting_mul(c.broadcasting_sub(c.cast(x, element), per_channel(mean)), deviation)
    scaled = c.broadcasting_mul(normal, per_channel(weight))
    return c.cast(c.broadcasting_add(scaled, per_channel(bias)), x.element_type)


def _unused(c: Any, op: OpView, first: int) -> list[Value]:
    """Stand-ins for results that nobody reads."""
    return [c.broadcast_to(c.constant(0, t.element_type), list(t.shape)) for t in op.results[first:]]

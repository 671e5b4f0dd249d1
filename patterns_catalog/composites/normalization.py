"""Normalisation layers as composites."""

from __future__ import annotations

from typing import Any

from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import ANY, Attr, Const, OpView, Rewrite, any_of, composites, example, op_rule, rule


def _centered(c: Any, x: Value, axes: list[int]) -> tuple[Value, Value]:
    """x - mean and the mean of its square, over axes that stay as 1."""
    centered = c.broadcasting_sub(x, c.reduce_mean(x, axes))
    return centered, c.reduce_mean(c.broadcasting_mul(centered, centered), axes)


def _compute_type(x: Value) -> str:
    """Normalisations of half precision are computed in float32, as PyTorch does."""
    return "f32" if x.dtype in ("f16", "bf16") else x.dtype


@composites.define
@composite("layer_norm", inputs=("input", "gamma", "beta"), attributes=("axes", "eps"))
def layer_norm(c: Any, x: Value, gamma: Value, beta: Value, *, axes: list[int], eps: float) -> Value:
    "(x - mean) * rsqrt(var + eps) * gamma + beta over the trailing axes (Ba et al. 2016, arXiv:1607.06450)"
    wide = c.cast(x, _compute_type(x))
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
    wide = c.reshape(c.cast(x, _compute_type(x)), [shape[0], num_groups, num_channels // num_groups, -1])
    centered, variance = _centered(c, wide, [2, 3])
    normal = c.broadcasting_mul(centered, c.rsqrt(c.broadcasting_add(variance, eps)))
    normal = c.reshape(normal, shape)
    per_channel = [num_channels, *([1] * (len(shape) - 2))]
    scaled = c.broadcasting_mul(normal, c.cast(c.reshape(weight, per_channel), normal.element_type))
    shifted = c.broadcasting_add(scaled, c.cast(c.reshape(bias, per_channel), normal.element_type))
    return c.cast(shifted, x.element_type)


@composites.define
@composite("batch_norm", inputs=("input", "gamma", "beta", "mean", "variance"), attributes=("eps",))
def batch_norm(c: Any, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value, *, eps: float) -> Value:
    "(x - mean) / sqrt(variance + eps) * gamma + beta for each channel (Ioffe and Szegedy 2015, arXiv:1502.03167)"
    wide = c.cast(x, _compute_type(x))
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
    wide = c.cast(x, _compute_type(x))
    square = c.reduce_mean(c.broadcasting_mul(wide, wide), [axes % x.rank])
    normal = c.broadcasting_mul(wide, c.rsqrt(c.broadcasting_add(square, eps)))
    return c.broadcasting_mul(c.cast(normal, scale.element_type), scale)


# ---- from the ATen ops that export preserves -------------------------------------------------------


def _affine(c: Any, weight: Value | None, fill: float, size: list[int], element: Any) -> Value:
    return weight if weight is not None else c.broadcast_to(c.constant(fill, element), size)


@op_rule("recover", "aten.native_layer_norm", name="layer_norm", examples=[
    example("2x3x4xf32", [4], "4xf32", "4xf32", 1e-5), example("2x3x4xf32", [3, 4], None, None, 1e-3),
])  # fmt: skip
def native_layer_norm(op: OpView, c: Any) -> list[Value] | None:
    op.expect(not op.used(1) and not op.used(2), "the mean and deviation of native_layer_norm")
    x, size = op.input, list(op.normalized_shape)
    axes = list(range(x.rank - len(size), x.rank))
    weight, bias = (_affine(c, value, fill, size, x.element_type) for value, fill in ((op.weight, 1.0), (op.bias, 0.0)))
    result = layer_norm(x, weight, bias, axes=axes, eps=op.eps)
    return [result, *_unused(c, op, 1)]


@op_rule("recover", "aten.native_group_norm", name="group_norm", examples=[
    example("2x6x4x5xf32", "6xf32", "6xf32", 2, 6, 20, 3, 1e-5), example("2x4x5xf32", None, None, 2, 4, 5, 2, 1e-5),
])  # fmt: skip
def native_group_norm(op: OpView, c: Any) -> list[Value]:
    op.expect(not op.used(1) and not op.used(2), "the mean and deviation of native_group_norm")
    op.ignore("N", "HxW", because="the input's shape has them")
    x = op.input
    op.expect(x.is_static, "a group norm of a dynamic shape")
    weight, bias = (_affine(c, v, fill, [op.C], x.element_type) for v, fill in ((op.weight, 1.0), (op.bias, 0.0)))
    result = group_norm(x, weight, bias, num_groups=op.group, num_channels=op.C, eps=op.eps)
    return [result, *_unused(c, op, 1)]


@op_rule("recover", "aten._native_batch_norm_legit_no_training", name="batch_norm", examples=[
    example("2x3x4x5xf32", "3xf32", "3xf32", "3xf32", "3xf32[0.5,2]", 0.1, 1e-5),
    example("2x3xf32", None, None, "3xf32", "3xf32[0.5,2]", 0.1, 1e-5),
])  # fmt: skip
def native_batch_norm(op: OpView, c: Any) -> list[Value]:
    op.expect(not op.used(1) and not op.used(2), "the saved statistics of batch norm")
    op.ignore("momentum", because="it only concerns training")
    x, mean = op.input, op.running_mean
    size = list(mean.shape)
    weight, bias = (_affine(c, v, fill, size, mean.element_type) for v, fill in ((op.weight, 1.0), (op.bias, 0.0)))
    result = batch_norm(x, weight, bias, mean, op.running_var, eps=op.eps)
    return [result, *_unused(c, op, 1)]


def _unused(c: Any, op: OpView, first: int) -> list[Value]:
    """Stand-ins for results that nobody reads."""
    return [c.broadcast_to(c.constant(0, t.element_type), list(t.shape)) for t in op.results[first:]]


# ---- from the ops of models that write it out ------------------------------------------------------


@rule(name="rms_norm", example={"x": "2x3x8xf32", "w": "8xf32", "eps": 1e-6, "axis": 2})
def recovered_rms_norm(a: Any, c: Any, x: Any, w: Any, eps: Const, axis: Attr) -> Rewrite:
    """x * rsqrt(mean(x ** 2, -1) + eps) * w, in float32 (Llama, Mistral, Qwen, Gemma, T5).

    Half precision is cast to float32 for the square, the product or both at once, and back before the
    weight. Models that stay in half precision throughout do not match: the composite computes in float32.
    """
    squared = any_of(a._to_copy(x, dtype=ANY), x)
    scaled = any_of(a._to_copy(x, dtype=ANY), x)
    square = any_of(a.pow(squared, 2.0), squared * squared)
    mean = a.op("mean.dim", square, dim=[axis], keepdim=True, dtype=None)
    product = scaled * a.rsqrt(mean + eps)
    normal = any_of(a._to_copy(product, dtype=ANY), product)
    return Rewrite(
        normal * w,
        to=c.rms_norm(x, w, eps=eps.value, axes=-1),
        where=[
            axis == x.rank - 1,
            x.dtype.is_in("f32", "f16", "bf16"),
            squared.dtype == "f32",
            scaled.dtype == "f32",
            normal.dtype == x.dtype,
            w.dtype == x.dtype,
            w.rank == 1,
            w.shape[0] == x.shape[-1],
            eps.rank == 0,
        ],
    )

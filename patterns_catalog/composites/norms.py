"""Normalisation layers as composites."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import composites
from patterns_catalog.sizes import size_of, sizes_of

_SMALLEST = 2.0**-126
"""The smallest float32 of full precision. It changes no variance but 0."""


_LONG = 2**14
"""So many elements are not added in one sum: the runtime's CPU adds them one by one in float32, and loses digits."""


def _is_long(sizes: Sequence[int | None]) -> bool:
    return None not in sizes and prod(size for size in sizes if size is not None) > _LONG


def _mean(c: Coreai, x: Value, axes: list[int]) -> Value:
    """The mean over axes, which stay; of many elements, the mean over one axis after the other."""
    if not _is_long([x.shape[axis] for axis in axes]):
        return c.reduce_mean(x, axes)
    for axis in reversed(axes):
        x = c.reduce_mean(x, [axis])
    return x


def centered_and_variance(c: Coreai, x: Value, axes: list[int]) -> tuple[Value, Value]:
    """x - mean and the mean of its square; the axes stay, with size 1."""
    centered = c.broadcasting_sub(x, _mean(c, x, axes))
    return centered, _mean(c, c.broadcasting_mul(centered, centered), axes)


def eps_of_batch(eps: float) -> float:
    """The eps of a norm by the statistics of its batch, as PyTorch's kernels take 0: equal numbers give 0, not NaN."""
    return eps or _SMALLEST


def compute_type(x: Value) -> str:
    """Normalisations of half precision are computed in float32, as PyTorch does."""
    return "f32" if x.dtype in ("f16", "bf16") else x.dtype


@composites.define
@composite("layer_norm", inputs=("input", "gamma", "beta"), attributes=("axes", "eps"))
def layer_norm(c: Coreai, x: Value, gamma: Value, beta: Value, *, axes: list[int], eps: float) -> Value:
    "(x - mean) * rsqrt(var + eps) * gamma + beta over the trailing axes (Ba et al. 2016, arXiv:1607.06450)"
    wide = c.cast(x, compute_type(x))
    centered, variance = centered_and_variance(c, wide, axes)
    normal = c.broadcasting_mul(centered, c.rsqrt(c.broadcasting_add(variance, eps)))
    scaled = c.broadcasting_mul(normal, c.cast(gamma, wide.element_type))
    return c.cast(c.broadcasting_add(scaled, c.cast(beta, wide.element_type)), x.element_type)


@composites.define
@composite("group_norm", inputs=("input", "weight", "bias"), attributes=("num_groups", "num_channels", "eps"))
def group_norm(
    c: Coreai, x: Value, weight: Value, bias: Value, *, num_groups: int, num_channels: int, eps: float
) -> Value:
    "layer_norm over the channels of each group and all positions (Wu and He 2018, arXiv:1803.08494)"
    shape = sizes_of(c, x)
    images = x.shape[2:] if x.rank > 3 and _is_long(x.shape[2:]) else ()
    grouped = [num_groups, -1, *images[-2:]] if images else [num_groups, num_channels // num_groups, -1]
    wide = c.reshape(c.cast(x, compute_type(x)), [shape[0], *grouped])
    centered, variance = centered_and_variance(c, wide, list(range(2, len(grouped) + 1)))
    normal = c.broadcasting_mul(centered, c.rsqrt(c.broadcasting_add(variance, eps)))
    normal = c.reshape(normal, shape)
    per_channel = [num_channels, *([1] * (len(shape) - 2))]
    scaled = c.broadcasting_mul(normal, c.cast(c.reshape(weight, per_channel), normal.element_type))
    shifted = c.broadcasting_add(scaled, c.cast(c.reshape(bias, per_channel), normal.element_type))
    return c.cast(shifted, x.element_type)


@composites.define
@composite("instance_norm", inputs=("input", "gamma", "beta"), attributes=("eps",))
def instance_norm(c: Coreai, x: Value, gamma: Value, beta: Value, *, eps: float) -> Value:
    "layer_norm over the positions of each channel, gamma and beta of shape [C, 1, ...] (arXiv:1607.08022)"
    wide = c.cast(x, compute_type(x))
    centered, variance = centered_and_variance(c, wide, list(range(2, x.rank)))
    normal = c.broadcasting_mul(centered, c.rsqrt(c.broadcasting_add(variance, eps)))
    scaled = c.broadcasting_mul(normal, c.cast(gamma, wide.element_type))
    return c.cast(c.broadcasting_add(scaled, c.cast(beta, wide.element_type)), x.element_type)


@composites.define
@composite("batch_norm", inputs=("input", "gamma", "beta", "mean", "variance"), attributes=("eps",))
def batch_norm(c: Coreai, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value, *, eps: float) -> Value:
    "(x - mean) / sqrt(variance + eps) * gamma + beta for each channel (Ioffe and Szegedy 2015, arXiv:1502.03167)"
    wide = c.cast(x, compute_type(x))
    element = wide.element_type

    def per_channel(value: Value) -> Value:
        return c.reshape(c.cast(value, element), [1, size_of(c, value, 0), *([1] * (x.rank - 2))])

    deviation = c.sqrt(per_channel(c.broadcasting_add(c.cast(variance, element), eps)))
    normal = c.broadcasting_divide(c.broadcasting_sub(wide, per_channel(mean)), deviation)
    scaled = c.broadcasting_mul(normal, per_channel(gamma))
    return c.cast(c.broadcasting_add(scaled, per_channel(beta)), x.element_type)


@composites.define
@composite("rms_norm", inputs=("input", "scale"), attributes=("axes", "eps"))
def rms_norm(c: Coreai, x: Value, scale: Value, *, axes: int, eps: float) -> Value:
    "x * rsqrt(mean(x ** 2) + eps) * scale over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467)"
    wide = c.cast(x, compute_type(x))
    square = c.reduce_mean(c.broadcasting_mul(wide, wide), [axes % x.rank])
    normal = c.broadcasting_mul(wide, c.rsqrt(c.broadcasting_add(square, eps)))
    if scale.element_type == wide.element_type:  # a float32 scale of half precision rounds once, at the end
        return c.cast(c.broadcasting_mul(normal, scale), x.element_type)
    return c.broadcasting_mul(c.cast(normal, scale.element_type), scale)


FOLDED = {"infinities and zeros": "eager folds statistics and weights into one factor, which may be NaN"}

"""Resizing of signals, images and volumes, by the rules of ATen's `UpSample.h`."""

from __future__ import annotations

from typing import Any

import numpy as np

from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.composites.normalization import compute_type
from patterns_catalog.lowering.indexing import take


def _overloads(name: str) -> tuple[str, str]:
    """An op with scales one by one, and with a list of them."""
    return f"aten.{name}", f"aten.{name}.vec"


@lowering(
    "aten.upsample_nearest2d.vec", "aten.upsample_nearest2d",
    *(op for rank in (1, 3) for op in _overloads(f"upsample_nearest{rank}d")),
    *(op for rank in (1, 2, 3) for op in _overloads(f"_upsample_nearest_exact{rank}d")),
    name="upsample_nearest", examples=[
        example("1x2x3x4xf32", None, [2.0, 2.0]), example("1x2x4x5xf32", [7, 9], None),
        example("1x1x5x5xf32", None, [1.7, 0.8]), example("1x2x5xf32", [3], 0.7, op="aten.upsample_nearest1d"),
        example("1x2x5x4xf32", [7, 3], op="aten._upsample_nearest_exact2d"),
        example("1x1x3x4x5xf32", None, [1.4, 2.0, 0.5], op="aten._upsample_nearest_exact3d.vec"),
    ],
)  # fmt: skip
def upsample_nearest(op: OpView, c: Any) -> Value:
    "output i is input floor(i * scale), of the exact ones floor((i + 0.5) * scale), in float32 as in PyTorch"
    x, scales = _resize(op)
    offset = np.float32(0.5 if "exact" in op.op_name else 0)
    for axis, scale in enumerate(scales, 2):
        before, size = x.static_shape[axis], op.result.static_shape[axis]
        outputs = np.arange(size, dtype=np.float32) + offset
        source = np.minimum(np.floor(outputs * scale), before - 1).astype(np.int32)
        factor = size // before
        if np.array_equal(source, np.repeat(np.arange(before), factor)):
            x = _repeat(c, x, axis, factor)
        else:
            x = take(c, x, axis, source)
    return x


@lowering(
    "aten.upsample_bilinear2d.vec", "aten.upsample_bilinear2d", *_overloads("upsample_linear1d"),
    *_overloads("upsample_trilinear3d"), name="upsample_linear", examples=[
        example("1x2x4x5xf32", None, False, [2.0, 2.0]), example("1x2x4x5xf32", [7, 9], True, None),
        example("1x1x5x5xf32", None, False, [1.7, 0.6]), example("1x1x1x5xf32", [3, 1], True, None),
        example("1x2x5xf32", [7], False, 1.5, op="aten.upsample_linear1d"),
        example("1x2x3x4x5xf32", [5, 2, 7], True, op="aten.upsample_trilinear3d"),
        example("1x2x3x4x2xf32", [5, 6, 2], False, op="aten.upsample_trilinear3d"),
    ],
)  # fmt: skip
def upsample_linear(op: OpView, c: Any) -> Value:
    "output i reads the input at (i + 0.5) * scale - 0.5, clamped; with `align_corners` the corners fall together"
    x, steps = _resize(op)
    op.expect(is_float(x.element_type), "a linear resize of integers")
    shape = list(op.result.static_shape)
    scales, offsets = [1.0, 1.0], [0.0, 0.0]
    for before, after, step in zip(x.static_shape[2:], shape[2:], steps, strict=True):
        if op.align_corners:  # as the half-pixel rule with the corners moved onto each other
            scale = (after - 1) / (before - 1) if min(before, after) > 1 else 1.0
            scales.append(scale)
            offsets.append(0.5 * (1.0 - scale))
        else:
            scales.append(1.0 / float(step))
            offsets.append(0.0)
    return c.interpolate(x, shape, c.constant(scales, "f32"), c.constant(offsets, "f32"), interpolation_mode="linear")


@lowering(*_overloads("upsample_bicubic2d"), name="upsample_bicubic", examples=[
    example("1x2x4x5xf32", [7, 9], False), example("1x2x4x5xf32", [7, 3], True),
    example("1x1x5x5xf32", None, False, [1.7, 0.6], op="aten.upsample_bicubic2d.vec"),
])  # fmt: skip
def upsample_bicubic(op: OpView, c: Any) -> Value:
    "cubic convolution of the four nearest along each axis, a = -0.75 (Keys 1981, doi:10.1109/TASSP.1981.1163711)"
    x, scales = _resize(op)
    op.expect(is_float(x.element_type), "a cubic resize of integers")
    made = c.cast(x, compute_type(x))
    for axis, scale in enumerate(scales, 2):
        half = np.float32(0 if op.align_corners else 0.5)
        source = (np.arange(op.result.static_shape[axis], dtype=np.float32) + half) * scale - half
        taps = np.floor(source)[:, None] + np.arange(-1, 3, dtype=np.float32)
        weights = _cubic(source[:, None] - taps, -0.75)
        made = _weighted(c, made, axis, taps.clip(0, x.static_shape[axis] - 1).astype(np.int32), weights)
    return c.cast(made, x.element_type)


@lowering(
    *_overloads("_upsample_bilinear2d_aa"), *_overloads("_upsample_bicubic2d_aa"), name="upsample_antialias",
    examples=[
        example("1x2x7x8xf32", [3, 10], False), example("1x2x7x8xf32", [3, 4], True),
        example("1x2x7x8xf32", [3, 10], False, op="aten._upsample_bicubic2d_aa"),
    ],
)  # fmt: skip
def upsample_antialias(op: OpView, c: Any) -> Value:
    "a linear or cubic (a = -0.5) filter that is as wide as the output's pixels where those are the larger ones"
    x, scales = _resize(op)
    op.expect(is_float(x.element_type), "an antialiased resize of integers")
    cubic = "bicubic" in op.op_name
    made = c.cast(x, compute_type(x))
    for axis, scale in enumerate(scales, 2):
        before = x.static_shape[axis]
        stretch = max(scale, np.float32(1))
        support = np.float32(2 if cubic else 1) * stretch
        centers = (np.arange(op.result.static_shape[axis], dtype=np.float32) + np.float32(0.5)) * scale
        first = np.maximum(np.trunc(centers - support + np.float32(0.5)), 0).astype(np.int32)
        last = np.minimum(np.trunc(centers + support + np.float32(0.5)), before).astype(np.int32)
        taps = first[:, None] + np.arange(max(1, (last - first).max(initial=1)), dtype=np.int32)
        distances = (taps - centers[:, None] + np.float32(0.5)) / stretch
        weights = _cubic(distances, -0.5) if cubic else np.maximum(0, 1 - np.abs(distances))
        inside = taps < last[:, None]
        weights = np.where(inside, weights, 0)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
        made = _weighted(c, made, axis, np.where(inside, taps, first[:, None]), weights, inside)
    return c.cast(made, x.element_type)


def _resize(op: OpView) -> tuple[Value, list[np.float32]]:
    """The input, and how many of its pixels make one of the output along each axis: by the given factor, by the sizes,
    or by the distance of the corners."""
    x = op["input"] if "input" in op.arguments else op["self"]
    op.ignore("output_size", because="the result type has it")
    op.expect(x.is_static and None not in op.result.shape, "a resize of a dynamic shape")
    given = [op[name] for name in op.arguments if name.startswith("scale")]
    factors = given if len(given) != 1 or not isinstance(given[0], list | tuple) else list(given[0])
    factors = [None] * (x.rank - 2) if factors == [None] else factors
    scales = []
    for before, after, factor in zip(x.static_shape[2:], op.result.static_shape[2:], factors, strict=True):
        if "align_corners" in op.arguments and op.align_corners:
            scales.append(np.float32(before - 1) / np.float32(after - 1) if after > 1 else np.float32(0))
        else:
            scales.append(np.float32(1.0 / factor) if factor else np.float32(before) / np.float32(after))
    return x, scales


def _cubic(distances: np.ndarray, a: float) -> np.ndarray:
    """The kernel of cubic convolution."""
    x = np.abs(distances)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _weighted(
    c: Any, x: Value, axis: int, taps: np.ndarray, weights: np.ndarray, counted: np.ndarray | None = None
) -> Value:
    """Sums of slices along an axis: of those at each row of `taps`, times the row of `weights`, where `counted`."""
    front = [axis, *(other for other in range(x.rank) if other != axis)]
    moved = c.transpose(x, front)
    rest = list(moved.static_shape[1:])
    parts = c.reshape(take(c, moved, 0, taps.reshape(-1)), [*taps.shape, *rest])
    column = [*taps.shape, *([1] * len(rest))]
    products = c.broadcasting_mul(parts, c.constant(weights.astype(np.float32).reshape(column)))
    if counted is not None and not counted.all():  # an infinity that does not count must not meet a weight of 0
        products = c.broadcasting_where(c.constant(counted.reshape(column)), products, c.constant(0.0))
    return c.transpose(c.shrink_dims(c.reduce_sum(products, [1]), [1]), np.argsort(front).tolist())


def _repeat(c: Any, x: Value, axis: int, factor: int) -> Value:
    """Every slice along an axis `factor` times in a row."""
    if factor == 1:
        return x
    shape = list(x.static_shape)
    wide = c.broadcast_in_dims(c.expand_dims(x, [axis + 1]), [factor], [axis + 1])
    return c.reshape(wide, [*shape[:axis], shape[axis] * factor, *shape[axis + 1 :]])

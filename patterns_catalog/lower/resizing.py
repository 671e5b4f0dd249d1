"""Resizing of signals, images and volumes, by the rules of ATen's `UpSample.h`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rejected, example, lowering
from patcomp.patterns.aspects import SPECIAL
from patterns_catalog.lower.indexing import take
from patterns_catalog.sizes import Size, as_data, plus, positions, product, size_of, sizes_of


def overloads(name: str) -> tuple[str, str]:
    """An op with scales one by one, and with a list of them."""
    return f"aten.{name}", f"aten.{name}.vec"


@lowering(
    "aten.upsample_nearest2d.vec", "aten.upsample_nearest2d",
    *(op for rank in (1, 3) for op in overloads(f"upsample_nearest{rank}d")),
    *(op for rank in (1, 2, 3) for op in overloads(f"_upsample_nearest_exact{rank}d")),
    name="upsample_nearest", examples=[
        example("1x2x3x4xf32", None, [2.0, 2.0]), example("1x2x4x5xf32", [7, 9], None),
        example("1x1x5x5xf32", None, [1.7, 0.8]), example("1x2x5xf32", [3], 0.7, op="aten.upsample_nearest1d"),
        example("1x2x5x4xf32", [7, 3], op="aten._upsample_nearest_exact2d"),
        example("1x1x3x4x5xf32", None, [1.4, 2.0, 0.5], op="aten._upsample_nearest_exact3d.vec"),
    ],
)  # fmt: skip
def upsample_nearest(op: OpView, c: Coreai) -> Value:
    "output i is input floor(i * scale), or floor((i + 0.5) * scale) in the exact ops, in float32 as in PyTorch"
    x, axes = resized_axes(op, c)
    offset = 0.5 if "exact" in op.op_name else 0.0
    for axis, (before, after, scale) in enumerate(axes, 2):
        if isinstance(before, Value) or isinstance(after, Value):
            factor = 1 / scale if isinstance(scale, np.float32) else 0
            if factor in (1, 2, 4, 8):  # whose quotients are exact
                x = _repeat(c, x, axis, int(factor))
                continue
            outputs = c.broadcasting_add(c.cast(positions(c, after), "f32"), offset)
            down = c.cast(c.broadcasting_mul(outputs, scale if isinstance(scale, Value) else float(scale)), "si32")
            x = take(c, x, axis, c.broadcasting_minimum(down, plus(c, before, -1)))
            continue
        source = np.floor((np.arange(after, dtype=np.float32) + np.float32(offset)) * scale)
        source = np.minimum(source, before - 1).astype(np.int32)
        if np.array_equal(source, np.repeat(np.arange(before), after // before)):
            x = _repeat(c, x, axis, after // before)
        else:
            x = take(c, x, axis, source)
    return x


ZERO_WEIGHTS = dict.fromkeys(SPECIAL, "eager's kernels differ in what meets a weight of zero")


@lowering(
    "aten.upsample_bilinear2d.vec", "aten.upsample_bilinear2d", *overloads("upsample_linear1d"),
    *overloads("upsample_trilinear3d"), name="upsample_linear", unspecified=ZERO_WEIGHTS, examples=[
        example("1x2x4x5xf32", None, False, [2.0, 2.0]), example("1x2x4x5xf32", [7, 9], True, None),
        example("1x1x5x5xf32", None, False, [1.7, 0.6]), example("1x1x1x5xf32", [3, 1], True, None),
        example("1x2x5xf32", [7], False, 1.5, op="aten.upsample_linear1d"),
        example("1x2x3x4x5xf32", [5, 2, 7], True, op="aten.upsample_trilinear3d"),
        example("1x2x3x4x2xf32", [5, 6, 2], False, op="aten.upsample_trilinear3d"),
    ],
)  # fmt: skip
def upsample_linear(op: OpView, c: Coreai) -> Value:
    """Output i reads the input at (i + 0.5) * scale - 0.5, clamped; with `align_corners` the corners fall together.

    Along an axis that keeps its size PyTorch copies, whatever the factor is.
    """
    x, axes = resized_axes(op, c)
    op.expect(is_float(x.element_type), "a linear resize of integers is not supported; cast the input to float")
    sizes = [*sizes_of(c, x)[:2], *(after for _, after, _ in axes)]
    scales: list[Any] = [1.0, 1.0]
    offsets: list[Any] = [0.0, 0.0]
    for before, after, step in axes:
        if op.align_corners:  # as the half-pixel rule with the corners moved onto each other
            scale = _corner_scale(c, before, after)
            scales.append(scale)
            if isinstance(scale, Value):
                offsets.append(c.broadcasting_mul(c.broadcasting_sub(1.0, scale), 0.5))
            else:
                offsets.append(0.5 * (1.0 - scale))
        else:
            scale = c.broadcasting_divide(1.0, step) if isinstance(step, Value) else 1.0 / float(step)
            if isinstance(before, int) and isinstance(after, int):
                scale = scale if before != after else 1.0
            else:
                scale = c.broadcasting_where(c.broadcasting_equal(before, after), 1.0, scale)
            scales.append(scale)
            offsets.append(0.0)
    scale, offset = _vector(c, scales), _vector(c, offsets)
    return c.interpolate(x, sizes, scale, offset, interpolation_mode="linear", result_type=op.result)


def _corner_scale(c: Coreai, before: Size, after: Size) -> float | Value:
    """How many pixels of the output make one of the input where the corners fall together."""
    if isinstance(before, int) and isinstance(after, int):
        return (after - 1) / (before - 1) if min(before, after) > 1 else 1.0
    many = c.broadcasting_greater(c.broadcasting_minimum(before, after), 1)
    distances = (c.cast(plus(c, size, -1), "f32") for size in (after, before))
    return c.broadcasting_where(many, c.broadcasting_divide(*distances), 1.0)


def _vector(c: Coreai, numbers: Sequence[Any]) -> Value:
    """Numbers and 0-d values in a row."""
    if not any(isinstance(number, Value) for number in numbers):
        return c.constant(numbers, "f32")
    parts = [c.reshape(n, [1]) if isinstance(n, Value) else c.constant([n], "f32") for n in numbers]
    return c.concat(0, parts)


def resized_axes(
    op: OpView, c: Coreai, precision: type[np.floating[Any]] = np.float32
) -> tuple[Value, list[tuple[Any, Any, Any]]]:
    """The input, and of each axis the size before and after, and how many pixels of the input make one of the output:
    by the given factor, by the sizes, or by the distance of the corners.

    Args:
        precision: the type of the last where it is known.
    """
    x = op["input"] if "input" in op.arguments else op["self"]
    wanted = op.output_size or [None] * (x.rank - 2)
    given = [op[name] for name in op.arguments if name.startswith("scale")]
    factors = given if len(given) != 1 or not isinstance(given[0], list | tuple) else list(given[0])
    factors = [None] * (x.rank - 2) if factors == [None] else factors
    op.expect(
        len(wanted) == len(factors) == x.rank - 2, "a resize needs a size or factor for each axis after the second"
    )
    corners = "align_corners" in op.arguments and op.align_corners
    axes: list[tuple[Any, Any, Any]] = []
    for axis, (size, factor) in enumerate(zip(wanted, factors, strict=True), 2):
        op.expect(not isinstance(factor, Value), "the scale factor of a resize must be static; use a constant")
        if factor is not None and factor <= 0:  # PyTorch goes by the sizes then
            op.expect(size is not None, "a resize by a factor that is not positive needs output_size")
            factor = None
        before, known = size_of(c, x, axis), op.result.shape[axis]
        after: Size = known if known is not None else size if size is not None else _scaled(c, before, factor)
        if isinstance(before, Value) or isinstance(after, Value):
            ends = [c.cast(as_data(c, size), "f32") for size in (before, after)]
            if corners:
                before_last, after_last = (c.broadcasting_sub(end, 1.0) for end in ends)
                ends = [before_last, c.broadcasting_maximum(after_last, 1.0)]
            scale = precision(1.0 / factor) if factor and not corners else c.broadcasting_divide(*ends)
        elif corners:
            scale = precision(before - 1) / precision(after - 1) if after > 1 else precision(0)
        else:
            scale = precision(1.0 / factor) if factor else precision(before) / precision(after)
        axes.append((before, after, scale))
    return x, axes


def _scaled(c: Coreai, size: Size, factor: float) -> Size:
    """A size times a factor, rounded down; of integers, since float32 would round otherwise than PyTorch's float64."""
    numerator, denominator = factor.as_integer_ratio()
    if denominator > 64:
        raise Rejected(f"a resize of a dynamic size by {factor} is not supported; use a simple fraction")
    whole = product(c, [size, numerator])
    return whole if denominator == 1 else c.broadcasting_floor_divide(whole, denominator)


def _repeat(c: Coreai, x: Value, axis: int, factor: int) -> Value:
    """Every slice along an axis `factor` times in a row."""
    if factor == 1:
        return x
    sizes = sizes_of(c, x)
    sizes[axis] = product(c, [sizes[axis], factor])
    wide = c.broadcast_in_dims(c.expand_dims(x, [axis + 1]), [factor], [axis + 1])
    return c.reshape(wide, sizes)

"""Resizing of images by filters: cubic, antialiased, and that of bytes, by the rules of ATen's `UpSampleKernel.cpp`.

Each output is a weighted sum of a few inputs along one axis, then along the other. The places of these inputs, the
taps, and their weights are arrays where the sizes are static, and computed where a size is dynamic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.types import element_name, is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.composites.norms import compute_type
from patterns_catalog.computed import Computed, floor, maximum, minimum, not_zero, real, row_sums, where, whole
from patterns_catalog.lower.resizing import ZERO_WEIGHTS, overloads, resized_axes
from patterns_catalog.lower.windows_of_axes import at_taps, taken_rows
from patterns_catalog.sizes import as_data, positions


@lowering(*overloads("upsample_bicubic2d"), name="upsample_bicubic", unspecified=ZERO_WEIGHTS, examples=[
    example("1x2x4x5xf32", [7, 9], False), example("1x2x4x5xf32", [7, 3], True),
    example("1x1x5x5xf32", None, False, [1.7, 0.6], op="aten.upsample_bicubic2d.vec"),
    example("1x2x4x5xui8[0,20]", [7, 3], False), example("1x2x4x5xui8[0,20]", [3, 9], True),
])  # fmt: skip
def upsample_bicubic(op: OpView, c: Coreai) -> Value:
    "cubic convolution of the four nearest along each axis, a = -0.75 (Keys 1981, doi:10.1109/TASSP.1981.1163711)"
    return _filtered(op, c, "a cubic", lambda *axis: _nearest_taps(*axis, cubic=True, corners=op.align_corners))


@lowering("aten.upsample_bilinear2d.vec", "aten.upsample_bilinear2d", name="upsample_linear of bytes", examples=[
    example("1x2x4x5xui8[0,20]", [7, 3], False, op="aten.upsample_bilinear2d"),
    example("1x2x4x5xui8[0,20]", [3, 9], True, op="aten.upsample_bilinear2d"),
])  # fmt: skip
def upsample_bytes(op: OpView, c: Coreai) -> Value:
    "a linear resize of unsigned bytes, by integer weights"
    op.expect(element_name(op.result.element_type) == "ui8", "this rule resizes bytes only")
    return _filtered(op, c, "a linear", lambda *axis: _nearest_taps(*axis, cubic=False, corners=op.align_corners))


@lowering(
    *overloads("_upsample_bilinear2d_aa"), *overloads("_upsample_bicubic2d_aa"), name="upsample_antialias",
    unspecified=ZERO_WEIGHTS | dict.fromkeys(
        ("sizes", "options"), "eager's kernel goes wrong on images that are one pixel wide, before or after"
    ), examples=[
        example("1x2x7x8xf32", [3, 10], False), example("1x2x7x8xf32", [3, 4], True),
        example("1x2x7x8xf32", [3, 10], False, op="aten._upsample_bicubic2d_aa"),
        example("1x2x7x8xui8[0,20]", [3, 10], False),
        example("1x2x7x8xui8[0,20]", [3, 10], False, op="aten._upsample_bicubic2d_aa"),
    ],
)  # fmt: skip
def upsample_antialias(op: OpView, c: Coreai) -> Value:
    "a linear or cubic (a = -0.5) filter that is as wide as the output's pixels where those are the larger ones"
    cubic = "bicubic" in op.op_name

    def taps(before: Any, after: Any, scale: Any) -> _Taps:
        made = _wide_taps(before, after, scale, cubic=cubic)
        if isinstance(before, int):
            op.expect(bool((made[0] < before).all()), "the scale factor must not make the resize read beyond the input")
        return made

    return _filtered(op, c, "an antialiased", taps)


_Taps = tuple[Any, Any, Any]
"""For each output of an axis the inputs that it reads, their weights, and which of them count; None if all do."""


def _filtered(op: OpView, c: Coreai, kind: str, taps: Callable[..., _Taps]) -> Value:
    """The image resized along one axis after the other.

    Args:
        kind: of the resize, for the message.
        taps: `_Taps` of an axis, from its size before and after and how many inputs make one output.
    """
    of_bytes = element_name(op.result.element_type) == "ui8"
    op.expect(
        of_bytes or is_float(op.result.element_type),
        f"{kind} resize of integers other than unsigned bytes is not supported; cast the input to float",
    )
    x, axes = resized_axes(op, c, np.float64 if of_bytes else np.float32)
    made = c.cast(x, "si32" if of_bytes else compute_type(x))
    for axis, (before, after, scale) in reversed([*enumerate(axes, 2)]):  # bytes are rounded after each axis
        if any(isinstance(number, Value) for number in (before, after, scale)):
            before, scale = Computed(c, as_data(c, before)), Computed.of(c, scale, "f32")
        made = (_bytes if of_bytes else _weighted)(c, made, axis, *taps(before, after, scale))
    return c.cast(made, x.element_type)


def _nearest_taps(before: Any, after: Any, scale: Any, *, cubic: bool, corners: bool) -> _Taps:
    """The nearest two or four inputs; beyond a border its input is repeated."""
    half = 0.0 if corners else 0.5
    source = (_outputs(after, scale) + half) * scale - half
    source = source if cubic else maximum(source, 0)
    near = floor(source)
    taps = near[:, None] + np.arange(-1 if cubic else 0, 3 if cubic else 2, dtype=np.float32)
    distances = source[:, None] - taps
    inside = whole(minimum(maximum(taps, 0), real(before) - 1))
    return inside, _cubic(distances, -0.75) if cubic else _triangle(distances), None


def _wide_taps(before: Any, after: Any, scale: Any, *, cubic: bool) -> _Taps:
    """The inputs under a filter that is as wide as the larger pixels; its weights add up to one."""
    stretch = maximum(scale, 1)
    support = stretch * (2 if cubic else 1)
    centers = (_outputs(after, scale) + 0.5) * scale
    first = maximum(whole(centers - support + 0.5), 0)
    last = minimum(whole(centers + support + 0.5), before)
    if isinstance(first, Computed):
        c, count = first.c, whole(support * 2) + 2
        steps: Any = Computed(c, positions(c, c.reshape(count.value, [])))[None, :]
    else:
        steps = np.arange(max(1, (last - first).max(initial=1)), dtype=np.int32)
    taps = first[:, None] + steps
    distances = (real(taps) - centers[:, None] + 0.5) / stretch
    inside = taps < last[:, None]
    weights = where(inside, _cubic(distances, -0.5) if cubic else _triangle(distances), 0)
    return where(inside, taps, first[:, None]), weights / not_zero(row_sums(weights)), inside


def _outputs(after: Any, scale: Any) -> Any:
    """0, 1, 2 and so on up to a size, as floats."""
    if isinstance(scale, Computed):
        return real(Computed(scale.c, positions(scale.c, after)))
    return np.arange(after, dtype=scale.dtype)


def _triangle(distances: Any) -> Any:
    """The kernel of linear interpolation."""
    return maximum(1 - abs(distances), 0)


def _cubic(distances: Any, a: float) -> Any:
    """The kernel of cubic convolution."""
    x = abs(distances)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    return where(x < 1, near, where(x < 2, far, 0))


def _weighted(c: Coreai, x: Value, axis: int, taps: Any, weights: Any, counted: Any) -> Value:
    """For each output, the weighted sum of the values that its taps read."""
    parts, back = taken_rows(c, x, axis, taps)
    products = c.broadcasting_mul(parts, at_taps(c, weights, "f32", parts.rank))
    if isinstance(counted, Computed) or (counted is not None and not counted.all()):
        # an infinity that does not count must not meet a weight of 0
        products = c.broadcasting_where(at_taps(c, counted, "i1", parts.rank), products, c.constant(0.0))
    return c.transpose(c.shrink_dims(c.reduce_sum(products, [1]), [1]), back)


def _bytes(c: Coreai, x: Value, axis: int, taps: Any, weights: Any, counted: Any) -> Value:
    """The same of bytes, in integers as ATen: the weights are multiples of the power of two that makes the largest one
    fit 16 bits, and each sum is rounded and cut to a byte. Taps that do not count have the weight 0."""
    powers = 2.0 ** np.arange(1, 23)
    if isinstance(weights, Computed):
        largest = Computed(c, c.reshape(c.reduce_max(weights.value, [0, 1]), [1]))
        power = Computed(c, c.reduce_max(where(largest * powers < 32767.5, powers, largest).value, [0]))
    else:
        taps, weights = _merged(taps, weights)
        power = powers[powers * weights.max() < 32767.5].max()
    parts, back = taken_rows(c, x, axis, taps)
    multiples = weights * power
    numbers = whole(where(weights < 0, multiples - 0.5, multiples + 0.5))
    total = c.reduce_sum(c.broadcasting_mul(parts, at_taps(c, numbers, "si32", parts.rank)), [1])
    divisor = Computed.of(c, whole(power), "si32").value
    rounded = c.broadcasting_add(total, c.broadcasting_floor_divide(divisor, 2))
    made = c.broadcasting_floor_divide(rounded, divisor)
    made = c.broadcasting_minimum(c.broadcasting_maximum(made, 0), 255)
    return c.transpose(c.shrink_dims(made, [1]), back)


def _merged(taps: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merge taps at the same position, as ATen does before it rounds the weights; the merged taps get weight 0."""
    weights = weights.copy()
    for column in range(taps.shape[1] - 1, 0, -1):
        again = taps[:, column] == taps[:, column - 1]
        weights[again, column - 1] += weights[again, column]
        weights[again, column] = 0
    return taps, weights

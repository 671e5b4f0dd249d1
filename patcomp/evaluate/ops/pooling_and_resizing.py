"""Pools without padding, and resampling of fields at scaled or given coordinates."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.evaluate.element_types import ordered, unordered, widen
from patcomp.evaluate.ops.elementwise import saturate
from patcomp.evaluate.registry import EvaluatedOp, implements, integers
from patcomp.ir.types import is_integer


def _windows(
    op: EvaluatedOp,
    x: Tensor,
    kernel: Tensor,
    stride: Tensor,
    dilation: Tensor,
    fill: Tensor | None,
) -> Tensor:
    """The windows of the dimensions after the first two, as trailing dimensions.

    With `fill`, the last window may reach over the end, but must start inside; `fill` is read there.
    """
    sizes = zip(integers(kernel), integers(stride), integers(dilation), strict=True)
    for axis, (size, step, distance) in enumerate(sizes, 2):
        span = distance * (size - 1) + 1
        length = x.shape[axis]
        if span > length:
            raise op.error(f"a window of {span} does not fit a dimension of {length}")
        if fill is not None:
            count = -(-(length - span) // step) + 1
            if (count - 1) * step >= length:
                count -= 1
            missing = (count - 1) * step + span - length
            if missing > 0:
                shape = [*x.shape[:axis], missing, *x.shape[axis + 1 :]]
                x = torch.cat([x, fill.expand(shape)], dim=axis)
        x = x.unfold(axis, span, step)[..., ::distance]
    return x


def _lowest(dtype: torch.dtype) -> Tensor:
    value = -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min
    return torch.tensor(value, dtype=dtype)


@implements("coreai.max_pool_2d", "coreai.max_pool_3d")
def max_pool(op: EvaluatedOp, x: Tensor, kernel: Tensor, stride: Tensor, dilation: Tensor, ceil_mode: Tensor) -> Tensor:
    values = ordered(x)
    fill = _lowest(values.dtype) if bool(ceil_mode) else None
    windows = _windows(op, values, kernel, stride, dilation, fill)
    return unordered(windows.amax(dim=list(range(x.dim(), windows.dim()))), op.element())


@implements("coreai.sum_pool_2d", "coreai.sum_pool_3d")
def sum_pool(op: EvaluatedOp, x: Tensor, kernel: Tensor, stride: Tensor, dilation: Tensor) -> Tensor:
    windows = _windows(op, widen(x), kernel, stride, dilation, None)
    return op.result(windows.sum(dim=list(range(x.dim(), windows.dim()))))


def _nearest(coordinates: Tensor, size: int) -> Tensor:
    return torch.round(coordinates).clamp(0, size - 1).to(torch.int64)


@implements("coreai.interpolate")
def interpolate(op: EvaluatedOp, x: Tensor, output_shape: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """Output position p reads input position `(p + 0.5 - offset) / scale - 0.5` of each dimension, clamped."""
    values = _floating(x)
    nearest = op.attribute("interpolation_mode") == "nearest_neighbor"
    for dim, length in enumerate(integers(output_shape)):
        size = x.shape[dim]
        coordinates = (torch.arange(length, dtype=torch.float32) + 0.5 - offset[dim]) / scale[dim] - 0.5
        if nearest:
            values = values.index_select(dim, _nearest(coordinates, size))
            continue
        clamped = coordinates.clamp(0, size - 1)
        low = clamped.floor().to(torch.int64)
        high = (low + 1).clamp(max=size - 1)
        weight = (clamped - low).to(values.dtype).reshape([-1 if axis == dim else 1 for axis in range(x.dim())])
        values = values.index_select(dim, low) * (1 - weight) + values.index_select(dim, high) * weight
    return _resampled(op, values)


@implements("coreai.interpolate_coordinates")
def interpolate_coordinates(op: EvaluatedOp, x: Tensor, coordinates: Tensor) -> Tensor:
    values = _floating(x)
    columns = coordinates.unbind(1)
    if op.attribute("interpolation_mode") == "nearest_neighbor":
        nearest = tuple(_nearest(column, size) for column, size in zip(columns, x.shape, strict=True))
        return _resampled(op, values[nearest])
    result = torch.zeros(coordinates.shape[0], dtype=values.dtype)
    clamped = [column.clamp(0, size - 1) for column, size in zip(columns, x.shape, strict=True)]
    for corner in range(2 ** x.dim()):
        weight = torch.ones(coordinates.shape[0], dtype=values.dtype)
        index = []
        for dim, column in enumerate(clamped):
            low = column.floor()
            upper = corner >> dim & 1
            weight = weight * ((column - low) if upper else 1 - (column - low)).to(values.dtype)
            index.append((low.to(torch.int64) + upper).clamp(max=x.shape[dim] - 1))
        result = result + weight * values[tuple(index)]
    return _resampled(op, result)


def _floating(x: Tensor) -> Tensor:
    wide = widen(x)
    return wide if wide.dtype == torch.float64 else wide.to(torch.float32)


def _resampled(op: EvaluatedOp, values: Tensor) -> Tensor:
    """Resampled values in the result's type; integers are truncated."""
    return saturate(values, op.element()) if is_integer(op.element()) else op.result(values)

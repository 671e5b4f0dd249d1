"""Gather and scatter. Indices may count from the end; one out of range is an error, as at run time."""

from __future__ import annotations

import torch
from torch import Tensor

from patcomp.evaluate.element_types import accumulated, as_bits, fits, in_doubles, ordered, unordered
from patcomp.evaluate.registry import EvaluatedOp, axis_of, implements
from patcomp.ir.types import BIT_WIDTHS, is_integer


def _checked(op: EvaluatedOp, indices: Tensor, size: int) -> Tensor:
    """Indices into a dimension, counted from the front."""
    indices = indices.to(torch.int64)
    outside = (indices < -size) | (indices >= size)
    if bool(outside.any()):
        raise op.error(f"index {int(indices[outside][0])} is out of range [-{size}, {size})")
    return torch.where(indices < 0, indices + size, indices)


@implements("coreai.gather_along_axis")
def gather_along_axis(op: EvaluatedOp, x: Tensor, indices: Tensor, axis: Tensor) -> Tensor:
    dim = axis_of(op, axis, x.dim())
    return torch.gather(as_bits(x), dim, _checked(op, indices, x.shape[dim])).view(x.dtype)


def _rows(op: EvaluatedOp, shape: torch.Size, indices: Tensor) -> Tensor:
    """The linear row numbers that index vectors address among the leading dimensions of a shape."""
    rows = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for column in range(indices.shape[-1]):
        rows = rows * shape[column] + _checked(op, indices[..., column], shape[column])
    return rows.reshape(-1)


@implements("coreai.gather_nd")
def gather_nd(op: EvaluatedOp, x: Tensor, indices: Tensor) -> Tensor:
    depth = indices.shape[-1]
    rows = _rows(op, x.shape, indices)
    count = int(torch.tensor(x.shape[:depth]).prod()) if depth else 1
    table = as_bits(x).reshape(count, -1) if x.numel() else as_bits(x).new_empty(count, 0)
    return table.index_select(0, rows).reshape([*indices.shape[:-1], *x.shape[depth:]]).view(x.dtype)


def _last_writers(targets: Tensor, count: int) -> Tensor:
    """For each of `count` places the number of the last update that writes to it, -1 for none."""
    numbers = torch.arange(targets.numel())
    return torch.full((count,), -1).scatter_reduce_(0, targets, numbers, "amax")


@implements("coreai.scatter_nd")
def scatter_nd(op: EvaluatedOp, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    block = op.operation.regions[0].block
    terminator = block.last_op
    if terminator is None or block.first_op is not terminator or terminator.operands[0] is not block.args[1]:
        raise op.error("the runtime replaces whatever the region says, so it must yield its second argument")
    depth = indices.shape[-1]
    rows = _rows(op, x.shape, indices)
    result = as_bits(x).clone(memory_format=torch.contiguous_format)
    if rows.numel() == 0 or x.numel() == 0:
        return result.view(x.dtype)
    table = result.view(int(torch.tensor(x.shape[:depth]).prod()) if depth else 1, -1)
    writers = _last_writers(rows, table.shape[0])
    written = writers >= 0
    table[written] = as_bits(updates).reshape(rows.numel(), -1)[writers[written]]
    return result.view(x.dtype)


@implements("coreai.scatter_along_axis")
def scatter_along_axis(op: EvaluatedOp, x: Tensor, indices: Tensor, updates: Tensor, axis: Tensor) -> Tensor:
    dim = axis_of(op, axis, x.dim())
    mode = op.attribute("scatter_mode", "update")
    # linear positions in the input, so that all modes work on one dimension
    places = torch.arange(x.numel()).reshape(x.shape)
    targets = places.gather(dim, _checked(op, indices, x.shape[dim])).reshape(-1)
    if mode == "update":
        flat = as_bits(x).reshape(-1).clone()
        writers = _last_writers(targets, flat.numel())
        written = writers >= 0
        flat[written] = as_bits(updates).reshape(-1)[writers[written]]
        return flat.reshape(x.shape).view(x.dtype)
    if mode in ("max", "min"):
        flat, values = ordered(x).reshape(-1).clone(), ordered(updates).reshape(-1)
        if values.is_floating_point():
            # an update is taken when it compares as better, which NaN never does
            values = torch.where(values.isnan(), -torch.inf if mode == "max" else torch.inf, values)
        flat.scatter_reduce_(0, targets, values, f"a{mode}", include_self=True)
        return unordered(flat.reshape(x.shape), op.element())
    element = op.element()
    combined = _combined(op, mode, accumulated(x), targets, accumulated(updates))
    if is_integer(element):
        wide = BIT_WIDTHS[element] == 64
        estimate = _combined(op, mode, in_doubles(x), targets, in_doubles(updates)) if wide else None
        if not fits(combined, element, estimate):
            raise op.error(f"the {mode} overflows {element}, which aborts the runtime")
    return op.result(combined)


def _combined(op: EvaluatedOp, mode: str, x: Tensor, targets: Tensor, updates: Tensor) -> Tensor:
    """Sums or products of `x` and the updates at linear positions, or their inverse."""
    flat, values = x.reshape(-1).clone(), updates.reshape(-1)
    if mode in ("add", "sub"):
        return flat.index_add_(0, targets, values, alpha=1 if mode == "add" else -1).reshape(x.shape)
    factor = torch.ones_like(flat).scatter_reduce_(0, targets, values, "prod", include_self=True).reshape(x.shape)
    if mode == "mul":
        return x * factor
    if not is_integer(op.element()):
        return x / factor
    if bool((factor == 0).any()):
        raise op.error("integer division by zero")
    return torch.div(x, factor, rounding_mode="trunc")

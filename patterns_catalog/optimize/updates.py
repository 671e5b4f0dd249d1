"""Merge slices of slices into one slice, and writes into a slice of a view into one update of the viewed tensor; drop
slices that take one of several joined values.

PyTorch makes a write in place, `cache[1].narrow(2, i, n).copy_(new)`, functional with one update for each view:
the rows in the layer, then the layer in the cache. Each update copies its whole base. One update of the cache only
touches the new rows.

These rules are procedural because a pattern cannot compare bounds: equal ones may be spelled differently (-2 or 4 of 6,
the end as the size or a larger number, a vector or scalars joined by `concat`), and there may be any number of views
between two of them. `bounds.py` computes with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from patcomp.authoring import Coreai, CoreaiSource
from patcomp.ir.constants import constant_integers
from patcomp.ir.dialect import ops_with
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.traits import Reshape
from patcomp.ir.types import Shape, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import ANY, OpView, any_of, example, op_rule, pattern
from patterns_catalog.optimize.bounds import (
    ALL,
    bounds_of,
    columns,
    combined,
    reshaped,
    taken_from,
)

_BOUNDS = ("start_indices", "end_indices", "strides")

_around = pattern(source=coreai_namespace)


def _update(a: CoreaiSource) -> Any:
    return a.slice_update(ANY, ANY, ANY, ANY, ANY)


@_around
def _update_of_update(a: CoreaiSource) -> Any:
    return a.slice_update(_update(a), ANY, ANY, ANY, ANY), []


@_around
def _slice_of_update(a: CoreaiSource) -> Any:
    return a.slice(_update(a), ANY, ANY, ANY), []


@_around
def _slice_of_slice(a: CoreaiSource) -> Any:
    x = a.slice(ANY, ANY, ANY, ANY)
    view = any_of(x, a.reshape(x, ANY), a.expand_dims(x, ANY), a.shrink_dims(x, ANY))
    return a.slice(view, ANY, ANY, ANY), []


@_around
def _reshape_of_update(a: CoreaiSource) -> Any:
    x = _update(a)
    return any_of(a.reshape(x, ANY), a.expand_dims(x, ANY), a.shrink_dims(x, ANY)), []


@_around
def _transpose_of_update(a: CoreaiSource) -> Any:
    return a.transpose(_update(a), ANY), []


@op_rule("optimize", "coreai.slice_update", size=2, examples=[
    example("4x6x5xf32", "2x5xf32", program=lambda _, x, v: x.select_scatter(x[1].slice_scatter(v, 0, 2, 4), 0, 1)),
])  # fmt: skip
def merge_updates(op: OpView, c: Coreai) -> Value | None:
    "update(x, update(x[a], v, b), a) -> update(x, v, a[b]); an update of all of x -> the new value"
    op.ignore(*_BOUNDS, because="bounds_of reads them")
    x, update = op.input, op.update
    outer = bounds_of(op.operation)
    if outer is not None and all(bounds == ALL for bounds in outer) and update.type == x.type:
        return update
    inside = update.made_by("coreai.slice_update")
    if inside is None or outer is None or (inner := bounds_of(inside)) is None:
        return None
    base, value = Value(inside.operands[0]), Value(inside.operands[4])
    if taken_from(c, base, x) != outer or (both := combined(c, outer, inner, base.shape)) is None:
        return None
    return c.slice_update(x, *columns(both), value)


@op_rule("optimize", "coreai.slice_update", size=2, pattern=_update_of_update, examples=[
    example("6x5xf32", "2x5xf32", program=lambda _, x, v: x.slice_scatter(-v, 0, 2, 4).slice_scatter(v, 0, 2, 4)),
])  # fmt: skip
def drop_overwritten_update(op: OpView, c: Coreai) -> Value | None:
    "update(update(x, v, a), w, a) -> update(x, w, a)"
    before, outer = op.input.made_by("coreai.slice_update"), bounds_of(op.operation)
    if before is None or outer is None or bounds_of(before) != outer:
        return None
    return c.slice_update(Value(before.operands[0]), op.start_indices, op.end_indices, op.strides, op.update)


@op_rule("optimize", "coreai.slice", size=2, pattern=_slice_of_update, examples=[
    example("6x5xf32", "2x5xf32", program=lambda _, x, v: x.slice_scatter(v, 0, 2, 4)[2:4]),
])  # fmt: skip
def slice_of_update(op: OpView, c: Coreai) -> Value | None:
    "update(x, v, a)[a] -> v"
    op.ignore(*_BOUNDS, because="they equal those of the update")
    before, taken = op.input.made_by("coreai.slice_update"), bounds_of(op.operation)
    if before is None or taken is None or bounds_of(before) != taken:
        return None
    value = Value(before.operands[4])
    return value if value.type == op.result else None


@op_rule("optimize", "coreai.slice", size=2, examples=[
    example("4x3xf32", "4x2xf32", program=lambda torch, x, y: torch.cat([x, y], 1)[:, 3:].sin()),
    example("4x3xf32", "4x2xf32", program=lambda torch, x, y: torch.cat([x, y], 1)[:, :3].sin()),
])  # fmt: skip
def slice_of_concat(op: OpView, c: Coreai) -> Value | None:
    "concat([x, y, ...])[part] -> y, if the part is all of y"
    op.ignore("start_indices", "end_indices", "strides", because="bounds_of reads them")
    joined, bounds = op.input.made_by("coreai.concat"), bounds_of(op.operation)
    if joined is None or bounds is None:
        return None
    along = constant_integers(joined.operands[0])
    if along is None:
        return None
    axis = along[0] % op.input.rank
    if any(one != ALL for place, one in enumerate(bounds) if place != axis):
        return None
    taken, start = bounds[axis], 0
    for part in map(Value, joined.operands[1:]):
        size = part.shape[axis]
        if size is None:
            return None
        if (taken.start, taken.end, taken.step) == (start, start + size, 1) and part.type == op.result:
            return part
        start += size
    return None


@op_rule("optimize", "coreai.slice", size=2, pattern=_slice_of_slice, examples=[
    example("4x6x5xf32", program=lambda _, x: x[1][2:4]), example("9x5xf32", program=lambda _, x: x[1:8:2][1:]),
])  # fmt: skip
def merge_slices(op: OpView, c: Coreai) -> Value | None:
    "x[a][b] -> x[a[b]], also through a reshape between them that only adds or drops dimensions of size 1"
    op.ignore(*_BOUNDS, because="bounds_of reads them")
    part, inner, shape = op.input, bounds_of(op.operation), op.result.shape
    view = part.made_by(Reshape)
    source = part if view is None else Value(view.operands[0])
    before = source.made_by("coreai.slice")
    if before is None or inner is None or (outer := bounds_of(before)) is None:
        return None
    if view is not None:
        moved = reshaped(inner, shape, part.shape, source.shape) if _certain(view) else None
        if moved is None:
            return None
        inner, shape = moved[0], tuple(moved[1])
    if (both := combined(c, outer, inner, source.shape)) is None:
        return None
    x = Value(before.operands[0])
    cut = c.slice_(x, *columns(both), result_type=tensor(shape, x.element_type))
    return cut if view is None else _viewed(c, view, cut, op.result.shape)


@op_rule("optimize", *ops_with(Reshape), size=2, pattern=_reshape_of_update, examples=[
    example("4x6x5xf32", "6x5xf32", program=lambda _, x, v: x.view(24, 5).slice_scatter(v, 0, 6, 12).view(4, 6, 5)),
])  # fmt: skip
def reshape_of_update(op: OpView, c: Coreai) -> Value | None:
    "reshape(update(y, v, b)) -> update(x, reshape(v), b) where y is a reshape of x"
    op.ignore(*op.arguments[1:], because="the result type has the shape")
    update = op.input.made_by("coreai.slice_update")
    if update is None or (bounds := bounds_of(update)) is None:
        return None
    y, value = Value(update.operands[0]), Value(update.operands[4])
    if _is_nested(value):
        return None
    x, back = y, op.operation
    while _certain(back) and (view := x.made_by(Reshape)) is not None:
        x, back = Value(view.operands[0]), view
        if x.type == op.result and _certain(back):
            if (moved := reshaped(bounds, value.shape, y.shape, x.shape)) is None:
                return None
            part = _viewed(c, op.operation, value, tuple(moved[1]))
            return None if part is None else c.slice_update(x, *columns(moved[0]), part)
    return None


def _is_nested(value: Value) -> bool:
    """Whether a new value is itself an update. Other rules merge it with the outer update first, while both still write
    to the same view."""
    while (view := value.made_by(Reshape, "coreai.transpose")) is not None:
        value = Value(view.operands[0])
    return value.made_by("coreai.slice_update") is not None


def _certain(view: Operation) -> bool:
    """Whether the types of a reshape determine which dimensions it maps: at most one is dynamic, or its axes tell."""
    return view.name != "coreai.reshape" or Value(view.results[0]).shape.count(None) <= 1


def _viewed(c: Coreai, view: Operation, x: Value, shape: Shape) -> Value | None:
    """A part of the tensor that a view reshapes, reshaped in the same way; None if several sizes are dynamic."""
    if view.name != "coreai.reshape":
        made: Value = getattr(c, view.name.removeprefix("coreai."))(x, Value(view.operands[1]))
        return made
    if shape.count(None) > 1:
        return None
    return c.reshape(x, [-1 if size is None else size for size in shape], result_type=tensor(shape, x.element_type))


@op_rule("optimize", "coreai.transpose", size=2, pattern=_transpose_of_update, examples=[
    example("6x5xf32", "6x2xf32", program=lambda _, x, v: x.t().slice_scatter(v.t(), 0, 1, 3).t()),
])  # fmt: skip
def transpose_of_update(op: OpView, c: Coreai) -> Value | None:
    "transpose(update(y, v, b)) -> update(x, transpose(v), b) where y is transpose(x)"
    permutation, update = constant_integers(op.permutation.ssa), op.input.made_by("coreai.slice_update")
    if update is None or permutation is None or (bounds := bounds_of(update)) is None:
        return None
    if _is_nested(Value(update.operands[4])):
        return None
    transposed = Value(update.operands[0]).made_by("coreai.transpose")
    if transposed is None or constant_integers(transposed.operands[1]) != tuple(np.argsort(permutation).tolist()):
        return None
    moved = [bounds[axis] for axis in permutation]
    value = c.transpose(Value(update.operands[4]), list(permutation))
    return c.slice_update(Value(transposed.operands[0]), *columns(moved), value)

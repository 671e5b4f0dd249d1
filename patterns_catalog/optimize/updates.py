"""Merge slices of slices into one slice, and writes into a slice of a view into one update of the viewed tensor; drop
slices that take one of several joined values.

PyTorch makes a write in place, `cache[1].narrow(2, i, n).copy_(new)`, functional with one update for each view:
the rows in the layer, then the layer in the cache. Each update copies its whole base. One update of the cache only
touches the new rows.

A pattern finds the ops, and conditions compare their bounds, because equal ones may be spelled differently (-2 or 4 of
6, the end as the size or a larger number, a vector or scalars joined by `concat`). `bounds.py` computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from patcomp.authoring import CoreaiSource, CoreaiTarget, coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.traits import Reshape
from patcomp.ir.types import Shape, tensor
from patcomp.ir.value import Value
from patcomp.patterns import (
    ANY,
    Attr,
    Capture,
    Const,
    Example,
    Rewrite,
    Rule,
    any_of,
    build,
    call,
    condition,
    example,
    rule,
)
from patterns_catalog.bounds import ALL, Bounds, bounds_of, columns, combined, reshaped, taken_from


def _optimization(*examples: Example) -> Callable[[Callable[..., Rewrite]], Rule]:
    return rule(stage="optimize", source=coreai_namespace, into=coreai_namespace, examples=examples)


def _bounds(value: Value) -> list[Bounds] | None:
    """The bounds of the slice or update that computes a value."""
    assert value.maker is not None
    return bounds_of(value.maker)


@condition("{found} is known")
def _is_known(found: Any) -> bool:
    return found is not None


@condition("{one} and {other} have the same bounds")
def _have_same_bounds(one: Value, other: Value) -> bool:
    return _bounds(one) is not None and _bounds(one) == _bounds(other)


def _update(a: CoreaiSource, x: Any, value: Any) -> Any:
    return a.seen(a.slice_update(x, ANY, ANY, ANY, value))


def _slice(a: CoreaiSource, x: Any) -> Any:
    return a.seen(a.slice(x, ANY, ANY, ANY))


# ---- updates ---------------------------------------------------------------------------------------


@condition("{y} updates all of its tensor")
def _updates_everything(y: Value) -> bool:
    bounds = _bounds(y)
    return bounds is not None and all(bound == ALL for bound in bounds)


@_optimization(
    example("1x5xf32", "1x5xf32", program=lambda _, x, v: x.slice_scatter(v, 0, 0, 1, 3)),
)
def update_of_everything(a: CoreaiSource, c: CoreaiTarget, x: Capture, value: Capture) -> Rewrite:
    "update(x, v, all) -> v"
    y = _update(a, x, value)
    return Rewrite(y, to=value, where=[_updates_everything(y), value.type == x.type])


def _merged(outer: Value, inner: Value, x: Value, base: Value) -> list[Bounds] | None:
    """The bounds in `x` of an update of a part of x, which is `base`; None if they are not known."""
    of_x, of_part = _bounds(outer), _bounds(inner)
    if of_x is None or of_part is None or taken_from(base, x) != of_x:
        return None
    return combined(of_x, of_part, base.shape)


def _updated(x: Value, bounds: Sequence[Bounds], value: Value) -> Value:
    return coreai.slice_update(x, *columns(coreai, bounds), value)


@_optimization(
    example("4x6x5xf32", "2x5xf32", program=lambda _, x, v: x.select_scatter(x[1].slice_scatter(v, 0, 2, 4), 0, 1)),
)
def merge_updates(a: CoreaiSource, c: CoreaiTarget, x: Capture, base: Capture, value: Capture) -> Rewrite:
    "update(x, update(x[a], v, b), a) -> update(x, v, a[b])"
    inner = _update(a, base, value)
    outer = _update(a, x, inner)
    bounds = call(_merged, outer, inner, x, base)
    return Rewrite(outer, to=build(_updated, x, bounds, value), where=[_is_known(bounds)])


@_optimization(
    example("6x5xf32", "2x5xf32", program=lambda _, x, v: x.slice_scatter(-v, 0, 2, 4).slice_scatter(v, 0, 2, 4)),
)
def drop_overwritten_update(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, starts: Capture, ends: Capture, steps: Capture, value: Capture
) -> Rewrite:
    "update(update(x, v, a), w, a) -> update(x, w, a)"
    before = _update(a, x, ANY)
    y = a.slice_update(before, starts, ends, steps, value)
    return Rewrite(y, to=c.slice_update(x, starts, ends, steps, value), where=[_have_same_bounds(y, before)])


# ---- slices ----------------------------------------------------------------------------------------


@_optimization(
    example("6x5xf32", "2x5xf32", program=lambda _, x, v: x.slice_scatter(v, 0, 2, 4)[2:4]),
)
def slice_of_update(a: CoreaiSource, c: CoreaiTarget, value: Capture) -> Rewrite:
    "update(x, v, a)[a] -> v"
    before = _update(a, ANY, value)
    y = _slice(a, before)
    return Rewrite(y, to=value, where=[_have_same_bounds(y, before), value.type == y.type])


def _taken(y: Value, axis: Value, parts: Sequence[Value]) -> Value | None:
    """The one of joined values that a slice takes; None if it takes another part."""
    bounds, along = _bounds(y), constant_integers(axis.ssa)
    if bounds is None or along is None:
        return None
    at = along[0] % y.rank
    if any(bound != ALL for place, bound in enumerate(bounds) if place != at):
        return None
    start = 0
    for part in parts:
        size = part.shape[at]
        if size is None:
            return None
        if bounds[at] == (start, start + size, 1) and part.type == y.type:
            return part
        start += size
    return None


@_optimization(
    example("4x3xf32", "4x2xf32", program=lambda torch, x, y: torch.cat([x, y], 1)[:, 3:].sin()),
    example("4x3xf32", "4x2xf32", program=lambda torch, x, y: torch.cat([x, y], 1)[:, :3].sin()),
)
def slice_of_concat(a: CoreaiSource, c: CoreaiTarget, axis: Capture, parts: Attr) -> Rewrite:
    "concat([x, y, ...])[part] -> y, if the part is all of y"
    y = _slice(a, a.seen(a.concat(axis, parts)))
    part = call(_taken, y, axis, parts)
    return Rewrite(y, to=part, where=[_is_known(part)])


class _Part(NamedTuple):
    """A part of a tensor: its bounds, and its shape."""

    bounds: Sequence[Bounds]
    shape: Shape

    def of(self, x: Value) -> Value:
        return coreai.slice_(x, *columns(coreai, self.bounds), result_type=tensor(self.shape, x.element_type))


def _slice_of_slice(y: Value, part: Value, before: Value) -> _Part | None:
    """What `y`, a slice of a slice or of a view of it, takes of the tensor; None if that is not known.

    Args:
        y: the second slice.
        part: the value that it cuts.
        before: the first slice.
    """
    inner, outer, shape = _bounds(y), _bounds(before), y.shape
    if inner is None or outer is None:
        return None
    if part != before:
        moved = reshaped(inner, shape, part.shape, before.shape) if _is_certain(part) else None
        if moved is None:
            return None
        inner, shape = moved[0], tuple(moved[1])
    both = combined(outer, inner, before.shape)
    return None if both is None else _Part(both, shape)


@_optimization(
    example("9x5xf32", program=lambda _, x: x[1:8:2][1:]),
)
def merge_slices(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "x[a][b] -> x[a[b]]"
    before = _slice(a, x)
    y = _slice(a, before)
    part = call(_slice_of_slice, y, before, before)
    return Rewrite(y, to=build(_Part.of, part, x), where=[_is_known(part)])


# ---- through views -----------------------------------------------------------------------------------


def _views(a: CoreaiSource, x: Any) -> Any:
    return a.seen(any_of(a.reshape(x, ANY), a.expand_dims(x, ANY), a.shrink_dims(x, ANY)))


def _is_certain(view: Value) -> bool:
    """Whether the types of a view determine which dimensions it maps: at most one is dynamic, or its axes tell."""
    return view.made_by("coreai.reshape") is None or view.shape.count(None) <= 1


def _viewed(x: Value, view: Value, shape: Shape) -> Value:
    """A part of the tensor that a view reshapes, reshaped in the same way."""
    op = view.maker
    assert op is not None
    if op.name != "coreai.reshape":
        made: Value = getattr(coreai, op.name.removeprefix("coreai."))(x, Value(op.operands[1]))
        return made
    return coreai.reshape(
        x, [-1 if size is None else size for size in shape], result_type=tensor(shape, x.element_type)
    )


@condition("a part of shape {shape} can be viewed as {view} is")
def _can_be_viewed(view: Value, shape: Shape) -> bool:
    return view.made_by("coreai.reshape") is None or shape.count(None) <= 1


def _view_of_part(x: Value, part: _Part, view: Value, shape: Shape) -> Value:
    return _viewed(part.of(x), view, shape)


@_optimization(
    example("4x6x5xf32", program=lambda _, x: x[1][2:4]),
)
def merge_slices_around_view(a: CoreaiSource, c: CoreaiTarget, x: Capture) -> Rewrite:
    "view(x[a])[b] -> view(x[a[b]]), where the view only adds or drops dimensions of size 1"
    before = _slice(a, x)
    view = _views(a, before)
    y = _slice(a, view)
    part = call(_slice_of_slice, y, view, before)
    return Rewrite(
        y, to=build(_view_of_part, x, part, view, y.shape), where=[_is_known(part), _can_be_viewed(view, y.shape)]
    )


@condition("{value} is itself an update")
def _is_nested(value: Value) -> bool:
    while (view := value.made_by(Reshape, "coreai.transpose")) is not None:
        value = Value(view.operands[0])
    return value.made_by("coreai.slice_update") is not None


class _Write(NamedTuple):
    """A tensor that is written, and the part of it."""

    x: Value
    part: _Part


def _before_views(result: Value, update: Value, y: Value, value: Value) -> _Write | None:
    """The write into a tensor of the type of a result, which a view makes of an update of views of the tensor; None if
    that is not known.

    Args:
        result: a view of the updated tensor.
        update: the update of `y`.
        y: a view of a view ... of the tensor.
        value: what is written.
    """
    bounds, x, back = _bounds(update), y, result
    while bounds is not None and _is_certain(back) and (view := x.made_by(Reshape)) is not None:
        back, x = x, Value(view.operands[0])
        if x.type == result.type and _is_certain(back):
            moved = reshaped(bounds, value.shape, y.shape, x.shape)
            if moved is None or (result.made_by("coreai.reshape") and moved[1].count(None) > 1):
                return None
            return _Write(x, _Part(moved[0], tuple(moved[1])))
    return None


def _update_before_views(write: _Write, result: Value, value: Value) -> Value:
    return _updated(write.x, write.part.bounds, _viewed(value, result, write.part.shape))


@_optimization(
    example("4x6x5xf32", "6x5xf32", program=lambda _, x, v: x.view(24, 5).slice_scatter(v, 0, 6, 12).view(4, 6, 5)),
)
def reshape_of_update(a: CoreaiSource, c: CoreaiTarget, y: Capture, value: Capture) -> Rewrite:
    """reshape(update(y, v, b)) -> update(x, reshape(v), b) where y is a reshape of x

    An update of an update is merged first, while both still write to the same view.
    """
    update = _update(a, y, value)
    result = _views(a, update)
    write = call(_before_views, result, update, y, value)
    return Rewrite(
        result,
        to=build(_update_before_views, write, result, value),
        where=[~_is_nested(value), _is_known(write)],
    )


def _transposed_update(x: Value, update: Value, value: Value, order: np.ndarray) -> Value:
    bounds = _bounds(update)
    assert bounds is not None
    moved = coreai.transpose(value, order.tolist())
    return _updated(x, [bounds[axis] for axis in order], moved)


@_optimization(
    example("6x5xf32", "6x2xf32", program=lambda _, x, v: x.t().slice_scatter(v.t(), 0, 1, 3).t()),
)
def transpose_of_update(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, value: Capture, before: Const, order: Const
) -> Rewrite:
    "transpose(update(y, v, b)) -> update(x, transpose(v), b) where y is transpose(x)"
    update = _update(a, a.seen(a.transpose(x, before)), value)
    return Rewrite(
        a.transpose(update, order),
        to=build(_transposed_update, x, update, value, order.values),
        where=[
            ~_is_nested(value), before.values == call(np.argsort, order.values), _is_known(call(_bounds, update)),
        ],
    )  # fmt: skip

"""Views and copies in one spelling; ops that change nothing are dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from patcomp.authoring import Aten, AtenSource, AtenTarget
from patcomp.ir.extents import extents, extents_of
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import (
    ANY,
    Attr,
    Capture,
    OpView,
    Rewrite,
    Rule,
    any_of,
    call,
    check,
    condition,
    example,
    formula,
    normalization,
    rule,
)
from patterns_catalog.sizes import wanted_sizes


def _dropping(name: str, example: Mapping[str, Any]) -> Callable[[Callable[..., Rewrite]], Rule]:
    """Declare a rule that leaves out an op."""
    return rule(stage="normalize", into=aten_namespace, name=f"normalize {name}", example=example)


@_dropping("drop_copy", {"x": "2x3xf32"})
def drop_copy(a: AtenSource, c: AtenTarget, x: Capture) -> Rewrite:
    "values have no memory, so a copy of one is the value"
    copies = a.alias(x), a.clone(x), a.detach(x), a.lift_fresh_copy(x), a.contiguous(x)
    return Rewrite(any_of(*copies), to=x)


@_dropping("drop_identity_cast", {"x": "2x3xf32", "dtype": "f32"})
def drop_identity_cast(a: AtenSource, c: AtenTarget, x: Capture, dtype: Attr) -> Rewrite:
    "a cast to the type that the value has is the value"
    y = a._to_copy(x, dtype=dtype)
    return Rewrite(y, to=x, where=[y.type == x.type])


@_dropping("drop_identity_expand", {"x": "2x3xf32", "size": [2, -1]})
def drop_identity_expand(a: AtenSource, c: AtenTarget, x: Capture, size: Attr) -> Rewrite:
    "an expand to the size that the value has is the value"
    y = a.expand(x, size=size, implicit=ANY)
    return Rewrite(y, to=x, where=[y.type == x.type])


@_dropping("drop_identity_slice", {"x": "4x3xf32", "dim": 0, "start": 0, "end": 9223372036854775807})
def drop_identity_slice(a: AtenSource, c: AtenTarget, x: Capture, dim: Attr, start: Attr, end: Attr) -> Rewrite:
    "a slice that keeps everything is the value"
    y = a.op("slice.Tensor", x, dim=dim, start=start, end=end, step=1)
    return Rewrite(y, to=x, where=[x.is_static, y.type == x.type])


@_dropping("drop_identity_pad", {"x": "2x3xf32", "pad": [0, 0, 0, 0], "value": 0.0})
def drop_identity_pad(a: AtenSource, c: AtenTarget, x: Capture, pad: Attr, value: Attr) -> Rewrite:
    "a pad by nothing is the value"
    y = a.constant_pad_nd(x, pad=pad, value=value)
    return Rewrite(y, to=x, where=[check("nothing is added", lambda match: not any(match[pad]))])


@condition("{x} has the sizes {sizes}")
def _has_sizes(x: Value, sizes: list[Any]) -> bool:
    return x.is_static or extents(x) == extents_of(sizes)


@_dropping("drop_identity_view", {"x": "2x3xf32", "size": [2, 3]})
def drop_identity_view(a: AtenSource, c: AtenTarget, x: Capture, size: Attr) -> Rewrite:
    "a view in the shape that the value has is the value"
    y = any_of(a.view(x, size=size), a.reshape(x, shape=size), a._unsafe_view(x, size=size))
    return Rewrite(y, to=x, where=[y.type == x.type, _has_sizes(x, size)])


@_dropping("reshape", {"x": "2x3xf32", "size": [6]})
def reshape(a: AtenSource, c: AtenTarget, x: Capture, size: Attr) -> Rewrite:
    "values have no memory, so that a reshape is a view"
    y = any_of(a.reshape(x, shape=size), a._unsafe_view(x, size=size))
    return Rewrite(y, to=c.view(x, size=call(wanted_sizes, y.shape, size)))


@formula("normalize", "aten.view", examples=[example("2x3xf32", [6, -1])],
         where=lambda size, result: [size != call(wanted_sizes, result.shape, size)])  # fmt: skip
def view(aten: Aten, self: Value, size: list[Any], result: ValueType) -> Value:
    "a view has the sizes of its result"
    return aten.view(result, self, size=wanted_sizes(result.shape, size))


def _in_order(dims: list[int]) -> list[int]:
    return list(range(len(dims)))


def _from_the_front(dims: list[int]) -> list[int]:
    return [dim % len(dims) for dim in dims]


@_dropping("drop_identity_permute", {"x": "2x3xf32", "dims": [0, -1]})
def drop_identity_permute(a: AtenSource, c: AtenTarget, x: Capture, dims: Attr) -> Rewrite:
    "a permute that leaves the order is the value"
    return Rewrite(a.permute(x, dims=dims), to=x, where=[call(_from_the_front, dims) == call(_in_order, dims)])


@formula("normalize", "aten.permute", examples=[example("2x3x4xf32", [-1, 0, 1])],
         where=lambda dims: [dims != call(_from_the_front, dims)])  # fmt: skip
def permute(aten: Aten, self: Value, dims: list[int], result: ValueType) -> Value:
    "`permute` with dimensions counted from the front"
    return aten.permute(result, self, dims=_from_the_front(dims))


@formula("normalize", "aten.transpose.int", examples=[example("2x3x4xf32", 0, -1)])
def transpose(aten: Aten, self: Value, dim0: int, dim1: int, result: ValueType) -> Value:
    "a transpose of two dimensions is a permute"
    return aten.permute(result, self, dims=_swapped(self.rank, dim0, dim1))


def _swapped(rank: int, first: int, second: int) -> list[int]:
    """The order of axes in which two change places."""
    order = list(range(rank))
    if order:  # a 0-d tensor has one order
        order[first], order[second] = order[second], order[first]
    return order


@formula("normalize", "aten.t", examples=[example("2x3xf32")])
def t(aten: Aten, self: Value, result: ValueType) -> Value:
    "the transpose of a matrix is a permute"
    return aten.permute(result, self, dims=[*range(self.rank)][::-1])


@normalization("aten.cat", name="normalize cat", examples=[example(["2x3xf32", "2x0xf32"], -1)])
def cat(op: OpView, aten: Aten) -> Value | None:
    "parts without elements are left out; one part alone is the value (Phi-3 turns whole heads, and joins no rest)"
    op.ignore("dim", because="the join along it stays the same")
    kept = [part for part in op.tensors if part.rank == op.result.rank and 0 not in part.shape]
    if len(kept) == len(op.tensors) or not kept or any(part.element_type != op.result.element_type for part in kept):
        return None
    return kept[0] if len(kept) == 1 else aten.cat(op.result, kept, dim=op.dim)

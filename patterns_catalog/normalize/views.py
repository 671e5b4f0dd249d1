"""Views and copies in one spelling; ops that change nothing are dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from patcomp.authoring import Aten, AtenSource, AtenTarget
from patcomp.ir.extents import extents, extents_of
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.value import Value
from patcomp.patterns import ANY, Attr, Capture, OpView, Rewrite, Rule, any_of, check, example, normalization, rule
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


@normalization("aten.view", "aten.reshape", "aten._unsafe_view", examples=[
    example("2x3xf32", [2, -1]), example("2x3xf32", [6], op="aten.reshape"),
])  # fmt: skip
def view(op: OpView, aten: Aten) -> Value | None:
    "`view` with the sizes of its result, or nothing where the shape stays"
    x = op["self"]
    given = op["size"] if "size" in op.arguments else op["shape"]
    if x.type == op.result and (x.is_static or extents(x) == extents_of(given)):
        return x
    sizes = wanted_sizes(op.result.shape, given)
    return None if op.op_name == "aten.view" and given == sizes else aten.view(op.result, x, size=sizes)


@normalization("aten.transpose.int", "aten.t", "aten.permute", examples=[
    example("2x3x4xf32", 0, -1), example("2x3xf32", op="aten.t"), example("2x3x4xf32", [-1, 0, 1], op="aten.permute"),
])  # fmt: skip
def permute(op: OpView, aten: Aten) -> Value | None:
    "`permute` with dimensions counted from the front, or nothing where the order stays"
    x = op["self"]
    dims = list(range(x.rank))
    if op.op_name == "aten.permute":
        dims = [dim % x.rank for dim in op.dims]
    elif op.op_name == "aten.t":
        dims.reverse()
    elif x.rank:
        first, second = op.dim0 % x.rank, op.dim1 % x.rank
        dims[first], dims[second] = second, first
    else:
        op.ignore("dim0", "dim1", because="a 0-d tensor has one order")
    if dims == sorted(dims):
        return x
    if op.op_name == "aten.permute" and op.dims == dims:
        return None
    return aten.permute(op.result, x, dims=dims)


@normalization("aten.cat", name="normalize cat", examples=[example(["2x3xf32", "2x0xf32"], -1)])
def cat(op: OpView, aten: Aten) -> Value | None:
    "parts without elements are left out; one part alone is the value (Phi-3 turns whole heads, and joins no rest)"
    op.ignore("dim", because="the join along it stays the same")
    kept = [part for part in op.tensors if part.rank == op.result.rank and 0 not in part.shape]
    if len(kept) == len(op.tensors) or not kept or any(part.element_type != op.result.element_type for part in kept):
        return None
    return kept[0] if len(kept) == 1 else aten.cat(op.result, kept, dim=op.dim)

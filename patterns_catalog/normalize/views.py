"""Views and copies in one spelling; ops that change nothing are dropped."""

from __future__ import annotations

from patcomp.authoring import Aten
from patcomp.ir.extents import extents, extents_of
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, normalization
from patterns_catalog.sizes import wanted_sizes


@normalization("aten.alias", "aten.clone", "aten.detach", "aten.lift_fresh_copy", "aten.contiguous", examples=[
    example("2x3xf32"), example("2x3xf32", op="aten.clone"),
])  # fmt: skip
def drop_copy(op: OpView, aten: Aten) -> Value:
    "values have no memory, so a copy of one is the value"
    return op["self"]


@normalization("aten._to_copy", examples=[example("2x3xf32", dtype="f32")])
def drop_identity_cast(op: OpView, aten: Aten) -> Value | None:
    "a cast to the type that the value has is the value"
    op.ignore("dtype", because="the result type has it")
    return op["self"] if op["self"].type == op.result else None


@normalization("aten.expand", examples=[example("2x3xf32", [2, -1])])
def drop_identity_expand(op: OpView, aten: Aten) -> Value | None:
    "an expand to the size that the value has is the value"
    op.ignore("size", "implicit", because="the result type has the size")
    return op["self"] if op["self"].type == op.result else None


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


@normalization("aten.slice.Tensor", examples=[example("4x3xf32", 0, 0, 9223372036854775807)])
def drop_identity_slice(op: OpView, aten: Aten) -> Value | None:
    "a slice that keeps everything is the value"
    x = op["self"]
    op.ignore("dim", "start", "end", because="a slice with step 1 that keeps the size keeps everything")
    return x if op.step == 1 and x.is_static and x.type == op.result else None


@normalization("aten.cat", name="normalize cat", examples=[example(["2x3xf32", "2x0xf32"], -1)])
def cat(op: OpView, aten: Aten) -> Value | None:
    "parts without elements are left out; one part alone is the value (Phi-3 turns whole heads, and joins no rest)"
    op.ignore("dim", because="the join along it stays the same")
    kept = [part for part in op.tensors if part.rank == op.result.rank and 0 not in part.shape]
    if len(kept) == len(op.tensors) or not kept or any(part.element_type != op.result.element_type for part in kept):
        return None
    return kept[0] if len(kept) == 1 else aten.cat(op.result, kept, dim=op.dim)

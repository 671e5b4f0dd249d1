"""Variances in one spelling: `var.correction` with its dimensions and correction said; deviations are roots of it."""

from __future__ import annotations

from patcomp.authoring import Aten
from patcomp.ir.types import element_type, tensor
from patcomp.ir.value import TypeView, Value
from patcomp.patterns import FurtherResults, OpView, example, normalization


def _dims(op: OpView) -> list[int]:
    """The dimensions counted from the front; PyTorch's None and [] both mean all of them."""
    rank = op["self"].rank
    return sorted(dim % rank for dim in op.dim) if op.dim and rank else list(range(rank))


def _variance(op: OpView, a: Aten, x: Value, result: TypeView) -> Value:
    correction = 1 if op.correction is None else op.correction
    return a.build("aten.var.correction", result, self=x, dim=_dims(op), correction=correction, keepdim=op.keepdim)


@normalization("aten.var.correction", examples=[example("2x3x4xf32", [-1], correction=0), example("2x3xf32")])
def var(op: OpView, a: Aten) -> Value | None:
    "dimensions listed from the front, the correction written out"
    if op.correction is not None and op.dim == _dims(op):
        return None
    return _variance(op, a, op["self"], op.result)


@normalization("aten.std.correction", examples=[example("2x3x4xf32", [1], correction=0, keepdim=True)])
def std(op: OpView, a: Aten) -> Value:
    "sqrt(var), in float32 for half precision, which PyTorch rounds once"
    x, element = op["self"], op.result.element_type
    half = x.dtype in ("f16", "bf16")
    result = TypeView(tensor(op.result.shape, element_type("f32") if half else element))
    if half:
        x = a.build("aten._to_copy", tensor(x.shape, result.element_type), self=x, dtype=result.element_type)
    root = a.build("aten.sqrt", result, self=_variance(op, a, x, result))
    return a.build("aten._to_copy", op.result, self=root, dtype=element) if half else root


@normalization(
    "aten.var_mean.correction", examples=[example("2x3x4xf32", [-1], correction=0, keepdim=True)],
    unspecified={"infinities and zeros": FurtherResults("eager's running mean of infinity is NaN")},
)  # fmt: skip
def var_mean(op: OpView, a: Aten) -> list[Value]:
    "a variance and a mean; lowering shares what they have in common"
    x = op["self"]
    mean = a.build("aten.mean.dim", op.results[1], self=x, dim=_dims(op), keepdim=op.keepdim)
    return [_variance(op, a, x, op.results[0]), mean]

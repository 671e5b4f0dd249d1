"""Variances in one spelling: `var.correction` with its dimensions and correction said; deviations are roots of it."""

from __future__ import annotations

from patcomp.authoring import Aten
from patcomp.ir.types import element_type, tensor
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import FurtherResults, OpView, example, normalization


def _dims(op: OpView) -> list[int]:
    """The dimensions counted from the front; PyTorch's None and [] both mean all of them."""
    rank = op["self"].rank
    return sorted(dim % rank for dim in op.dim) if op.dim and rank else list(range(rank))


def _variance(op: OpView, aten: Aten, x: Value, result: ValueType) -> Value:
    correction = 1 if op.correction is None else op.correction
    return aten.var.correction(result, x, dim=_dims(op), correction=correction, keepdim=op.keepdim)


@normalization("aten.var.correction", examples=[example("2x3x4xf32", [-1], correction=0), example("2x3xf32")])
def var(op: OpView, aten: Aten) -> Value | None:
    "dimensions listed from the front, the correction written out"
    if op.correction is not None and op.dim == _dims(op):
        return None
    return _variance(op, aten, op["self"], op.result)


@normalization("aten.std.correction", examples=[example("2x3x4xf32", [1], correction=0, keepdim=True)])
def std(op: OpView, aten: Aten) -> Value:
    "sqrt(var), in float32 for half precision, which PyTorch rounds once"
    x, element = op["self"], op.result.element_type
    half = x.dtype in ("f16", "bf16")
    result = ValueType(tensor(op.result.shape, element_type("f32") if half else element))
    if half:
        x = aten._to_copy(tensor(x.shape, result.element_type), x, dtype=result.element_type)
    root = aten.sqrt(result, _variance(op, aten, x, result))
    return aten._to_copy(op.result, root, dtype=element) if half else root


@normalization(
    "aten.var_mean.correction", examples=[example("2x3x4xf32", [-1], correction=0, keepdim=True)],
    unspecified={"infinities and zeros": FurtherResults("eager's running mean of infinity is NaN")},
)  # fmt: skip
def var_mean(op: OpView, aten: Aten) -> list[Value]:
    "a variance and a mean; lowering shares what they have in common"
    x = op["self"]
    mean = aten.mean.dim(op.results[1], x, dim=_dims(op), keepdim=op.keepdim)
    return [_variance(op, aten, x, op.results[0]), mean]

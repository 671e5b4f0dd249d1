"""Variances in one spelling: `var.correction` with its dimensions and correction said; deviations are roots of it."""

from __future__ import annotations

from patcomp.authoring import Aten
from patcomp.ir.types import element_type, tensor
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import FurtherResults, condition, example, formula
from patterns_catalog.normalize.arithmetic import as_tensor
from patterns_catalog.normalize.reductions import dims_of


def _variance(
    aten: Aten, x: Value, result: ValueType, dim: list[int] | None, correction: float | None, keepdim: bool
) -> Value:
    divided = 1 if correction is None else correction
    return aten.var.correction(result, x, dim=dims_of(x, dim), correction=divided, keepdim=keepdim)


@condition("{dim} are listed from the front, and {correction} is written out")
def _is_spelled(x: Value, dim: list[int] | None, correction: float | None) -> bool:
    return correction is not None and dim == dims_of(x, dim)


@formula("normalize", "aten.var.correction", examples=[
    example("2x3x4xf32", [-1], correction=0), example("2x3xf32"),
], where=lambda self, dim, correction: [~_is_spelled(self, dim, correction)])  # fmt: skip
def var(
    aten: Aten, self: Value, dim: list[int] | None, correction: float | None, keepdim: bool, result: ValueType
) -> Value:
    "dimensions listed from the front, the correction written out"
    return _variance(aten, self, result, dim, correction, keepdim)


def _rooted_in(element: Attribute) -> Attribute:
    """The type in which PyTorch computes a deviation; it rounds half precision once."""
    return element_type("f32") if element in map(element_type, ("f16", "bf16")) else element


@formula("normalize", "aten.std.correction", examples=[example("2x3x4xf32", [1], correction=0, keepdim=True)])
def std(
    aten: Aten, self: Value, dim: list[int] | None, correction: float | None, keepdim: bool, result: ValueType
) -> Value:
    "sqrt(var), in float32 for half precision"
    wide = ValueType(tensor(result.shape, _rooted_in(self.element_type)))
    x = as_tensor(aten, self, wide.element_type)
    root = aten.sqrt(wide, _variance(aten, x, wide, dim, correction, keepdim))
    return as_tensor(aten, root, result.element_type)


@formula(
    "normalize", "aten.var_mean.correction", examples=[example("2x3x4xf32", [-1], correction=0, keepdim=True)],
    unspecified={"infinities and zeros": FurtherResults("eager's running mean of infinity is NaN")},
)  # fmt: skip
def var_mean(
    aten: Aten, self: Value, dim: list[int] | None, correction: float | None, keepdim: bool, results: list[ValueType]
) -> list[Value]:
    "a variance and a mean; lowering shares what they have in common"
    mean = aten.mean.dim(results[1], self, dim=dims_of(self, dim), keepdim=keepdim)
    return [_variance(aten, self, results[0], dim, correction, keepdim), mean]

"""Reductions in one spelling: `mean.dim` with dimensions counted from the front, in ascending order."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Aten
from patcomp.ir.types import element_name
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import Rule, condition, example, formula
from patterns_catalog.normalize.arithmetic import as_tensor


def dims_of(x: Value, given: list[int] | None) -> list[int]:
    """The dimensions counted from the front; PyTorch's None and [] both mean all of them."""
    return sorted(dim % x.rank for dim in given) if given and x.rank else list(range(x.rank))


@condition("{dim} are listed from the front, and {x} has the type in which PyTorch adds")
def _is_spelled(x: Value, dim: list[int] | None, dtype: Any, result: ValueType) -> bool:
    same = x.element_type == result.element_type
    return dim == dims_of(x, dim) and dtype is None and (same or element_name(x.element_type)[0] != "f")


def _in_type(aten: Aten, x: Value, dtype: Any, element: Attribute) -> Value:
    """`x` in the type that a reduction is said to compute in."""
    return x if dtype is None else as_tensor(aten, x, element)


def _reduction(whole: str, by_dims: str) -> Rule:
    @formula("normalize", whole, by_dims, name=f"normalize {whole.removeprefix('aten.')}", examples=[
        example("2x3xf32"), example("2x3x4xf32", [-1], op=by_dims), example("2x3xf32", [1], dtype="f64", op=by_dims),
    ], where=lambda self, dim, dtype, result: [~_is_spelled(self, dim, dtype, result)])  # fmt: skip
    def rule(
        aten: Aten, self: Value, dtype: Any, result: ValueType, dim: list[int] | None = None, keepdim: bool = False
    ) -> Value:
        "a dtype to compute in becomes a cast before"
        x = _in_type(aten, self, dtype, result.element_type)
        return aten.build(by_dims, result, self=x, dim=dims_of(x, dim), keepdim=keepdim)  # type: ignore[no-any-return]

    return rule


mean = _reduction("aten.mean", "aten.mean.dim")
sum_ = _reduction("aten.sum", "aten.sum.dim_IntList")

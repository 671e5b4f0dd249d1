"""Reductions and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Example, Rejected, Rule, example, formula
from patcomp.patterns.conditions import is_floating
from patterns_catalog.lower.casts import BY_RESULT, convert, truth
from patterns_catalog.sizes import size_of


def axes_of(dims: Sequence[int] | int | None, rank: int) -> list[int]:
    """The reduced axes counted from the front; PyTorch's None and [] both mean all of them."""
    listed = [dims] if isinstance(dims, int) else dims
    return sorted(dim % rank for dim in listed) if listed else list(range(rank))


def with_or_without(c: Coreai, reduced: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """What is reduced over axes, with them or without."""
    return reduced if keepdim else c.shrink_dims(reduced, axes)


def reduce(
    c: Coreai,
    function: Callable[..., Value],
    x: Value,
    dims: Sequence[int] | int | None,
    keepdim: bool,
    of_nothing: float | None = None,
) -> Value:
    """A `coreai` reduction with PyTorch's conventions: any rank, None for all dimensions, keepdim or not.

    `of_nothing` is the result if there are no elements, for which the runtime returns arbitrary numbers.
    """
    if x.rank == 0:
        return c.reshape(function(c.reshape(x, [1]), [0]), [])
    axes = axes_of(dims, x.rank)
    if 0 in x.shape:
        if of_nothing is None:
            raise Rejected("this reduction of an empty tensor has no result")
        sizes = [1 if axis in axes else size_of(c, x, axis) for axis in range(x.rank)]
        reduced = c.broadcast_to(c.constant(of_nothing, x.element_type), sizes)
    else:
        reduced = function(x, axes)
    return with_or_without(c, reduced, axes, keepdim)


_ONE_AXIS = example("2x3x4xf32", [1])
_EXAMPLES = [_ONE_AXIS, example("2x3x4xf32", [-1, 0], True), example("f32", [])]


def _reduction(name: str, function: str, of_nothing: float, *ops: str, examples: Sequence[Example]) -> Rule:
    @formula("lower", *ops, name=name, ignored=BY_RESULT, examples=examples)
    def rule(c: Coreai, self: Value, result: ValueType, dim: Any = None, keepdim: bool = False) -> Value:
        "the mean, sum or product over some axes or all; over nothing NaN, 0 or 1"
        return reduce(c, getattr(c, function), convert(c, self, result.element_type), dim, keepdim, of_nothing)

    return rule


reduced_mean = _reduction(
    "mean", "reduce_mean", math.nan, "aten.mean.dim", examples=[*_EXAMPLES, example("2x3xf32", None)]
)
reduced_sum = _reduction("sum", "reduce_sum", 0, "aten.sum.dim_IntList", examples=[
    *_EXAMPLES, example("2x3xsi32[0,9]", [1]), example("2x3xi1", [0]),
])  # fmt: skip
reduced_product = _reduction("prod", "reduce_product", 1, "aten.prod", "aten.prod.dim_int", examples=[
    example("2x3x4xf32"), example("2x3x4xf32", 1, op="aten.prod.dim_int"), example("f32"),
    example("2x4xsi32[-9,9]", -1, True, op="aten.prod.dim_int"), example("2x3xi1", 0, op="aten.prod.dim_int"),
])  # fmt: skip


def extreme(c: Coreai, x: Value, *, largest: bool) -> Callable[..., Value]:
    """The reduction to the largest or smallest value; NaN wins, and of bools it is a quantifier."""
    if x.dtype == "i1":
        return c.any_ if largest else c.all_
    return c.reduce_max if largest else c.reduce_min


def _extreme(name: str) -> Rule:
    @formula("lower", f"aten.a{name}", f"aten.{name}", name=f"a{name}", examples=[
        *_EXAMPLES, example("2x3xsi32[-9,9]", [1]), example("2x3xf32", op=f"aten.{name}"),
    ])  # fmt: skip
    def rule(c: Coreai, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
        "the largest or smallest over some axes, or over all; of bools any or all"
        return reduce(c, extreme(c, self, largest=name == "max"), self, dim, keepdim)

    return rule


amax = _extreme("max")
amin = _extreme("min")


def _quantifier(name: str) -> Rule:
    @formula("lower", f"aten.{name}", f"aten.{name}.dim", f"aten.{name}.dims", name=name, examples=[
        example("2x3xi1"), example("2x3xf32", -1, True, op=f"aten.{name}.dim"),
        example("2x3x4xsi32[0,1]", [0, 2], op=f"aten.{name}.dims"), example("2x3xi1", None, op=f"aten.{name}.dims"),
    ])  # fmt: skip
    def rule(c: Coreai, self: Value, result: ValueType, dim: Any = None, keepdim: bool = False) -> Value:
        "what is not zero counts as true; a uint8 tensor gives uint8"
        reduced = reduce(c, getattr(c, f"{name}_"), truth(c, self), dim, keepdim, of_nothing=name == "all")
        return c.cast(reduced, result.element_type)

    return rule


any_ = _quantifier("any")
all_ = _quantifier("all")


@formula("lower", "aten._softmax", ignored={"half_to_float": "the result type has it"}, where=lambda self: [
    self.rank > 0, is_floating(self).says("softmax of integers is not supported; cast the input to float"),
], examples=[example("2x3x4xf32", -1, False), example("2x3x4xf32", 1, False)])  # fmt: skip
def softmax(c: Coreai, self: Value, dim: int, result: ValueType) -> Value:
    "exp(x - max) / sum(exp(x - max)) along one axis"
    return c.softmax(c.cast(self, result.element_type), dim % self.rank)

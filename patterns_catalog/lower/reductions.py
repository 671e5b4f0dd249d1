"""Reductions and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from patcomp.authoring import Coreai
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rejected, Rule, example, lowering
from patterns_catalog.lower.casts import convert
from patterns_catalog.sizes import size_of


def axes_of(dims: Sequence[int] | None, rank: int) -> list[int]:
    """The reduced axes counted from the front; PyTorch's None and [] both mean all of them."""
    return sorted(dim % rank for dim in dims) if dims else list(range(rank))


def reduce(
    c: Coreai,
    function: Callable[..., Value],
    x: Value,
    dims: Sequence[int] | None,
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
    return reduced if keepdim else c.shrink_dims(reduced, axes)


_ONE_AXIS = example("2x3x4xf32", [1])
_EXAMPLES = [_ONE_AXIS, example("2x3x4xf32", [-1, 0], True), example("f32", [])]


@lowering("aten.mean.dim", examples=[*_EXAMPLES, example("2x3xf32", None)])
def mean(op: OpView, c: Coreai) -> Value:
    "the mean over some axes, NaN over nothing"
    op.ignore("dtype", because="the result type has it")
    x = convert(c, op["self"], op.result.element_type)
    return reduce(c, c.reduce_mean, x, op.dim, op.keepdim, of_nothing=math.nan)


@lowering("aten.sum.dim_IntList", examples=[*_EXAMPLES, example("2x3xsi32[0,9]", [1]), example("2x3xi1", [0])])
def sum_(op: OpView, c: Coreai) -> Value:
    "the sum over some axes, 0 over nothing"
    op.ignore("dtype", because="the result type has it")
    x = convert(c, op["self"], op.result.element_type)
    return reduce(c, c.reduce_sum, x, op.dim, op.keepdim, of_nothing=0)


def extreme(c: Coreai, x: Value, *, largest: bool) -> Callable[..., Value]:
    """The reduction to the largest or smallest value; NaN wins, and of bools it is a quantifier."""
    if x.dtype == "i1":
        return c.any_ if largest else c.all_
    return c.reduce_max if largest else c.reduce_min


def _extreme(name: str) -> Rule:
    @lowering(f"aten.a{name}", f"aten.{name}", name=f"a{name}", examples=[
        *_EXAMPLES, example("2x3xsi32[-9,9]", [1]), example("2x3xf32", op=f"aten.{name}"),
    ])  # fmt: skip
    def rule(op: OpView, c: Coreai) -> Value:
        "the largest or smallest over some axes, or over all; of bools any or all"
        x = op["self"]
        function = extreme(c, x, largest=name == "max")
        if "dim" not in op.arguments:
            return reduce(c, function, x, None, False)
        return reduce(c, function, x, op.dim, op.keepdim)

    return rule


amax = _extreme("max")
amin = _extreme("min")


@lowering("aten.prod", "aten.prod.dim_int", examples=[
    example("2x3x4xf32"), example("2x3x4xf32", 1, op="aten.prod.dim_int"), example("f32"),
    example("2x4xsi32[-9,9]", -1, True, op="aten.prod.dim_int"), example("2x3xi1", 0, op="aten.prod.dim_int"),
])  # fmt: skip
def prod(op: OpView, c: Coreai) -> Value:
    "the product over one dimension, or over all"
    op.ignore("dtype", because="the result type has it")
    x = convert(c, op["self"], op.result.element_type)
    dims, keepdim = ([op.dim], op.keepdim) if "dim" in op.arguments else (None, False)
    return reduce(c, c.reduce_product, x, dims, keepdim, of_nothing=1)


def _quantifier(name: str) -> Rule:
    @lowering(f"aten.{name}", f"aten.{name}.dim", f"aten.{name}.dims", name=name, examples=[
        example("2x3xi1"), example("2x3xf32", -1, True, op=f"aten.{name}.dim"),
        example("2x3x4xsi32[0,1]", [0, 2], op=f"aten.{name}.dims"), example("2x3xi1", None, op=f"aten.{name}.dims"),
    ])  # fmt: skip
    def rule(op: OpView, c: Coreai) -> Value:
        "what is not zero counts as true; a uint8 tensor gives uint8"
        x = op["self"]
        given = op.dim if "dim" in op.arguments else None
        keepdim = op.keepdim if "keepdim" in op.arguments else False
        function = c.any_ if name == "any" else c.all_
        truth = x if x.dtype == "i1" else c.broadcasting_not_equal(x, c.constant(0, x.element_type))
        reduced = reduce(c, function, truth, [given] if isinstance(given, int) else given, keepdim, name == "all")
        return c.cast(reduced, op.result.element_type)

    return rule


any_ = _quantifier("any")
all_ = _quantifier("all")


@lowering("aten._softmax", examples=[example("2x3x4xf32", -1, False), example("2x3x4xf32", 1, False)])
def softmax(op: OpView, c: Coreai) -> Value:
    "exp(x - max) / sum(exp(x - max)) along one axis"
    x = op["self"]
    op.ignore("half_to_float", because="the result type has it")
    op.expect(is_float(x.element_type), "softmax of integers is not supported; cast the input to float")
    x = c.cast(x, op.result.element_type)
    if x.rank == 0:
        op.ignore("dim", because="a 0-d tensor has one value")
        return c.reshape(c.softmax(c.reshape(x, [1]), 0), [])
    return c.softmax(x, op.dim % x.rank)

"""Norms of vectors as the composite."""

from __future__ import annotations

import math

from patcomp.authoring import AtenSource, Composites, Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Attr, Capture, Rewrite, any_of, check, example, formula, rule, tag
from patcomp.patterns.conditions import is_floating
from patterns_catalog.composites.vector_norm import linalg_vector_norm

_OF_REALS = "the composite is a vector norm of real numbers"


def _all_or(axes: list[int] | None, rank: int) -> list[int]:
    """The axes of a norm; None and [] mean all of them."""
    return list(axes) if axes else list(range(rank))


@formula("recover", "aten.linalg_vector_norm", name="linalg_vector_norm", examples=[
    example("2x3x4xf32", 2.0, [-1], True), example("2x3xf32", 2), example("2x3xf32", 1, [0]),
    example("2x3xf32", 0, [1]), example("2x3xf32", 3, [-1, 0]), example("2x3xf32[0.5,2]", -1.5, [1]),
    example("2x3xf32", math.inf, [1]), example("2x3xf32", -math.inf, [1]), example("2x3xf16", 2.0, [1], dtype="f32"),
], where=lambda self: [is_floating(self).says(_OF_REALS), self.rank > 0],
   ignored={"dtype": "the result type has it"})  # fmt: skip
def aten_vector_norm(
    c: Coreai, self: Value, ord: float, dim: list[int] | None, keepdim: bool, result: ValueType
) -> Value:  # fmt: skip
    """sum(|x| ** ord) ** (1 / ord); order and axes are declared as PyTorch has them"""
    x = c.cast(self, result.element_type)
    return linalg_vector_norm(x, ord=ord, axes=_all_or(dim, x.rank), keep_dim=keepdim)


@formula(
    "recover",
    "aten.linalg_vector_norm",
    name="linalg_vector_norm of a number",
    examples=[example("f32", 2.0)],
    where=lambda self: [is_floating(self).says(_OF_REALS), self.rank == 0],
    ignored={"dtype": "the result type has it"} | dict.fromkeys(("dim", "keepdim"), "there is one value"),
)
def vector_norm_of_number(c: Coreai, self: Value, ord: float, result: ValueType) -> Value:
    """the norm of a vector of one element"""
    one = c.reshape(c.cast(self, result.element_type), [1])
    return linalg_vector_norm(one, ord=ord, axes=[0], keep_dim=False)


@rule(name="linalg_vector_norm written out", example={"x": "2x3x4xf32", "axes": [1], "keepdim": True})
def recovered_vector_norm(a: AtenSource, c: Composites, x: Capture, axes: Attr, keepdim: Attr) -> Rewrite:
    "sqrt(sum(x ** 2)), sum(abs(x)), max(abs(x)) or min(abs(x)) over axes, in float32 (CLIP)"
    square = a.op("sum.dim_IntList", any_of(x * x, a.pow(x, 2.0)), dim=axes, keepdim=keepdim, dtype=None)
    size = a.abs(x)
    norm = any_of(
        a.sqrt(square),
        a.pow(square, 0.5),
        a.op("sum.dim_IntList", size, dim=axes, keepdim=keepdim, dtype=None),
        a.amax(size, dim=axes, keepdim=keepdim),
        a.amin(size, dim=axes, keepdim=keepdim),
        tag="order",
        tags=(2.0, 2.0, 1.0, math.inf, -math.inf),
    )
    return Rewrite(
        norm,
        to=c.linalg_vector_norm(x, ord=tag("order"), axes=axes, keep_dim=keepdim),
        where=[x.dtype == "f32", check("there are axes", lambda match: len(match["axes"]) > 0)],
    )

"""Norms of vectors as a composite."""

from __future__ import annotations

import math

from patcomp.authoring import Coreai
from patcomp.ir.composite import composite
from patcomp.ir.value import Value
from patcomp.patterns import composites
from patterns_catalog.composites.norms import compute_type


@composites.define
@composite("linalg_vector_norm", inputs=("input",), attributes=("ord", "axes", "keep_dim"))
def linalg_vector_norm(c: Coreai, x: Value, *, ord: int | float, axes: list[int], keep_dim: bool) -> Value:
    "sum(|x| ** ord) ** (1 / ord); the largest or smallest |x| for infinite ord, the number of nonzero x for 0"
    wide = c.cast(x, compute_type(x))
    dims = sorted(axis % x.rank for axis in axes)
    if ord == 0:
        norm = c.reduce_sum(c.cast(c.broadcasting_not_equal(wide, 0.0), wide.element_type), dims)
    elif ord == 1:
        norm = c.reduce_sum(c.abs_(wide), dims)
    elif ord == 2:
        norm = c.sqrt(c.reduce_sum(c.broadcasting_mul(wide, wide), dims))
    elif math.isinf(ord):
        norm = (c.reduce_max if ord > 0 else c.reduce_min)(c.abs_(wide), dims)
    else:
        powers = c.broadcasting_pow(c.abs_(wide), float(ord))
        norm = c.broadcasting_pow(c.reduce_sum(powers, dims), 1.0 / ord)
    return kept(c, c.cast(norm, x.element_type), dims, keep_dim)


def kept(c: Coreai, norm: Value, axes: list[int], keep_dim: bool) -> Value:
    """A reduced tensor with or without the axes of its reduction."""
    return norm if keep_dim else c.shrink_dims(norm, axes)

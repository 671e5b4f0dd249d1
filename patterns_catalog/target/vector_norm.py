"""Norms of vectors without overflow in half precision."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import example, formula
from patterns_catalog.composites.vector_norm import kept, linalg_vector_norm
from patterns_catalog.target.norms import INFINITE


@formula("target", linalg_vector_norm, name="vector norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x3x8xf32", program=lambda torch, x: torch.linalg.vector_norm(x, dim=-1)),
    example("2x3x8xf32", program=lambda torch, x: torch.linalg.vector_norm(x, dim=(0, 2), keepdim=True)),
], where=lambda ord: [(ord == 2.0).says("the order of the norm is not 2")])  # fmt: skip
def vector_norm_divided_first(c: Coreai, input: Value, axes: list[int], keep_dim: bool) -> Value:
    "sqrt(sum(x^2)) -> s sqrt(sum((x / s)^2)) with s = max |x|: no square overflows"
    dims = sorted(axis % input.rank for axis in axes)
    largest = c.broadcasting_maximum(c.reduce_max(c.abs_(input), dims), c.constant(2.0**-14, input.element_type))
    small = c.broadcasting_divide(input, largest)
    norm = c.broadcasting_mul(c.sqrt(c.reduce_sum(c.broadcasting_mul(small, small), dims)), largest)
    return kept(c, norm, dims, keep_dim)

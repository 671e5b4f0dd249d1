"""Norms of vectors without overflow in half precision."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.recover.vector_norm import linalg_vector_norm
from patterns_catalog.target.norms import INFINITE


@op_rule("target", linalg_vector_norm, name="vector norm divided first",
         targets=("neural_engine",), unspecified=INFINITE, examples=[
    example("2x3x8xf32", program=lambda torch, x: torch.linalg.vector_norm(x, dim=-1)),
    example("2x3x8xf32", program=lambda torch, x: torch.linalg.vector_norm(x, dim=(0, 2), keepdim=True)),
])  # fmt: skip
def vector_norm_divided_first(op: OpView, c: Coreai) -> Value:
    "sqrt(sum(x^2)) -> s sqrt(sum((x / s)^2)) with s = max |x|: no square overflows"
    op.expect(float(op.ord) == 2.0, "the order of the norm is not 2")
    x, axes = op.input, sorted(axis % op.input.rank for axis in op.axes)
    largest = c.broadcasting_maximum(c.reduce_max(c.abs_(x), axes), c.constant(2.0**-14, x.element_type))
    small = c.broadcasting_divide(x, largest)
    norm = c.broadcasting_mul(c.sqrt(c.reduce_sum(c.broadcasting_mul(small, small), axes)), largest)
    return norm if op.keep_dim else c.shrink_dims(norm, axes)

"""Reductions in one spelling: `mean.dim` with dimensions counted from the front, in ascending order."""

from __future__ import annotations

from patcomp.authoring import Aten
from patcomp.ir.types import element_name, tensor
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rule, example, normalization


def _reduction(whole: str, by_dims: str) -> Rule:
    @normalization(whole, by_dims, name=f"normalize {whole.removeprefix('aten.')}", examples=[
        example("2x3xf32"), example("2x3x4xf32", [-1], op=by_dims), example("2x3xf32", [1], dtype="f64", op=by_dims),
    ])  # fmt: skip
    def rule(op: OpView, aten: Aten) -> Value | None:
        "a dtype to compute in becomes a cast before"
        x, element = op["self"], op.result.element_type
        given = op.dim if op.op_name == by_dims else None
        keepdim = op.keepdim if op.op_name == by_dims else False
        dims = sorted(dim % x.rank for dim in given) if given and x.rank else list(range(x.rank))
        same = x.element_type == element
        if (
            op.op_name == by_dims
            and given == dims
            and op.dtype is None
            and (same or element_name(x.element_type)[0] != "f")
        ):
            return None
        if op.dtype is not None and not same:
            x = aten._to_copy(tensor(x.shape, element), x, dtype=element)
        return aten.build(by_dims, op.result, self=x, dim=dims, keepdim=keepdim)

    return rule


mean = _reduction("aten.mean", "aten.mean.dim")
sum_ = _reduction("aten.sum", "aten.sum.dim_IntList")

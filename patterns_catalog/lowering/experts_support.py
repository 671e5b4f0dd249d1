"""What Mixture-of-Experts layers need besides products: sorting rows by expert, and the token of a row."""

from __future__ import annotations

from typing import Any

from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lowering.ordering import order_of


@lowering("aten.sort", "aten.sort.stable", examples=[
    example("2x9xf32"), example("2x9x2xf32", 1, True), example("9xsi32[-9,9]"), example("f32"),
    example("2x9xsi32[0,3]", stable=True, dim=0, op="aten.sort.stable"),
])  # fmt: skip
def sort(op: OpView, c: Any) -> list[Value]:
    "equal values stay in their order, which PyTorch promises of stable sorts only"
    if "stable" in op.arguments:
        op.ignore("stable", because="every sort is")
    x, positions = op["self"], op.results[1].element_type
    if x.rank == 0:
        op.ignore("dim", "descending", because="a 0-d tensor has one value")
        return [x, c.constant(0, positions)]
    op.expect(x.is_static, "a sort of a dynamic shape")
    axis = op.dim % x.rank
    numbers = c.cast(x, "si32") if x.dtype == "i1" else x
    order = order_of(c, numbers, axis, op.descending)
    return [c.gather_along_axis(x, order, axis), c.cast(order, positions)]

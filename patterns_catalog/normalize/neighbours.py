"""Neighbouring pairs of the last axis in one spelling: every other value.

Rotary position embeddings of complex numbers split the pairs with a view. In the spelling of the other rotary
embeddings, they are the same composite (`composites/rope.py`).
"""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Aten
from patcomp.ir.extents import extents
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.views import arguments_of

_END = 2**63 - 1


def _second_of_pairs(torch: Any, x: Any) -> Any:
    return x.unflatten(-1, (-1, 2))[..., 1]


@op_rule("normalize", "aten.select.int", name="normalize select of pairs", size=2, examples=[
    example("3x8xf32", program=_second_of_pairs),
])  # fmt: skip
def select_of_pairs(op: OpView, aten: Aten) -> Value | None:
    "select(view(x, [..., n, 2]), -1, i) is x[..., i::2]"
    pairs = op["self"]
    view = arguments_of(pairs, "view")
    if view is None or pairs.rank < 2 or op.dim % pairs.rank != pairs.rank - 1:
        return None
    x: Value = view["self"]
    *before, width, two = extents(pairs)
    if two != 2 or extents(x) != [*before, 2 * width]:
        return None
    return aten.slice.Tensor(op.result, x, dim=x.rank - 1, start=op.index % 2, end=_END, step=2)

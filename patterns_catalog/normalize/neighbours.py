"""Neighbouring pairs of the last axis in one spelling: every other value.

Rotary position embeddings of complex numbers split the pairs with a view. In the spelling of the other rotary
embeddings, they are the same composite (`composites/rope.py`).
"""

from __future__ import annotations

from patcomp.authoring import AtenSource, AtenTarget
from patcomp.ir.extents import extents
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, Rewrite, condition, rule

_END = 2**63 - 1


@condition("{pairs} has the last axis of {x} in pairs, from which {dim} chooses")
def _chooses_of_pairs(x: Value, pairs: Value, dim: int) -> bool:
    *before, last = extents(pairs)
    return last == 2 and bool(before) and extents(x) == [*before[:-1], 2 * before[-1]] and dim % pairs.rank == x.rank


@rule(
    stage="normalize", into=aten_namespace, name="normalize select of pairs",
    example={"x": "3x8xf32", "size": [3, 4, 2], "dim": 2, "index": 1},
)  # fmt: skip
def select_of_pairs(a: AtenSource, c: AtenTarget, x: Capture, size: Attr, dim: Attr, index: Attr) -> Rewrite:
    "select(view(x, [..., n, 2]), -1, i) is x[..., i::2]"
    pairs = a.seen(a.view(x, size=size))
    return Rewrite(
        a.op("select.int", pairs, dim=dim, index=index),
        to=c.op("slice.Tensor", x, dim=x.rank - 1, start=index % 2, end=_END, step=2),
        where=[_chooses_of_pairs(x, pairs, dim)],
    )

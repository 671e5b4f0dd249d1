"""Wrong rules that are right for different numbers, and wrong where numbers are equal."""

from __future__ import annotations

import torch

from patcomp.authoring import Aten, AtenSource, AtenTarget, Coreai, CoreaiSource, CoreaiTarget, OpView
from patcomp.ir import coreai
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Capture, Rewrite, decomposition, example, lowering, normalization
from tests.proof_seeds.normalize import of_aten
from tests.proof_seeds.seeds import Call, Function, Ops, of_coreai, seed

TIED = torch.tensor([[1.0, 3.0, 3.0], [0.0, 0.0, 0.0]])
OTHER = torch.tensor([[1.0, 2.0, 4.0], [0.0, -0.0, 1.0]])
TWO = {"x": "2x3xf32", "y": "2x3xf32"}

# ---- places ------------------------------------------------------------------------------------------


def _from_the_end(op: OpView, c: Coreai, factor: float) -> Value:
    x = c.broadcasting_mul(op["self"], factor)
    op.ignore("keepdim", because="the result is reshaped")
    op.expect(op.dim is not None and x.rank > 0 and x.is_static, "the whole tensor")
    axis = op.dim % x.rank
    last = c.cast(c.argmax(c.reverse(x, [axis]), axis), "si32")
    return c.reshape(c.broadcasting_sub(x.static_shape[axis] - 1, last), op.result.static_shape)


@seed("of equal maxima, PyTorch gives the first one", Call("aten.argmax", [TIED, 1]))
@lowering("aten.argmax", name="argmax from the end", examples=[example("2x3xf32", 1)])
def argmax_from_the_end(op: OpView, c: Coreai) -> Value:
    "argmax(x) -> n - 1 - argmax(reverse(x))"
    return _from_the_end(op, c, 1.0)


@seed("of equal minima, PyTorch gives the first one", Call("aten.argmin", [TIED, 1]))
@lowering("aten.argmin", name="argmin from the end", examples=[example("2x3xf32", 1)])
def argmin_from_the_end(op: OpView, c: Coreai) -> Value:
    "argmin(x) -> n - 1 - argmax(reverse(-x))"
    return _from_the_end(op, c, -1.0)


@seed("a stable order of equal numbers ends with the last of them", Call("aten.argmax", [TIED, 1]))
@normalization("aten.argmax", name="argmax by an order", examples=[example("2x3xf32", 1)])
def argmax_by_order(op: OpView, aten: Aten) -> Value | None:
    "argmax(x) -> the last place of sort(x)"
    x = op["self"]
    if op.dim is None or op.keepdim or x.rank == 0:
        return None
    types = [x.type, tensor(x.shape, op.result.element_type)]
    _, places = aten.sort.stable(types, x, stable=True, dim=op.dim, descending=False)
    return aten.select.int(op.result, places, dim=op.dim, index=-1)


@seed(
    "an order that is turned around has equal numbers in the wrong order",
    Function(lambda x: torch.sort(x, stable=True, descending=True).indices, [TIED]),
)
@normalization("aten.sort.stable", name="descending order turned around", examples=[
    example("2x3xf32", stable=True, descending=True),
])  # fmt: skip
def descending_order(op: OpView, aten: Aten) -> list[Value] | None:
    "sort(x, descending) -> flip(sort(x))"
    x = op["self"]
    if not op.descending or x.rank == 0 or not op.stable:
        return None
    types = [x.type, tensor(x.shape, "si64")]
    sorted_ = aten.sort.stable(types, x, stable=True, dim=op.dim, descending=False)
    return [aten.flip(type_, each, dims=[op.dim]) for type_, each in zip(types, sorted_, strict=True)]


@seed(
    "the first place is the number of smaller elements, without those that are equal",
    Function(lambda s, v: torch.searchsorted(s, v), [torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([2.0, 1.5])]),
)
@decomposition("aten.searchsorted.Tensor", name="places by counting", examples=[
    example("4xf32", "3xf32"),
])  # fmt: skip
def places_by_counting(sorted_sequence, self, *, out_int32=False, right=False, side=None, sorter=None):  # type: ignore[no-untyped-def]
    "searchsorted(s, v) -> sum(s <= v)"
    if right or side is not None or sorter is not None or sorted_sequence.dim() != 1:
        return NotImplemented
    found = (sorted_sequence <= self.unsqueeze(-1)).sum(-1)
    return found.to(torch.int32) if out_int32 else found


# ---- comparisons -------------------------------------------------------------------------------------


@seed("of equal numbers, the one is at most the other, and not less", Function(lambda x, y: x <= y, [TIED, OTHER]))
@of_aten(TWO)
def at_most_as_less(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "x <= y -> x < y"
    return Rewrite(a.le(x, y), to=c.lt(x, y), where=[x.type == y.type])


@seed("of equal numbers, neither is greater", Function(lambda x, y: torch.where(x >= y, x, -y), [TIED, OTHER]))
@of_aten(TWO)
def choice_of_greater(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "where(x >= y, x, -y) -> where(x > y, x, -y)"
    z = a.neg(y)
    chosen = a.op("where.self", a.ge(x, y), x, z)
    return Rewrite(chosen, to=c.op("where.self", c.gt(x, y), x, c.neg(y)), where=[x.type == y.type])


@seed("a sign of equal numbers is 0", Function(lambda x, y: torch.sign(x - y), [TIED, OTHER]))
@of_aten(TWO)
def sign_by_comparison(a: AtenSource, c: AtenTarget, x: Capture, y: Capture) -> Rewrite:
    "sign(x - y) -> 2 * (x > y) - 1"
    larger = c._to_copy(c.gt(x, y), dtype="f32")
    return Rewrite(a.sign(x - y), to=c.sub(c.mul(larger, 2.0), 1.0), where=[x.type == y.type, x.dtype == "f32"])


@seed(
    "all elements that are equal to the maximum are marked, not only the first one",
    Function(lambda x: x == x.amax(1, keepdim=True), [TIED]),
)
@of_aten({"x": "2x3xf32", "axis": 1})
def maximum_marked_once(a: AtenSource, c: AtenTarget, x: Capture, axis: Attr) -> Rewrite:
    "x == amax(x) -> cumsum(x >= amax(x)) == 1 and x >= amax(x)"
    marked = a.eq(x, a.amax(x, dim=[axis], keepdim=True))
    again = c.ge(c.sub(x, c.amax(x, dim=[axis], keepdim=True)), 0.0)
    first = c.eq(c.cumsum(again, dim=axis, dtype=None), 1)
    return Rewrite(marked, to=c.logical_and(first, again), where=[x.dtype == "f32"])


@seed(
    "of equal numbers, neither is greater, so that the second branch is taken in both programs",
    Ops(
        {"x": "2x3xf32", "y": "2x3xf32"},
        lambda x, y: coreai.broadcasting_where(coreai.broadcasting_greater(x, y), 1.0, coreai.broadcasting_mul(x, 2.0)),
        {"x": TIED, "y": OTHER},
    ),
)
@of_coreai("optimize", {**TWO, "p": "2x3xf32", "q": "2x3xf32"})
def branches_exchanged(a: CoreaiSource, c: CoreaiTarget, x: Capture, y: Capture, p: Capture, q: Capture) -> Rewrite:
    "where(x > y, p, q) -> where(not y > x, p, q)"
    z = a.broadcasting_where(a.broadcasting_greater(x, y), p, q)
    to = c.broadcasting_where(c.not_(c.broadcasting_greater(y, x)), p, q, result_type=z.type)
    return Rewrite(z, to=to, where=[x.type == y.type])

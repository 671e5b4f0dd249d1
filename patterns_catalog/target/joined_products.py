"""Queries, keys and values in one product, which a GPU computes faster than three.

    q = heads(x Wq), k = heads(x Wk), v = heads(x Wv)   ->   y = heads(x [Wq, Wk, Wv]);  q, k, v are slices of y

What the three have in common stays common: the bias, the views as heads, the transpose. They are cut apart at the first
op that differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_integers, is_constant
from patcomp.ir.region import RegionOp
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.composites.attention import scaled_dot_product_attention
from patterns_catalog.composites.rope import rope
from patterns_catalog.sizes import END

_PRODUCT = "coreai.decomposable.broadcasting_batch_matmul"


def _attention(torch: Any, x: Any, heads: Sequence[int], *, bias: bool = False, norm: bool = False) -> Any:
    """Self-attention with heads of size 4 and constant weights, for the examples."""
    parts, start = [], -1.0
    for count in heads:
        weight = torch.linspace(start, 1, 4 * count * x.shape[-1]).reshape(4 * count, x.shape[-1])
        part = torch.nn.functional.linear(x, weight, torch.linspace(0, 1, 4 * count) if bias else None)
        part = part.view(*x.shape[:-1], count, 4)
        part = torch.nn.functional.rms_norm(part, [4], torch.linspace(1, 2, 4)) if norm and start < 0 else part
        parts.append(part.transpose(1, 2))
        start += 0.5
    return torch.nn.functional.scaled_dot_product_attention(*parts, enable_gqa=heads[0] != heads[1])


@op_rule("target", _PRODUCT, name="query, key and value in one product", targets=("gpu",), examples=[
    example("1x5x8xf32", program=lambda torch, x: _attention(torch, x, [4, 2, 2])),
    example("2x5x8xf32", program=lambda torch, x: _attention(torch, x, [2, 2, 2], bias=True)),
    example("2x5x8xf32", program=lambda torch, x: _attention(torch, x, [4, 2, 2], norm=True)),
    example("1x2x5x4xf32", "1x3x8xf32", program=lambda torch, q, x: (
        torch.nn.functional.scaled_dot_product_attention(q, *(
            (x @ torch.linspace(-1, start, 64).reshape(8, 8)).view(1, 3, 2, 4).transpose(1, 2) for start in (1, 2))))),
])  # fmt: skip
def one_product(op: OpView, c: Coreai) -> Value:
    """x Wq, x Wk, x Wv -> x [Wq, Wk, Wv], then slices; so for any of these that are products of one x

    Apple's models keep three products if keys have fewer heads than queries and a part of each head is turned: the
    GPU's compiler has computed wrong slices then.
    """
    x, own = op.x, op.operation
    op.expect(op.y.rank == 2 and x.rank >= 2, "no product by one matrix")
    attention = _reached(own)
    op.expect(attention is not None, "its result is no query, key or value of an attention")
    assert attention is not None
    products = [each for each in _products_of(x, own) if _weight(each) and _reached(each) is attention]
    op.expect(own in products, "the matrix is no weight")
    products = [each for each in products if _is_transposed(each) == _is_transposed(own)]
    op.expect(len(products) > 1, "query, key and value are products of different inputs")
    op.expect(not _is_turned_in_part(products, attention), "a part of each head is turned, and keys have fewer heads")
    return _joined(op, c, products)


def _gate(torch: Any, x: Any, *, bias: bool = False) -> Any:
    """silu(x Wg) * (x Wu), for the examples."""
    parts = []
    for start in (-1.0, 1.0):
        weight = torch.linspace(start, 0.5, 12 * x.shape[-1]).reshape(12, x.shape[-1])
        parts.append(torch.nn.functional.linear(x, weight, torch.linspace(0, start, 12) if bias else None))
    return torch.nn.functional.silu(parts[0]) * parts[1]


@op_rule("target", _PRODUCT, name="gate and up in one product", examples=[
    example("2x5x8xf32", program=lambda torch, x: _gate(torch, x)),
    example("2x5x8xf32", program=lambda torch, x: _gate(torch, x, bias=True)),
])  # fmt: skip
def gate_and_up(op: OpView, c: Coreai) -> Value:
    "x Wg, x Wu -> x [Wg, Wu], then slices, for products of one x whose results are multiplied"
    x, own = op.x, op.operation
    op.expect(op.y.rank == 2 and x.rank >= 2, "no product by one matrix")
    op.expect(_weight(own) is not None, "the matrix is no weight")
    op.expect(_reached(own) is None, "its result is a query, key or value")
    product = _multiplied(own)
    op.expect(product is not None, "its result is multiplied by no other")
    alike = [each for each in _products_of(x, own) if _weight(each) and _is_transposed(each) == _is_transposed(own)]
    products = [each for each in alike if _multiplied(each) is product]
    op.expect(len(products) == 2, "its result is multiplied by something else than another product of its input")
    return _joined(op, c, products)


def _multiplied(product: Operation) -> Operation | None:
    """The first multiplication that takes the result of a product or what is computed from it."""
    return next((each for each in _after(product) if each.name == "coreai.decomposable.broadcasting_mul"), None)


def _joined(op: OpView, c: Coreai, products: Sequence[Operation]) -> Value:
    """One product for those of one input by weights of one form, and what follows them alike; the result of the op."""
    x, own = op.x, op.operation
    op.cover(*products)
    axis = 0 if _is_transposed(own) else 1
    weight = c.concat(axis, [_copied(_weight(each)) for each in products])
    product = c.broadcasting_batch_matmul(x, c.transpose(weight, [1, 0]) if axis == 0 else weight)
    sizes = [Value(each.operands[1]).static_shape[1] for each in products]
    parts = _Parts(product, product.rank - 1, sizes, products)
    mine = parts.cut(c, products.index(own))
    while (further := parts.after(c)) is not None:
        parts = further
    for index, maker in enumerate(parts.makers):
        if maker is not own:
            op.replace(Value(maker.results[0]), parts.cut(c, index))
    return mine


# ---- which products ---------------------------------------------------------------------------------


def _products_of(x: Value, own: Operation) -> Iterator[Operation]:
    """The products of `x` by a matrix in the block of `own`, in order."""
    found = {use.operation for use in x.ssa.uses if use.index == 0 and use.operation.name == _PRODUCT}
    block = own.parent
    assert block is not None
    for each in block.ops:
        if each in found and Value(each.operands[1]).rank == 2:
            yield each


def _is_transposed(product: Operation) -> bool:
    """Whether a product is by the transpose of a weight, (outputs, inputs)."""
    return not is_constant(product.operands[1])


def _weight(product: Operation) -> Operation | None:
    """The constant that a product is by, or by whose transpose it is."""
    maker = product.operands[1].owner
    if isinstance(maker, Operation) and maker.name == "coreai.transpose":
        if constant_integers(maker.operands[1]) != (1, 0):
            return None
        maker = maker.operands[0].owner
    return maker if isinstance(maker, Operation) and is_constant(maker) else None


def _reached(product: Operation) -> Operation | None:
    """The attention that has the result of a product as query, key or value, with no product between."""
    return next((each for each in _after(product) if scaled_dot_product_attention.made(each)), None)


def _after(product: Operation) -> Iterator[Operation]:
    """The ops that depend on a product, up to further products and attentions; not all of a large program."""
    pending, seen = [product], {product}
    while pending and len(seen) < _MOST:
        for user in [use.operation for result in pending.pop(0).results for use in result.uses]:
            if user in seen or user.name == _PRODUCT:
                continue
            seen.add(user)
            if scaled_dot_product_attention.made(user) and isinstance(user, RegionOp):
                yield user
            else:
                pending.append(user)
                yield user


_MOST = 50
"""The most ops between a product and its attention."""


def _is_turned_in_part(products: Sequence[Operation], attention: Operation) -> bool:
    """Whether only a part of each head is turned, and keys have another number of heads than queries."""
    query, key = (Value(each) for each in attention.operands[:2])
    if query.shape[-3] == key.shape[-3]:
        return False
    calls = [each for product in products for each in _after(product) if rope.made(each)]
    return any(
        rope.arguments(each)["dims"] is not None or Value(each.operands[0]).shape[-1] != query.shape[-1]
        for each in calls
    )


# ---- what follows them ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parts:
    """Values side by side in one."""

    joined: Value
    axis: int
    """The axis along which they lie."""
    sizes: Sequence[int]
    """The size of each along that axis."""
    makers: Sequence[Operation]
    """The ops whose results they are."""

    def cut(self, c: Coreai, index: int) -> Value:
        """One of the values."""
        rank, start = self.joined.rank, sum(self.sizes[:index])
        starts, ends = [0] * rank, [END] * rank
        starts[self.axis], ends[self.axis] = start, start + self.sizes[index]
        return c.slice_(self.joined, starts, ends, [1] * rank)

    def after(self, c: Coreai) -> _Parts | None:
        """The values after the op that follows each of them; None if their ops differ."""
        users = [{use.operation for use in maker.results[0].uses} for maker in self.makers]
        if not all(len(each) == 1 for each in users):
            return None
        makers = [each.pop() for each in users]
        name = makers[0].name
        if any(maker.name != name or maker.parent is not self.makers[0].parent for maker in makers):
            return None
        if name == "coreai.decomposable.broadcasting_add":
            return self._with_biases(c, makers)
        if name == "coreai.reshape":
            return self._viewed(c, makers)
        return self._transposed(c, makers) if name == "coreai.transpose" else None

    def _with_biases(self, c: Coreai, makers: Sequence[Operation]) -> _Parts | None:
        """One constant of rank 1 is added to each."""
        biases = []
        for size, before, maker in zip(self.sizes, self.makers, makers, strict=True):
            given = [each for each in maker.operands if each is not before.results[0]]
            if len(given) != 1 or not is_constant(given[0]) or Value(given[0]).shape != (size,):
                return None
            biases.append(_copied(given[0].owner))
        if self.axis != self.joined.rank - 1:
            return None
        return _Parts(c.broadcasting_add(self.joined, c.concat(0, biases)), self.axis, self.sizes, makers)

    def _viewed(self, c: Coreai, makers: Sequence[Operation]) -> _Parts | None:
        """Leading dimensions change, or the last one is cut into heads of one size."""
        shapes = [Value(maker.results[0]).shape for maker in makers]
        rank = len(shapes[0])
        if self.axis != self.joined.rank - 1 or any(len(shape) != rank for shape in shapes):
            return None
        for axis in (rank - 1, rank - 2):
            rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
            width = shapes[0][-1] if axis == rank - 2 else 1
            sizes = [shape[axis] for shape in shapes]
            if axis < 0 or len(rest) != 1 or width is None or [size and size * width for size in sizes] != self.sizes:
                continue
            known = [size for size in sizes if size is not None]
            wanted = [-1 if size is None else size for size in shapes[0]]
            wanted[axis] = sum(known)
            if wanted.count(-1) > 1 or (-1 in wanted and 0 in wanted):
                return None
            return _Parts(c.reshape(self.joined, wanted), axis, known, makers)
        return None

    def _transposed(self, c: Coreai, makers: Sequence[Operation]) -> _Parts | None:
        orders = {constant_integers(maker.operands[1]) for maker in makers}
        given = orders.pop()
        if orders or given is None:
            return None
        order = [axis % len(given) for axis in given]
        return _Parts(c.transpose(self.joined, order), order.index(self.axis), self.sizes, makers)


def _copied(constant: Any) -> Value:
    """A constant again, in front of the op that is rewritten."""
    return Value(Builder.current().insert(constant.clone()).results[0])

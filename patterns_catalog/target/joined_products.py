"""Queries, keys and values in one product, which a GPU computes faster than three.

    q = heads(x Wq), k = heads(x Wk), v = heads(x Wv)   ->   y = heads(x [Wq, Wk, Wv]);  q, k, v are slices of y

What follows the three alike is computed together, too, by the rules of `parts_together.py`: biases, views as heads,
transposes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.region import RegionOp
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, in_order
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.recover.attention import scaled_dot_product_attention
from patterns_catalog.recover.rope import rope
from patterns_catalog.slices import Part
from patterns_catalog.target.stored_forms import form, is_stored, joined

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
    op.expect(op.y.rank == 2 and x.rank >= 2, "the right operand is not one matrix")
    attention = _reached(own)
    op.expect(attention is not None, "the product is not the query, key or value of an attention")
    assert attention is not None
    products = [each for each in _products_of(x, own) if _weight(each) is not None and _reached(each) is attention]
    op.expect(own in products, "the matrix is not a weight")
    products = [each for each in products if _form(each) == _form(own)]
    op.expect(len(products) > 1, "query, key and value are products of different inputs")
    op.expect(
        not _is_turned_in_part(products, attention),
        "rope rotates a part of each head, and keys have fewer heads than queries",
    )
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
    op.expect(op.y.rank == 2 and x.rank >= 2, "the right operand is not one matrix")
    op.expect(_weight(own) is not None, "the matrix is not a weight")
    op.expect(_reached(own) is None, "the product is a query, key or value of an attention")
    product = _multiplied(own)
    op.expect(product is not None, "the product is not a factor of a multiplication")
    alike = [each for each in _products_of(x, own) if _form(each) == _form(own)]
    products = [each for each in alike if _multiplied(each) is product]
    op.expect(len(products) == 2, "the other factor is not a product of the same input")
    return _joined(op, c, products)


def _multiplied(product: Operation) -> Operation | None:
    """The first multiplication that takes the result of a product or a value computed from it."""
    return next((each for each in _after(product) if each.name == "coreai.decomposable.broadcasting_mul"), None)


def _joined(op: OpView, c: Coreai, products: Sequence[Operation]) -> Value:
    """Replace products of one input by one product with the joined weight; return this op's slice."""
    x, own = op.x, op.operation
    op.cover(*products)
    axis = 0 if _is_transposed(own) else 1
    weight = joined(c, axis, [weight for each in products if (weight := _weight(each)) is not None])
    product = c.broadcasting_batch_matmul(x, c.transpose(weight, [1, 0]) if axis == 0 else weight)
    ends = list(accumulate(Value(each.operands[1]).static_shape[1] for each in products))
    parts = [Part(product.rank - 1, start, end) for start, end in pairwise([0, *ends])]
    for each, part in zip(products, parts, strict=True):
        if each is not own:
            op.replace(Value(each.results[0]), part.of(c, product))
    return parts[products.index(own)].of(c, product)


# ---- which products ---------------------------------------------------------------------------------


def _products_of(x: Value, own: Operation) -> Iterator[Operation]:
    """The products of `x` by a matrix in the block of `own`, in order."""
    for each in in_order(use.operation for use in x.ssa.uses if use.index == 0 and use.operation.parent is own.parent):
        if each.name == _PRODUCT and Value(each.operands[1]).rank == 2:
            yield each


def _is_transposed(product: Operation) -> bool:
    """Whether a product is by the transpose of a weight, (outputs, inputs)."""
    return not is_stored(Value(product.operands[1]))


def _weight(product: Operation) -> Value | None:
    """The constant that a product is by, or by whose transpose it is."""
    matrix = Value(product.operands[1])
    if (transpose := matrix.made_by("coreai.transpose")) is not None:
        matrix = Value(transpose.operands[0])
        if constant_integers(transpose.operands[1]) != (1, 0):
            return None
    return matrix if is_stored(matrix) else None


def _form(product: Operation) -> Hashable:
    """What the weights of products must have in common to be joined."""
    weight, is_turned = _weight(product), _is_transposed(product)
    return None if weight is None else (is_turned, form(weight, 0 if is_turned else 1))


def _reached(product: Operation) -> Operation | None:
    """The attention that has the result of a product as query, key or value, with no product between."""
    return next((each for each in _after(product) if scaled_dot_product_attention.made(each)), None)


def _after(product: Operation) -> Iterator[Operation]:
    """The ops that depend on a product, up to further products and attentions; not all of a large program."""
    pending, seen = [product], {product}
    while pending and len(seen) < _MOST:
        for user in [user for result in pending.pop(0).results for user in Value(result).users]:
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

"""Queries, keys and values in one product, which a GPU computes faster than three.

    q = heads(x Wq), k = heads(x Wk), v = heads(x Wv)   ->   y = heads(x [Wq, Wk, Wv]);  q, k, v are slices of y

What follows the three alike is computed together, too, by the rules of `parts_together.py`: biases, views as heads,
transposes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.region import RegionOp
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, in_order
from patcomp.patterns import OpView, example
from patterns_catalog.composites.attention import scaled_dot_product_attention
from patterns_catalog.composites.rope import rope
from patterns_catalog.slices import Part
from patterns_catalog.target.parts_together import Use, together
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


def _is_turned_in_part(products: Sequence[Operation]) -> bool:
    """Whether only a part of each head is turned, and keys have another number of heads than queries."""
    attention = _reached(products[0])
    assert attention is not None
    query, key = (Value(each) for each in attention.operands[:2])
    if query.shape[-3] == key.shape[-3]:
        return False
    calls = [each for product in products for each in _after(product) if rope.made(each)]
    return any(
        rope.arguments(each)["dims"] is not None or Value(each.operands[0]).shape[-1] != query.shape[-1]
        for each in calls
    )


def _multiplied(product: Operation) -> Operation | None:
    """The first multiplication that takes the result of a product or a value computed from it."""
    return next((each for each in _after(product) if each.name == "coreai.decomposable.broadcasting_mul"), None)


def _leading_to(op: OpView, find: Callable[[Operation], Operation | None], where: str) -> list[Operation]:
    """The products of one input with weights of one form that lead to the same op as this one."""
    own = op.operation
    op.expect(op.y.rank == 2 and op.x.rank >= 2, "the right operand is not one matrix")
    op.expect(_weight(own) is not None, "the matrix is not a weight")
    end = find(own)
    op.expect(end is not None, f"the product is not {where}")
    products = [each for each in _products_of(op.x, own) if _form(each) == _form(own) and find(each) is end]
    op.expect(len(products) > 1, f"no other product of the same input is {where}")
    return products


def _side_by_side(x: Value, products: Sequence[Operation]) -> list[Use]:
    """Products of x whose results are side by side, in this order."""
    ends = list(accumulate(Value(each.operands[1]).static_shape[1] for each in products))
    bounds = pairwise([0, *ends])
    return [Use(each, x, Part(x.rank - 1, *bound)) for each, bound in zip(products, bounds, strict=True)]


def _of_attention(op: OpView) -> tuple[Value, Sequence[Use]]:
    products = _leading_to(op, _reached, "the query, key or value of an attention")
    turned = _is_turned_in_part(products)
    op.expect(not turned, "rope rotates a part of each head, and keys have fewer heads than queries")
    return op.x, _side_by_side(op.x, products)


def _of_gate(op: OpView) -> tuple[Value, Sequence[Use]]:
    op.expect(_reached(op.operation) is None, "the product is a query, key or value of an attention")
    products = _leading_to(op, _multiplied, "a factor of a multiplication")
    op.expect(len(products) == 2, "the multiplication has other factors")
    return op.x, _side_by_side(op.x, products)


# ---- the rules ---------------------------------------------------------------------------------------


def _joined(op: OpView, c: Coreai, x: Value, uses: Sequence[Use]) -> tuple[Value, Sequence[Part]]:
    """One product with the joined weights, or with the transpose of weights that are stored as (outputs, inputs)."""
    axis = 0 if _is_transposed(op.operation) else 1
    weight = joined(c, axis, [weight for use in uses if (weight := _weight(use.operation)) is not None])
    product = c.broadcasting_batch_matmul(x, c.transpose(weight, [1, 0]) if axis == 0 else weight)
    return product, [use.part for use in uses]


def _gate(torch: Any, x: Any, *, bias: bool = False) -> Any:
    """silu(x Wg) * (x Wu), for the examples."""
    parts = []
    for start in (-1.0, 1.0):
        weight = torch.linspace(start, 0.5, 12 * x.shape[-1]).reshape(12, x.shape[-1])
        parts.append(torch.nn.functional.linear(x, weight, torch.linspace(0, start, 12) if bias else None))
    return torch.nn.functional.silu(parts[0]) * parts[1]


@together(_PRODUCT, "gate and up in one product", _of_gate, [
    example("2x5x8xf32", program=lambda torch, x: _gate(torch, x)),
    example("2x5x8xf32", program=lambda torch, x: _gate(torch, x, bias=True)),
], targets=())  # fmt: skip
def gate_and_up(op: OpView, c: Coreai, x: Value, uses: Sequence[Use]) -> tuple[Value, Sequence[Part]]:
    "x Wg, x Wu -> x [Wg, Wu], then slices, for products of one x whose results are multiplied"
    return _joined(op, c, x, uses)


@together(_PRODUCT, "query, key and value in one product", _of_attention, [
    example("1x5x8xf32", program=lambda torch, x: _attention(torch, x, [4, 2, 2])),
    example("2x5x8xf32", program=lambda torch, x: _attention(torch, x, [2, 2, 2], bias=True)),
    example("2x5x8xf32", program=lambda torch, x: _attention(torch, x, [4, 2, 2], norm=True)),
    example("1x2x5x4xf32", "1x3x8xf32", program=lambda torch, q, x: (
        torch.nn.functional.scaled_dot_product_attention(q, *(
            (x @ torch.linspace(-1, start, 64).reshape(8, 8)).view(1, 3, 2, 4).transpose(1, 2) for start in (1, 2))))),
])  # fmt: skip
def one_product(op: OpView, c: Coreai, x: Value, uses: Sequence[Use]) -> tuple[Value, Sequence[Part]]:
    """x Wq, x Wk, x Wv -> x [Wq, Wk, Wv], then slices; so for any of these that are products of one x

    Apple's models keep three products if keys have fewer heads than queries and a part of each head is turned: the
    GPU's compiler has computed wrong slices then.
    """
    return _joined(op, c, x, uses)

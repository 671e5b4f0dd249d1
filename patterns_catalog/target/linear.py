"""Linear layers as 1x1 convolutions, the form in which the Neural Engine multiplies by weights."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers, is_constant
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, example, op_rule

_VOCABULARY = 16384
"""From this many outputs on, a product stays one: the head of a language model is one in Apple's own models."""


@op_rule("target", "coreai.decomposable.broadcasting_batch_matmul", name="linear as convolution",
    targets=("neural_engine",), examples=[
    example("2x7x8xf32", program=lambda torch, x: x @ torch.linspace(-1, 1, 48).reshape(6, 8).t()),
    example("7x8xf32", program=lambda torch, x: x @ torch.linspace(-1, 1, 48).reshape(8, 6)),
    example("2x7x8xf32", program=lambda torch, x: (
        torch.nn.functional.linear(x, torch.linspace(-1, 1, 48).reshape(6, 8), torch.linspace(0, 1, 6)))),
    example("2x7x8xf32", program=lambda torch, x: x.transpose(0, 1) @ torch.linspace(-1, 1, 48).reshape(8, 6)),
    example("2x3x5x8xf32", program=lambda torch, x: x @ torch.linspace(-1, 1, 48).reshape(6, 8).t()),
])  # fmt: skip
def linear_as_convolution(op: OpView, c: Coreai) -> Value:
    "(B, S, I) @ (I, O) -> the convolution of (B, I, 1, S) with (O, I, 1, 1); the order of sums changes"
    x, weight = op.x, op.y
    op.expect(weight.rank == 2 and x.rank >= 2, "the right operand is not one matrix")
    op.expect(is_weight(weight), "the matrix is not computed from weights alone")
    op.expect(
        weight.is_static and weight.static_shape[1] < _VOCABULARY,
        "the matrix is dynamic, or the head over a vocabulary, which stays a product",
    )
    x, leading = _before_transposing(_before_flattening(x))
    op.expect(x.is_static and 2 <= x.rank <= 4, "the input must have static sizes and rank 2 to 4")
    order = [0, x.rank - 1, *range(1, x.rank - 1)] if x.rank > 2 else [1, 0]
    added = {2: [0, 2], 3: [2], 4: []}[x.rank]
    back = [0, *range(2, x.rank), 1] if x.rank > 2 else [1, 0]
    moved = c.transpose(x, order)
    image = c.expand_dims(moved, added) if added else moved
    kernel = c.expand_dims(_transposed(c, weight), [2, 3])
    made = c.conv2d(image, kernel, *(c.constant(n, "ui32") for n in ([1, 1], [1, 1], 1)))
    result = c.transpose(c.shrink_dims(made, added) if added else made, back)
    result = c.transpose(result, leading) if leading else result
    if result.shape == op.result.shape:
        return result
    if (after := _after_flattening(op.operation, result.static_shape)) is not None:
        # the bias is added before the leading dimensions are joined, so that they need not be
        addition, bias, view = after
        op.cover(addition, view)
        op.replace(Value(view.results[0]), c.broadcasting_add(result, bias))
    return c.reshape(result, list(op.result.static_shape))


def is_weight(value: Value) -> bool:
    """Whether a value is computed from constants alone."""
    maker = value.maker
    if maker is None or maker.regions:
        return False
    return is_constant(maker) or (bool(maker.operands) and all(is_weight(Value(each)) for each in maker.operands))


def _transposed(c: Coreai, weight: Value) -> Value:
    before = weight.made_by("coreai.transpose")
    return c.transpose(weight, [1, 0]) if before is None else Value(before.operands[0])


def _before_flattening(x: Value) -> Value:
    """The input before its leading dimensions were joined; `x` itself if they were not."""
    if (view := x.made_by("coreai.reshape")) is not None and x.rank == 2:
        before = Value(view.operands[0])
        if before.is_static and before.rank in (3, 4) and before.shape[-1] == x.shape[-1]:
            return before
    return x


def _before_transposing(x: Value) -> tuple[Value, list[int]]:
    """The input before its leading dimensions were transposed, and their permutation; empty if they were not."""
    if x.rank > 2 and (transpose := x.made_by("coreai.transpose")) is not None:
        order = constant_integers(transpose.operands[1])
        if order is not None and order[-1] == x.rank - 1:
            return Value(transpose.operands[0]), list(order)
    return x, []


def _after_flattening(product: Operation, shape: tuple[int, ...]) -> tuple[Operation, Value, Operation] | None:
    """The addition of a bias to a product, the bias, and the reshape of the sum to a shape; None for other users."""
    addition = _only_user(product)
    if addition is None or addition.name != "coreai.decomposable.broadcasting_add":
        return None
    view = _only_user(addition)
    if view is None or view.name != "coreai.reshape" or Value(view.results[0]).shape != shape:
        return None
    others = [Value(each) for each in addition.operands if each is not product.results[0]]
    if len(others) != 1 or others[0].rank != 1 or others[0].shape != shape[-1:]:
        return None
    return addition, others[0], view


def _only_user(op: Operation) -> Operation | None:
    users = Value(op.results[0]).users
    return users[0] if len(users) == 1 else None

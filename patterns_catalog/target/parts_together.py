"""Slices of one tensor are added to, viewed and transposed together, before the tensor is split.

    transpose(y[:, :, :4]), transpose(y[:, :, 4:])   ->   z = transpose(y);  z[:, :4], z[:, 4:]

The product of query, key and value leaves them in one tensor, of which they are slices or parts of a split.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_integers, is_constant
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.slices import Part, part_of, parts_of

_ADD = "coreai.decomposable.broadcasting_add"


@dataclass(frozen=True)
class Use:
    """An op that computes on a part of a tensor."""

    operation: Operation
    value: Value
    part: Part


def apart(op: OpView, c: Coreai, made: Value, parts: Iterable[tuple[Operation, Part]]) -> Value:
    """The result of `op` as a part of what is computed together; the results of the other ops are replaced."""
    own: Value | None = None
    for operation, part in parts:
        value = part.of(c, made)
        if operation is op.operation:
            own = value
        else:
            op.replace(Value(operation.results[0]), value)
    assert own is not None
    return own


def cutters(uses: Iterable[Use]) -> list[Operation]:
    """The ops that cut a tensor into parts."""
    return [use.value.maker for use in uses if use.value.maker is not None]


def _alike(op: OpView, x: Value) -> tuple[Value, list[Use]]:
    """The tensor that `x` is cut from, and its parts with the ops of the name of `op` that alone read them.

    Raises:
        Rejected: another op reads the tensor or one of its parts.
    """
    whole, own = part_of(x) or op.reject("the input is not a slice with constant bounds")
    uses = [Use(value.users[0], value, part) for value, part in parts_of(whole, own.axis) if value.is_read_once]
    op.expect(len(uses) > 1 and set(whole.users) == set(cutters(uses)), "the tensor has other users")
    block = op.operation.parent
    same = all(use.operation.name == op.op_name and use.operation.parent is block for use in uses)
    results = sum(len(cutter.results) for cutter in set(cutters(uses)))
    op.expect(same and results == len(uses), "another slice is read by another op")
    op.cover(*(use.operation for use in uses), *cutters(uses))
    return whole, uses


def _cover_all(whole: Value, uses: Sequence[Use]) -> bool:
    """Whether the parts follow each other along the last axis, from the first element to the last."""
    ends = [use.part.end for use in uses]
    return uses[0].part.axis == whole.rank - 1 and [0, *ends] == [*(use.part.start for use in uses), whole.shape[-1]]


@op_rule("target", _ADD, name="biases of slices together", targets=("gpu",), examples=[
    example("2x3x6xf32", program=lambda torch, x: (
        x[..., :4] + torch.linspace(0, 1, 4), x[..., 4:] + torch.linspace(1, 2, 2))),
])  # fmt: skip
def biases_of_slices(op: OpView, c: Coreai) -> Value:
    "y[..., :4] + a, y[..., 4:] + b -> z = y + [a, b]; z[..., :4], z[..., 4:]"
    x, bias = (op.input, op.other) if is_constant(op.other.ssa) else (op.other, op.input)
    op.expect(is_constant(bias.ssa), "neither operand is a constant")
    whole, uses = _alike(op, x)
    op.expect(_cover_all(whole, uses), "there are gaps between the slices")
    biases = []
    for use in uses:
        left, right = map(Value, use.operation.operands)
        bias = right if left == use.value else left
        known = is_constant(bias.ssa) and bias.shape == use.value.shape[-1:]
        op.expect(known, "another slice is not added to a constant of its width")
        biases.append(copied(bias))
    made = c.broadcasting_add(whole, c.concat(0, biases))
    return apart(op, c, made, ((use.operation, use.part) for use in uses))


def copied(constant: Value) -> Value:
    """A constant again, in front of the op that is rewritten."""
    assert constant.maker is not None
    return Value(Builder.current().insert(constant.maker.clone()).results[0])


@op_rule("target", "coreai.reshape", name="views of slices together", targets=("gpu",), examples=[
    example("2x3x12xf32", program=lambda torch, x: (x[..., :8].view(2, 3, 2, 4), x[..., 8:].view(2, 3, 1, 4))),
    example("6x12xf32", program=lambda torch, x: tuple(y.reshape(2, 3, -1) for y in x.split([4, 8], -1))),
])  # fmt: skip
def views_of_slices(op: OpView, c: Coreai) -> Value:
    """view(y[..., :8]), view(y[..., 8:]) -> z = view(y); z[..., :2, :], z[..., 2:, :]

    The leading dimensions change, or the last one is cut into heads of one size.
    """
    op.ignore("new_shape", because="the result types have the shapes")
    whole, uses = _alike(op, op.input)
    op.expect(_cover_all(whole, uses), "there are gaps between the slices")
    shapes = [Value(use.operation.results[0]).shape for use in uses]
    op.expect(len(shapes[0]) > 0, "a view is a single number")
    rank, width = len(shapes[0]), shapes[0][-1]
    for axis, wide in ((rank - 1, 1), (rank - 2, width)):
        sizes = [shape[axis] for shape in shapes if len(shape) == rank > axis >= 0]
        same = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes if len(shape) == rank}
        wanted = [-1 if size is None else size for size in shapes[0]]
        parts = [use.part.end - use.part.start for use in uses]
        if len(same) != 1 or wide is None or [(size or 0) * wide for size in sizes] != parts:
            continue
        wanted[axis] = sum(size or 0 for size in sizes)
        op.expect(wanted.count(-1) < 2 and not (-1 in wanted and 0 in wanted), "several sizes are dynamic")
        moved = [Part(axis, use.part.start // wide, use.part.end // wide) for use in uses]
        return apart(op, c, c.reshape(whole, wanted), zip((use.operation for use in uses), moved, strict=True))
    op.reject("the slices are viewed in different ways")


@op_rule("target", "coreai.transpose", name="transposes of slices together", targets=("gpu",), examples=[
    example("2x3x6x8xf32", program=lambda torch, x: (x[:, :, :4].transpose(1, 2), x[:, :, 4:].transpose(1, 2))),
    example("2x5x6x8xf32", program=lambda torch, x: (x[:, :3].permute(2, 0, 1, 3), x[:, 2:].permute(2, 0, 1, 3))),
    example("2x3x6x8xf32", program=lambda torch, x: tuple(y.transpose(1, 2) for y in x.split([4, 2], 2))),
])  # fmt: skip
def transposes_of_slices(op: OpView, c: Coreai) -> Value:
    "transpose(y[:, :, :4]), transpose(y[:, :, 4:]) -> z = transpose(y); z[:, :4], z[:, 4:]"
    order = constant_integers(op.permutation.ssa)
    whole, uses = _alike(op, op.input)
    same = all(constant_integers(use.operation.operands[1]) == order for use in uses)
    if order is None or not same:
        op.reject("another slice is transposed in another order")
    axis = order.index(uses[0].part.axis)
    moved = ((use.operation, use.part.moved(axis, use.part.start)) for use in uses)
    return apart(op, c, c.transpose(whole, list(order)), moved)

"""Ops alike on one value, or on slices of it, are one op and slices of its result.

    transpose(y[:, :, :4]), transpose(y[:, :, 4:])   ->   z = transpose(y);  z[:, :4], z[:, 4:]

`together` declares a kind of such ops: which of them belong together, and the op that computes them all. The kinds here
are slices that are added to, viewed and transposed before the tensor is split, as the product of query, key and value
leaves them; `joined_products.py` has products, and `heads.py` calls of composites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.composite import Composite
from patcomp.ir.constants import constant_integers, is_constant
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import Example, OpView, Rule, example, op_rule
from patterns_catalog.slices import Part, part_of, parts_of

_ADD = "coreai.decomposable.broadcasting_add"


@dataclass(frozen=True)
class Use:
    """One of the ops that are computed together."""

    operation: Operation
    value: Value
    """What it computes on: the whole tensor, or a part that another op cuts."""
    part: Part
    """That part of the tensor; of an op on the whole, the part that its result is of the results side by side."""


Group = Callable[[OpView], tuple[Value, Sequence[Use]]]
"""The tensor that ops compute on, and the ops, `op` among them, in the order of their parts. It rejects an op that is
alone."""
Join = Callable[[OpView, Coreai, Value, Sequence[Use]], tuple[Value, Sequence[Part]]]
"""What is computed together, and the part of it that is the result of each op."""


def together(
    start: str | Composite, name: str, group: Group, examples: Iterable[Example], targets: Sequence[str] = ("gpu",)
) -> Callable[[Join], Rule]:
    """Declare ops that are computed together; the decorated function computes them.

    Args:
        start: the op, or the composite of which they are calls.
        name: the rule's name.
        group: finds the ops that belong together.
        examples: as for `op_rule`.
        targets: the targets to which the rule belongs.
    """

    def declare(join: Join) -> Rule:
        @op_rule("target", start, name=name, targets=targets, examples=examples)
        @wraps(join)
        def rule(op: OpView, c: Coreai) -> Value:
            op.ignore(*op.arguments, because="the group and the join read them from the ops")
            whole, uses = group(op)
            op.cover(*(use.operation for use in uses), *cutters(whole, uses))
            made, parts = join(op, c, whole, uses)
            results = [part.of(c, made) for part in parts]
            for use, result in zip(uses, results, strict=True):
                if use.operation is not op.operation:
                    op.replace(Value(use.operation.results[0]), result)
            return results[[use.operation for use in uses].index(op.operation)]

        return rule

    return declare


def cutters(whole: Value, uses: Iterable[Use]) -> list[Operation]:
    """The ops that cut a tensor into parts."""
    return [use.value.maker for use in uses if use.value != whole and use.value.maker is not None]


# ---- slices that are all of a tensor -----------------------------------------------------------------


def _slices(op: OpView) -> tuple[Value, Sequence[Use]]:
    """The tensor that the op's input is cut from, and the ops of the same name that alone read its parts."""
    x: Value = op.input if part_of(op.input) is not None or op.op_name != _ADD else op.other
    whole, own = part_of(x) or op.reject("the input is not a slice with constant bounds")
    uses = [Use(value.users[0], value, part) for value, part in parts_of(whole, own.axis) if value.is_read_once]
    cut = cutters(whole, uses)
    op.expect(len(uses) > 1 and set(whole.users) == set(cut), "the tensor has other users")
    same = all((use.operation.name, use.operation.parent) == (op.op_name, op.operation.parent) for use in uses)
    op.expect(same and sum(len(each.results) for each in set(cut)) == len(uses), "another slice is read by another op")
    return whole, uses


def _slices_without_gaps(op: OpView) -> tuple[Value, Sequence[Use]]:
    """The same, if the parts follow each other along the last axis, from the first element to the last."""
    whole, uses = _slices(op)
    ends = [use.part.end for use in uses]
    covers = [0, *ends] == [*(use.part.start for use in uses), whole.shape[-1]]
    op.expect(uses[0].part.axis == whole.rank - 1 and covers, "there are gaps between the slices")
    return whole, uses


@together(_ADD, "biases of slices together", _slices_without_gaps, [
    example("2x3x6xf32", program=lambda torch, x: (
        x[..., :4] + torch.linspace(0, 1, 4), x[..., 4:] + torch.linspace(1, 2, 2))),
])  # fmt: skip
def biases_of_slices(op: OpView, c: Coreai, whole: Value, uses: Sequence[Use]) -> tuple[Value, Sequence[Part]]:
    "y[..., :4] + a, y[..., 4:] + b -> z = y + [a, b]; z[..., :4], z[..., 4:]"
    pairs = [(use.value, *map(Value, use.operation.operands)) for use in uses]
    biases = [right if left == value else left for value, left, right in pairs]
    known = all(
        is_constant(bias.ssa) and bias.shape == pair[0].shape[-1:] for bias, pair in zip(biases, pairs, strict=True)
    )
    op.expect(known, "a slice is not added to a constant of its width")
    return c.broadcasting_add(whole, c.concat(0, [*map(copied, biases)])), [use.part for use in uses]


def copied(constant: Value) -> Value:
    """A constant again, in front of the op that is rewritten."""
    assert constant.maker is not None
    return Value(Builder.current().insert(constant.maker.clone()).results[0])


@together("coreai.reshape", "views of slices together", _slices_without_gaps, [
    example("2x3x12xf32", program=lambda torch, x: (x[..., :8].view(2, 3, 2, 4), x[..., 8:].view(2, 3, 1, 4))),
    example("6x12xf32", program=lambda torch, x: tuple(y.reshape(2, 3, -1) for y in x.split([4, 8], -1))),
])  # fmt: skip
def views_of_slices(op: OpView, c: Coreai, whole: Value, uses: Sequence[Use]) -> tuple[Value, Sequence[Part]]:
    """view(y[..., :8]), view(y[..., 8:]) -> z = view(y); z[..., :2, :], z[..., 2:, :]

    The leading dimensions change, or the last one is cut into heads of one size.
    """
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
        return c.reshape(whole, wanted), [Part(axis, use.part.start // wide, use.part.end // wide) for use in uses]
    op.reject("the slices are viewed in different ways")


@together("coreai.transpose", "transposes of slices together", _slices, [
    example("2x3x6x8xf32", program=lambda torch, x: (x[:, :, :4].transpose(1, 2), x[:, :, 4:].transpose(1, 2))),
    example("2x5x6x8xf32", program=lambda torch, x: (x[:, :3].permute(2, 0, 1, 3), x[:, 2:].permute(2, 0, 1, 3))),
    example("2x3x6x8xf32", program=lambda torch, x: tuple(y.transpose(1, 2) for y in x.split([4, 2], 2))),
])  # fmt: skip
def transposes_of_slices(op: OpView, c: Coreai, whole: Value, uses: Sequence[Use]) -> tuple[Value, Sequence[Part]]:
    "transpose(y[:, :, :4]), transpose(y[:, :, 4:]) -> z = transpose(y); z[:, :4], z[:, 4:]"
    orders = {constant_integers(use.operation.operands[1]) for use in uses}
    order = orders.pop()
    if order is None or orders:
        op.reject("another slice is transposed in another order")
    axis = order.index(uses[0].part.axis)
    return c.transpose(whole, list(order)), [use.part.moved(axis, use.part.start) for use in uses]

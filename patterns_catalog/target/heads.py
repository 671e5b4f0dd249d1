"""Heads of queries and keys that lie side by side are transposed, normed and turned together.

The product of query, key and value leaves them in one tensor, of which they are slices or parts of a split. What is
done to each row alone, such as a norm over the width of a head, can be done before they are cut apart:

    norm(y[:, 0:4]), norm(y[:, 4:6])   ->   z = norm(y[:, 0:6]);  z[:, 0:4], z[:, 4:6]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.cleanup import is_removable
from patcomp.ir.composite import Composite
from patcomp.ir.constants import constant_integers
from patcomp.ir.namespaces import composite_spec, coreai_namespace
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.composites.normalization import rms_norm
from patterns_catalog.composites.rope import rope
from patterns_catalog.sizes import END


def _norm(torch: Any, x: Any, last: float = 2.0) -> Any:
    width = x.shape[-1]
    return torch.nn.functional.rms_norm(x, [width], torch.linspace(1, last, width), 1e-6)


def _turned(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * torch.cat([cos, cos], -1) + turned * torch.cat([sin, sin], -1)


# ---- the slices of one tensor -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Slice:
    """Consecutive elements of one axis of a tensor."""

    value: Value
    whole: Value
    axis: int
    start: int
    end: int

    @property
    def users(self) -> list[Operation]:
        """The ops that use it; one that uses it twice is there twice."""
        return [use.operation for use in self.value.ssa.uses]


def _slice(value: Value) -> _Slice | None:
    """What a value is of the tensor that it is cut from, along one axis of a known size; None if it is not so cut."""
    op = value.ssa.owner
    if not isinstance(op, Operation) or op.name not in ("coreai.slice", "coreai.split"):
        return None
    whole = Value(op.operands[0])
    if op.name == "coreai.split":
        (axis,) = constant_integers(op.operands[2]) or (None,)
        sizes = [] if axis is None else [Value(part).shape[axis] for part in op.results]
        if axis is None or None in sizes:
            return None
        index = op.results.index(value.ssa)
        start = sum(size for size in sizes[:index] if size is not None)
        return _Slice(value, whole, axis % whole.rank, start, start + (sizes[index] or 0))
    starts, ends, steps = (constant_integers(operand) for operand in op.operands[1:])
    if starts is None or ends is None or steps is None or any(step != 1 for step in steps):
        return None
    cut = [axis for axis in range(whole.rank) if starts[axis] != 0 or ends[axis] not in (END, whole.shape[axis])]
    if len(cut) != 1:
        return None
    (axis,) = cut
    size = whole.shape[axis]
    if size is None or not 0 <= starts[axis] < ends[axis]:
        return None
    return _Slice(value, whole, axis, starts[axis], min(ends[axis], size))


def _slices(whole: Value, axis: int) -> list[_Slice]:
    """What is cut from a tensor along one axis, in the order of its elements."""
    users = dict.fromkeys(use.operation for use in whole.ssa.uses if use.index == 0)
    found = (_slice(Value(result)) for user in users for result in user.results)
    alike = (each for each in found if each and each.whole == whole and each.axis == axis)
    return sorted(alike, key=lambda each: (each.start, each.end))


def _makers(parts: Iterable[_Slice]) -> list[Operation]:
    """The ops that cut a tensor into parts."""
    owners = dict.fromkeys(part.value.ssa.owner for part in parts)
    return [owner for owner in owners if isinstance(owner, Operation)]


def _cut(c: Coreai, whole: Value, axis: int, start: int, end: int) -> Value:
    """Consecutive elements of one axis; the tensor itself if these are all."""
    if (start, end) == (0, whole.shape[axis]):
        return whole
    starts, ends = [0] * whole.rank, [END] * whole.rank
    starts[axis], ends[axis] = start, end
    return c.slice_(whole, starts, ends, [1] * whole.rank)


# ---- transposes -------------------------------------------------------------------------------------


@op_rule("target", "coreai.transpose", name="transpose before rms_norm", targets=("gpu",), examples=[
    example("2x3x4x8xf32", program=lambda torch, x: _norm(torch, x).transpose(1, 2)),
])  # fmt: skip
def transpose_before_norm(op: OpView, c: Coreai) -> Value:
    "transpose(rms_norm(x)) -> rms_norm(transpose(x)) if the normed axis stays the last"
    norm, order = op.input.ssa.owner, constant_integers(op.permutation.ssa)
    op.expect(isinstance(norm, Operation) and rms_norm.made(norm), "it transposes no rms_norm")
    op.expect(len(list(op.input.ssa.uses)) == 1, "the rms_norm has other users")
    given = coreai_namespace.arguments_of(norm, composite_spec(rms_norm))
    last = op.input.rank - 1
    if order is None or not order[-1] == last == given["axes"] % op.input.rank:
        op.reject("the normed axis moves")
    op.expect(given["scale"].rank == 1, "the scale has more than one axis")
    op.cover(norm)
    made = rms_norm(c.transpose(given["input"], list(order)), given["scale"], axes=given["axes"], eps=given["eps"])
    assert isinstance(made, Value)
    return made


@op_rule("target", "coreai.transpose", name="transposes of slices together", targets=("gpu",), examples=[
    example("2x3x6x8xf32", program=lambda torch, x: (x[:, :, :4].transpose(1, 2), x[:, :, 4:].transpose(1, 2))),
    example("2x5x6x8xf32", program=lambda torch, x: (x[:, :3].permute(2, 0, 1, 3), x[:, 2:].permute(2, 0, 1, 3))),
    example("2x3x6x8xf32", program=lambda torch, x: tuple(y.transpose(1, 2) for y in x.split([4, 2], 2))),
])  # fmt: skip
def transposes_of_slices(op: OpView, c: Coreai) -> Value:
    "transpose(y[:, :, :4]), transpose(y[:, :, 4:]) -> z = transpose(y); z[:, :4], z[:, 4:]"
    own, order = _slice(op.input), constant_integers(op.permutation.ssa)
    if own is None or order is None:
        op.reject("it transposes no slice of known places")
    parts = _slices(own.whole, own.axis)
    op.expect(len(parts) > 1 and len(_makers(parts)) == len(list(own.whole.ssa.uses)), "the tensor has other users")
    transposes = []
    for part in parts:
        users = part.users
        alike = len(users) == 1 and users[0].name == "coreai.transpose" and users[0].parent is op.operation.parent
        op.expect(alike and constant_integers(users[0].operands[1]) == order, "another slice is not transposed so")
        transposes += users
    op.cover(*transposes, *_makers(parts))
    whole, axis = c.transpose(own.whole, list(order)), order.index(own.axis)
    for part, transpose in zip(parts, transposes, strict=True):
        if transpose is not op.operation:
            op.replace(Value(transpose.results[0]), _cut(c, whole, axis, part.start, part.end))
    return _cut(c, whole, axis, own.start, own.end)


# ---- composites -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A call of a composite whose first input is a slice."""

    operation: Operation
    part: _Slice
    given: dict[str, Any]
    """Its arguments by name."""


def _calls(op: OpView, composite: Composite, alike: Sequence[str]) -> list[_Call]:
    """The calls of a composite on consecutive heads of the tensor that an op has a slice of, in their order.

    The axis before the last two has the heads. The calls are equal in the arguments that are named.
    """
    own = _slice(op.input)
    if own is None or own.axis != own.whole.rank - 3:
        op.reject("its input is no slice along the axis of heads")
    mine = {name: op[name] for name in alike}
    found: list[_Call] = []
    for part in _slices(own.whole, own.axis):
        for use in part.value.ssa.uses:
            user = use.operation
            if user.parent is not op.operation.parent or use.index != 0 or not composite.made(user):
                continue
            given = dict(coreai_namespace.arguments_of(user, composite_spec(composite)))
            if all(_are_same(given[name], value) for name, value in mine.items()):
                found.append(_Call(user, part, given))
    starts, ends = [each.part.start for each in found], [each.part.end for each in found]
    op.expect(len(found) > 1 and starts[1:] == ends[:-1], "there are no such calls on the heads beside them")
    places = {each: place for place, each in enumerate(op.operation.parent.ops)}  # type: ignore[union-attr]
    latest = max(found, key=lambda call: places[call.operation])
    op.expect(latest.operation is op.operation, "the last of the calls has all their inputs")
    return found


def _are_same(left: Any, right: Any, depth: int = 3) -> bool:
    """Whether two arguments are equal, or computed from the same values by equal ops, at most so many in a row."""
    if left == right or not depth or not isinstance(left, Value) or not isinstance(right, Value):
        return bool(left == right)
    one, other = left.ssa.owner, right.ssa.owner
    if not isinstance(one, Operation) or not isinstance(other, Operation) or not is_removable(one):
        return False
    alike = (one.name, one.properties, one.result_types) == (other.name, other.properties, other.result_types)
    operands = zip(one.operands, other.operands, strict=False)
    return (
        alike and len(one.results) == 1 and len(one.operands) == len(other.operands) and not one.regions
        and all(_are_same(Value(a), Value(b), depth - 1) for a, b in operands)
    )  # fmt: skip


def _together(op: OpView, c: Coreai, calls: Sequence[_Call]) -> Value:
    """The heads that calls are on, in one tensor. The calls are declared as replaced."""
    op.cover(*(call.operation for call in calls), *_makers(call.part for call in calls))
    first, last = calls[0].part, calls[-1].part
    return _cut(c, first.whole, first.axis, first.start, last.end)


def _apart(op: OpView, c: Coreai, calls: Sequence[_Call], made: Value) -> Value:
    """The result of the op, cut from that of all calls, whose results are replaced."""
    own = None
    for call in calls:
        start = call.part.start - calls[0].part.start
        part = _cut(c, made, call.part.axis, start, start + call.part.end - call.part.start)
        if call.operation is op.operation:
            own = part
        else:
            op.replace(Value(call.operation.results[0]), part)
    assert own is not None
    return own


@op_rule("target", rms_norm, name="rms_norm of query and key together", targets=("gpu",), examples=[
    example("2x6x3x8xf32", program=lambda torch, x: (_norm(torch, x[:, :4]), _norm(torch, x[:, 4:], 3.0))),
    example("1x8x3x8xf32", program=lambda torch, x: (_norm(torch, x[:, 1:3]), _norm(torch, x[:, 3:6]), x[:, 6:])),
    example("1x8x3x8xf32", program=lambda torch, x: (
        lambda q, k, v: (_norm(torch, q), _norm(torch, k, 3.0), v))(*x.split([4, 2, 2], 1))),
])  # fmt: skip
def norm_together(op: OpView, c: Coreai) -> Value:
    "rms_norm(y[:, :4], a), rms_norm(y[:, 4:6], b) -> z = rms_norm(y[:, :6], [a, a, a, a, b, b]); z[:, :4], z[:, 4:]"
    calls = _calls(op, rms_norm, ["axes", "eps"])
    op.expect(op.axes % op.input.rank == op.input.rank - 1, "the norm is over another axis")
    scales = [call.given["scale"] for call in calls]
    op.expect(all(scale.rank == 1 and scale.type == op.scale.type for scale in scales), "the scales have other types")
    x, scale = _together(op, c, calls), scales[0]
    if any(each != scale for each in scales):
        width = scale.static_shape[0]
        scale = c.concat(0, [
            c.broadcast_to(c.reshape(call.given["scale"], [1, 1, width]), [call.part.end - call.part.start, 1, width])
            for call in calls
        ])  # fmt: skip
    return _apart(op, c, calls, rms_norm(x, scale, axes=op.axes, eps=op.eps))


@op_rule("target", rope, name="rope of query and key together", targets=("gpu",), examples=[
    example("1x6x5x8xf32", "1x1x5x4xf32", "1x1x5x4xf32", program=lambda torch, x, cos, sin: (
        _turned(torch, x[:, :4], cos, sin), _turned(torch, x[:, 4:], cos, sin))),
    example("2x8x5x8xf32", "5x4xf32", "5x4xf32", program=lambda torch, x, cos, sin: (
        _turned(torch, x[:, :4], cos, sin), _turned(torch, x[:, 4:6], cos, sin), x[:, 6:])),
    example("2x6x5x8xf32", "5x4xf32", "5x4xf32", program=lambda torch, x, cos, sin: (
        lambda q, k, v: (_turned(torch, q, cos, sin), _turned(torch, k, cos, sin), v))(*x.chunk(3, 1))),
])  # fmt: skip
def rope_together(op: OpView, c: Coreai) -> Value:
    """rope(y[:, :4]), rope(y[:, 4:6]) -> z = rope(y[:, :6]); z[:, :4], z[:, 4:]

    As with the product of query, key and value, calls that turn a part of each head stay apart if there are fewer
    keys.
    """
    options = {name: op[name] for name in ("scale", "base", "dims", "interleaved")}
    tables = [op[name] for name in ("cos", "sin", "position_ids", "freqs")]
    calls = _calls(op, rope, ["cos", "sin", "position_ids", "freqs", *options])
    one = all(x is None or x.rank < 3 or x.shape[-3] == 1 for x in tables)
    op.expect(one, "each head has a table of its own")
    heads = {call.part.end - call.part.start for call in calls}
    op.expect(options["dims"] is None or len(heads) == 1, "a part of each head is turned, and keys have fewer heads")
    return _apart(op, c, calls, rope(_together(op, c, calls), *tables, **options))

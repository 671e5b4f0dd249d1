"""Heads of queries and keys that lie side by side are normed and turned together.

An op on each row alone, such as a norm over the width of a head, can run before the heads are split:

    norm(y[:, 0:4]), norm(y[:, 4:6])   ->   z = norm(y[:, 0:6]);  z[:, 0:4], z[:, 4:6]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from patcomp.authoring import Coreai, CoreaiSource, CoreaiTarget, coreai
from patcomp.ir.cleanup import is_removable
from patcomp.ir.composite import Composite
from patcomp.ir.namespaces import composite_spec, coreai_namespace
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation, in_order
from patcomp.patterns import Attr, Capture, Const, OpView, Rewrite, build, example, rule
from patterns_catalog.composites.norms import rms_norm
from patterns_catalog.composites.rope import rope
from patterns_catalog.slices import Part, part_of, parts_of
from patterns_catalog.target.parts_together import Group, Use, together


def _norm(torch: Any, x: Any, last: float = 2.0) -> Any:
    width = x.shape[-1]
    return torch.nn.functional.rms_norm(x, [width], torch.linspace(1, last, width), 1e-6)


def _turned(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * torch.cat([cos, cos], -1) + turned * torch.cat([sin, sin], -1)


def _norm_of_transposed(x: Value, scale: Value, order: np.ndarray, axis: int, eps: float) -> Value:
    made = rms_norm(coreai.transpose(x, order.tolist()), scale, axes=axis, eps=eps)
    assert isinstance(made, Value)
    return made


@rule(
    stage="target", source=coreai_namespace, into=coreai_namespace, name="transpose before rms_norm", targets=("gpu",),
    examples=[example("2x3x4x8xf32", program=lambda torch, x: _norm(torch, x).transpose(1, 2))],
)  # fmt: skip
def transpose_before_norm(
    a: CoreaiSource, c: CoreaiTarget, x: Capture, scale: Capture, axis: Attr, eps: Attr, order: Const
) -> Rewrite:
    "transpose(rms_norm(x)) -> rms_norm(transpose(x)) if the normed axis stays the last"
    last = x.rank - 1
    return Rewrite(
        a.transpose(a.op("composite.rms_norm", x, scale, axes=axis, eps=eps), order),
        to=build(_norm_of_transposed, x, scale, order.values, axis, eps),
        where=[order.values[-1] == last, axis % x.rank == last, scale.rank == 1],
    )


def _calls(composite: Composite, alike: Sequence[str]) -> Group:
    """Calls of a composite on consecutive heads, that are equal in the arguments that are named.

    The axis before the last two has the heads.
    """

    def group(op: OpView) -> tuple[Value, Sequence[Use]]:
        whole, own = part_of(op.input) or op.reject("the input is not a slice")
        op.expect(own.axis == whole.rank - 3, "the input is not a slice along the axis of heads")
        mine, block = {name: op[name] for name in alike}, op.operation.parent
        calls = [
            Use(use.operation, value, part)
            for value, part in parts_of(whole, own.axis)
            for use in value.ssa.uses
            if use.operation.parent is block and use.index == 0 and composite.made(use.operation)
            if _have(_arguments(composite, use.operation), mine)
        ]
        consecutive = all(one.part.end == other.part.start for one, other in pairwise(calls))
        op.expect(len(calls) > 1 and consecutive, "no equal call reads the heads next to these")
        last = in_order(call.operation for call in calls)[-1]
        op.expect(last is op.operation, "the rule starts from the last of the calls, which comes after all inputs")
        return whole, calls

    return group


def _heads(c: Coreai, whole: Value, calls: Sequence[Use]) -> tuple[Value, list[Part]]:
    """All heads that calls take, and the part of them that each call takes."""
    axis, first = calls[0].part.axis, calls[0].part.start
    heads = Part(axis, first, calls[-1].part.end).of(c, whole)
    return heads, [call.part.moved(axis, call.part.start - first) for call in calls]


def _arguments(composite: Composite, call: Operation) -> dict[str, Any]:
    """The arguments of a call of a composite by name."""
    return dict(coreai_namespace.arguments_of(call, composite_spec(composite)))


def _have(given: Any, wanted: dict[str, Any]) -> bool:
    """Whether a call has arguments equal to the wanted ones."""
    return all(_are_same(given[name], value) for name, value in wanted.items())


def _are_same(left: Any, right: Any, depth: int = 3) -> bool:
    """Whether two arguments are equal, or computed from the same values by equal ops, at most so many in a row."""
    if left == right or not depth or not isinstance(left, Value) or not isinstance(right, Value):
        return bool(left == right)
    one, other = left.maker, right.maker
    if one is None or other is None or not is_removable(one):
        return False
    alike = (one.name, one.properties, one.result_types) == (other.name, other.properties, other.result_types)
    operands = zip(one.operands, other.operands, strict=False)
    return (
        alike and len(one.results) == 1 and len(one.operands) == len(other.operands) and not one.regions
        and all(_are_same(Value(a), Value(b), depth - 1) for a, b in operands)
    )  # fmt: skip


@together(rms_norm, "rms_norm of query and key together", _calls(rms_norm, ["axes", "eps"]), [
    example("2x6x3x8xf32", program=lambda torch, x: (_norm(torch, x[:, :4]), _norm(torch, x[:, 4:], 3.0))),
    example("1x8x3x8xf32", program=lambda torch, x: (_norm(torch, x[:, 1:3]), _norm(torch, x[:, 3:6]), x[:, 6:])),
    example("1x8x3x8xf32", program=lambda torch, x: (
        lambda q, k, v: (_norm(torch, q), _norm(torch, k, 3.0), v))(*x.split([4, 2, 2], 1))),
])  # fmt: skip
def norm_together(op: OpView, c: Coreai, whole: Value, calls: Sequence[Use]) -> tuple[Value, Sequence[Part]]:
    "rms_norm(y[:, :4], a), rms_norm(y[:, 4:6], b) -> z = rms_norm(y[:, :6], [a, a, a, a, b, b]); z[:, :4], z[:, 4:]"
    op.expect(op.axes % op.input.rank == op.input.rank - 1, "the norm is not over the last axis")
    x, parts = _heads(c, whole, calls)
    scales = [_arguments(rms_norm, call.operation)["scale"] for call in calls]
    vectors = all(scale.rank == 1 and scale.type == op.scale.type for scale in scales)
    op.expect(vectors, "the scales are not vectors of one type")
    scale, heads = scales[0], [part.end - part.start for part in parts]
    if any(each != scale for each in scales):
        rows = [c.reshape(each, [1, 1, *scale.static_shape]) for each in scales]
        wide = [c.broadcast_to(row, [count, *row.static_shape[1:]]) for row, count in zip(rows, heads, strict=True)]
        scale = c.concat(0, wide)
    return rms_norm(x, scale, axes=op.axes, eps=op.eps), parts


_TABLES, _OPTIONS = ("cos", "sin", "position_ids", "freqs"), ("scale", "base", "dims", "interleaved")


@together(rope, "rope of query and key together", _calls(rope, _TABLES + _OPTIONS), [
    example("1x6x5x8xf32", "1x1x5x4xf32", "1x1x5x4xf32", program=lambda torch, x, cos, sin: (
        _turned(torch, x[:, :4], cos, sin), _turned(torch, x[:, 4:], cos, sin))),
    example("2x8x5x8xf32", "5x4xf32", "5x4xf32", program=lambda torch, x, cos, sin: (
        _turned(torch, x[:, :4], cos, sin), _turned(torch, x[:, 4:6], cos, sin), x[:, 6:])),
    example("2x6x5x8xf32", "5x4xf32", "5x4xf32", program=lambda torch, x, cos, sin: (
        lambda q, k, v: (_turned(torch, q, cos, sin), _turned(torch, k, cos, sin), v))(*x.chunk(3, 1))),
])  # fmt: skip
def rope_together(op: OpView, c: Coreai, whole: Value, calls: Sequence[Use]) -> tuple[Value, Sequence[Part]]:
    """rope(y[:, :4]), rope(y[:, 4:6]) -> z = rope(y[:, :6]); z[:, :4], z[:, 4:]

    As with the product of query, key and value, calls that turn a part of each head stay apart if there are fewer
    keys.
    """
    tables = [op[name] for name in _TABLES]
    one = all(table is None or table.rank < 3 or table.shape[-3] == 1 for table in tables)
    op.expect(one, "the tables differ between heads")
    x, parts = _heads(c, whole, calls)
    op.expect(
        op.dims is None or len({part.end - part.start for part in parts}) == 1,
        "rope rotates a part of each head, and keys have fewer heads than queries",
    )
    return rope(x, *tables, **{name: op[name] for name in _OPTIONS}), parts

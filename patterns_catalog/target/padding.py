"""Padding that the Neural Engine computes."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.constants import constant_integers
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule

_WINDOWS = frozenset(
    f"coreai.{name}" for name in ("conv2d", "conv3d", "max_pool_2d", "max_pool_3d", "sum_pool_2d", "sum_pool_3d")
)


@op_rule("target", "coreai.pad", name="pad as concat", targets=("neural_engine",), examples=[
    example("2x3x4xf32", program=lambda torch, x: torch.nn.functional.pad(x, (1, 2), value=0.5)),
    example("1x2x3x4xf32", program=lambda torch, x: torch.nn.functional.pad(x, (1, 0, 0, 2)) * 2),
])  # fmt: skip
def pad_as_concat(op: OpView, c: Coreai) -> Value:
    "a constant around a tensor -> the tensor between constants; not before windows, which read the padding themselves"
    x, amounts = op.input, constant_integers(op.padding.ssa)
    mode = op["padding_mode"]
    op.expect(mode is None or mode.data == "constant", "the padding repeats the tensor's own values")
    op.expect(amounts is not None and x.is_static, "the tensor or its padding has dynamic sizes")
    assert amounts is not None
    users = [use.operation.name for use in op.operation.results[0].uses]
    op.expect(not _WINDOWS.issuperset(users), "only convolutions or pools read the result")
    for axis in range(x.rank):
        before, after = amounts[2 * axis : 2 * axis + 2]
        parts = [_filled(c, x, op.padding_value, axis, before), x, _filled(c, x, op.padding_value, axis, after)]
        given = [part for part in parts if part is not None]
        x = x if len(given) == 1 else c.concat(axis, given)
    return x


def _filled(c: Coreai, x: Value, value: Value, axis: int, size: int) -> Value | None:
    """A tensor of one value that fits a tensor but for one axis; None if it has no elements."""
    sizes = list(x.static_shape)
    sizes[axis] = size
    return c.broadcast_to(value, sizes) if size else None

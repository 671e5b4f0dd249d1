"""Writes into a slice that are spelled as a choice by position, or as a join of old and new parts."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Aten, coreai
from patcomp.ir.types import is_integer, tensor
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.views import arguments_of, without_views


def _position(mask: Value, x: Value) -> tuple[int, Value] | None:
    """The axis of x, counted from the end, along which a mask is true at one position only, and this position.

    It is `arange(size) == position`, with size 1 in all other dimensions. A mask of one element is along any axis of
    size 1.
    """
    axes = range(-mask.rank, 0)
    long = [axis for axis in axes if mask.shape[axis] != 1] or [axis for axis in axes if x.shape[axis] == 1][:1]
    compared = arguments_of(without_views(mask), "eq.Tensor")
    if len(long) != 1 or compared is None:
        return None
    left, right = compared["self"], compared["other"]
    for numbers, position in ((left, right), (right, left)):
        counted = arguments_of(without_views(numbers), "arange.start_step")
        if counted is None or any(size != 1 for size in position.shape) or not is_integer(position.element_type):
            continue
        if (counted["start"], counted["end"], counted["step"]) == (0, mask.shape[long[0]], 1):
            return long[0], position
    return None


def _select_scatter(torch: Any, x: Any, row: Any) -> Any:
    return torch.where(torch.arange(5).view(1, -1, 1) == 3, row.unsqueeze(1).expand(2, 5, 3), x)


def _one_hot(torch: Any, x: Any, row: Any, position: Any) -> Any:
    return torch.where((torch.arange(5) == position).unsqueeze(1), row, x)


@op_rule("normalize", "aten.where.self", name="normalize one-hot write", size=2, examples=[
    example("2x5x3xf32", "2x3xf32", program=_select_scatter),
    example("2x5x3xf32", "2x1x3xf32", "si64[-2,6]", program=_one_hot),
    example("5x3xf32", "3xf32", "1xsi64[0,4]", program=_one_hot),
    example("2x1x3xf32", "2x1x3xf32", program=lambda torch, x, y: torch.where(torch.arange(1).view(1, 1) == 0, y, x)),
])  # fmt: skip
def one_hot_write(op: OpView, aten: Aten) -> Value | None:
    """where(arange(n) == i, row, x) is slice_scatter(x, row, i, i + 1)

    PyTorch decomposes select_scatter in this way, and some static caches write in this way. A position outside of the
    tensor changes nothing: for positions that only the run knows, the old row is written back.
    """
    mask, row, x = op.condition, op["self"], op.other
    found = None if mask.rank > x.rank else _position(mask, x)
    if found is None or x.type != op.result:
        return None
    axis, position = found
    if (wide := arguments_of(row, "expand")) is not None:
        row = wide["self"]
    if x.shape[axis] is None or (row.rank >= -axis and row.shape[axis] != 1) or row.dtype != x.dtype:
        return None
    shape = list(x.shape)
    shape[axis] = 1
    part, dim, number = tensor(shape, x.element_type), x.rank + axis, position.constant
    if number is not None:
        index = int(number.reshape(-1)[0])
        if not 0 <= index < mask.shape[axis]:
            return x
        if row.type != part:
            if None in shape:
                return None
            row = aten.expand(part, row, size=shape)
        return _updated(aten, x, row, dim, index, index + 1)
    scalar = tensor((), position.element_type)
    one = coreai.constant(1, position.element_type)
    if position.rank:
        position = aten.view(scalar, position, size=[])
    start = aten.clamp(scalar, position, min=0, max=mask.shape[axis] - 1)
    end = aten.add.Tensor(scalar, start, one, alpha=1)
    old = aten.slice.Tensor(part, x, dim=dim, start=start, end=end, step=1)
    inside = aten.eq.Tensor(tensor((), "i1"), position, start)
    new = aten.where.self(part, inside, row, other=old)
    return _updated(aten, x, new, dim, start, end)


def _updated(aten: Aten, x: Value, part: Value, dim: int, start: Any, end: Any) -> Value:
    made: Value = aten.slice_scatter(x.type, x, src=part, dim=dim, start=start, end=end, step=1)
    return made


def _joined(torch: Any, x: Any, new: Any) -> Any:
    return torch.cat([x[:, :1], new, x[:, 3:]], 1)


@op_rule("normalize", "aten.cat", name="normalize write by cat", size=3, examples=[
    example("2x5x3xf32", "2x2x3xf32", program=_joined),
])  # fmt: skip
def write_by_cat(op: OpView, aten: Aten) -> Value | None:
    """cat([x[:i], new, x[j:]]) is slice_scatter(x, new, i, j), where the result is as long as x

    A join of two parts stays: models join half a head with the rest in this way, and that is not a write.
    """
    if len(op.tensors) != 3 or not op.result.rank:
        return None
    before, new, after = op.tensors
    dim = op.dim % op.result.rank
    head, tail = arguments_of(before, "slice.Tensor"), arguments_of(after, "slice.Tensor")
    if head is None or tail is None or head["self"] != tail["self"]:
        return None
    x: Value = head["self"]
    size = x.shape[dim]
    if x.type != op.result or size is None or new.dtype != x.dtype or new.rank != x.rank:
        return None
    if any(part["dim"] % x.rank != dim or part["step"] != 1 for part in (head, tail)) or head["start"] not in (0, None):
        return None
    if tail["end"] is not None and not (isinstance(tail["end"], int) and tail["end"] >= size):
        return None
    # as long as x: what is new has exactly the size of what is left out between both slices
    return _updated(aten, x, new, dim, head["end"], tail["start"])

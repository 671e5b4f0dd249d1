"""Derive ranges of numbers from their use as indices or sizes: a program that runs has only valid ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from patcomp.ir.aten import AtenOp
from patcomp.ir.constants import constant_values
from patcomp.ir.region import RegionOp
from patcomp.ir.traits import Whole
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block, Operation, SSAValue
from patcomp.narrowing.ranges import ANY_NUMBER, LONGEST, Range

INDEX_POSITIONS = frozenset(
    {
        "index", "indices", "offsets", "size", "sizes", "output_size", "repeats", "split_size", "split_sizes", "start",
        "end", "step", "length", "k", "pad", "padding", "row", "col", "offset", "stride", "storage_offset",
    }
)  # fmt: skip
"""The arguments that are indices or sizes, by their names in PyTorch's schemas."""

_SIZES = ("size", "repeats", "split_sizes")


def holds_value(argument: Any, value: SSAValue) -> bool:
    """Whether an argument is a value, or has it in a list."""
    if isinstance(argument, Value):
        return argument.ssa is value
    return isinstance(argument, list) and any(holds_value(item, value) for item in argument)


def bound_by_use(value: SSAValue) -> Range:
    """The range of an integer value whose elements, perhaps plus a constant, are all used as indices or sizes."""
    bound = ANY_NUMBER
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    pending: list[tuple[SSAValue, int, Block | None]] = [(same, 0, block) for same in _equal_casts(value)]
    while pending:
        current, offset, block = pending.pop()
        for use in current.uses:
            op = use.operation
            if op.parent is not block:  # a branch that may not be taken
                continue
            if isinstance(op, RegionOp) and op.regions:
                pending.append((op.regions[0].block.args[use.index], offset, op.regions[0].block))
            elif (op.has_trait(Whole) and use.index == 0) or (
                op.name == "aten._to_copy" and Value(op.results[0]).dtype == "si64"
            ):
                pending.append((op.results[0], offset, block))
            elif (added := _added(op, current)) is not None:
                pending.append((op.results[0], offset + added, block))
            elif (valid := _valid(op, current)) is not None:
                bound = bound.clipped(Range(valid.low - offset, valid.high - offset))
                bound = replace(bound, size=bound.size or (valid.size and not offset))
    return bound


def _equal_casts(value: SSAValue) -> list[SSAValue]:
    """A value and its equals: models write `x.long()` once for an embedding and once for a mask."""
    op = value.owner
    if not isinstance(op, Operation) or op.name != "aten._to_copy":
        return [value]
    casts = [use.operation for use in op.operands[0].uses if use.operation.name == op.name]
    return [cast.results[0] for cast in casts if cast.parent is op.parent and cast.results[0].type == value.type]


def _added(op: Operation, value: SSAValue) -> int | None:
    """The constant that an op adds to every element of a value; None for another op."""
    if op.name not in ("aten.add.Tensor", "aten.sub.Tensor") or op.operands[0] is not value or len(op.operands) != 2:
        return None
    constant = constant_values(op.operands[1])
    if constant is None or constant.size != 1 or constant.dtype.kind not in "iu":
        return None
    alpha = op.arguments_by_name()["alpha"]  # type: ignore[attr-defined]
    if not isinstance(alpha, int):
        return None
    return int(constant.reshape(-1)[0]) * alpha * (1 if op.name == "aten.add.Tensor" else -1)


def _valid(op: Operation, value: SSAValue) -> Range | None:
    """The valid range of a value that is an index or size argument of an op; None for other arguments."""
    if not isinstance(op, AtenOp):
        return None
    given = op.arguments_by_name()
    if any(holds_value(given.get(name), value) for name in _SIZES):
        return Range(0, LONGEST, size=True)
    kind = op.FACTS.index
    if kind == "rows" and holds_value(given["indices"], value):
        return _below(given["weight"], 0)
    if kind == "along_dim" and holds_value(given["index"], value):
        return _below(given["self"], given["dim"])
    if kind == "by_axis":
        masks = any(isinstance(index, Value) and index.dtype == "i1" for index in given["indices"])
        for axis, index in enumerate(given["indices"]):
            if holds_value(index, value) and not masks:  # a mask may stand for several axes
                positions = _below(given["self"], axis)
                return Range(-1 - positions.high, positions.high)
    return None


def _below(x: Value, dim: int) -> Range:
    size = x.shape[dim % x.rank] if x.rank else 1
    return Range(0, (LONGEST if size is None else max(size, 1)) - 1)

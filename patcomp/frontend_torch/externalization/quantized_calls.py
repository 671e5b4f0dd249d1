"""Move a quantizer's ops out of marked calls.

Quantizers do not know the markers. They insert `quantize` and `dequantize` directly after the op that makes a value,
even inside a call, and give every user its own `dequantize`, so a call and its marker read different values.
Without this module, a composite would have inputs and outputs that its kernel does not expect.
"""

from __future__ import annotations

from collections.abc import Collection

from patcomp.frontend_torch.externalization.marked_calls import between, read_from_outside
from patcomp.ir.region import RegionBeginOp, RegionEndOp
from patcomp.ir.xdsl import Operation, SSAValue, maker_of

_NAMESPACE = "quantized_decomposed."


def dequantization(value: SSAValue) -> Operation | None:
    """The op that dequantizes a value; None if none made it."""
    maker = maker_of(value)
    return maker if maker is not None and maker.name.startswith(f"{_NAMESPACE}dequantize") else None


def settle(begin: RegionBeginOp, end: RegionEndOp) -> None:
    """Make the values that a call's body reads its arguments, and its unquantized results its results."""
    if not any(op.name.startswith(_NAMESPACE) for op in between(begin, end)) and not any(
        map(dequantization, read_from_outside(begin, end))
    ):
        return
    _read_one_of_equals(begin, end)
    for index, output in enumerate(end.outputs):
        if (computed := _computed(output, end, set(between(begin, end)))) is not None:
            end.operands[index] = computed
    _move_behind(begin, end)
    read = read_from_outside(begin, end)
    for index, given in enumerate(begin.inputs):
        if given not in read:
            instead = [value for value in read if value not in begin.inputs and _rounded(value) is given]
            if len(instead) == 1:
                begin.operands[index] = instead[0]


def _read_one_of_equals(begin: RegionBeginOp, end: RegionEndOp) -> None:
    """Merge identical quantizations, keeping the one that the call was marked with."""
    block = end.parent
    assert block is not None
    inside = {*between(begin, end), end}
    kept: dict[object, SSAValue] = {}
    for value in (*begin.inputs, *read_from_outside(begin, end)):
        if (key := _key(value)) is not None:
            first = kept.setdefault(key, value)
            if first is not value:
                value.replace_uses_with_if(first, lambda use: block.find_ancestor_op_in_block(use.operation) in inside)
    for op in list(between(begin, end)):
        for value in op.results[:1]:
            if (key := _key(value)) is not None and kept.setdefault(key, value) is not value:
                value.replace_all_uses_with(kept[key])
                op.detach()
                op.erase()


def _key(value: SSAValue) -> object:
    """A key that identical quantized or dequantized values share; None for any other value."""
    op = value.owner
    if not isinstance(op, Operation) or not op.name.startswith(_NAMESPACE) or len(op.results) > 1:
        return None
    return op.name, tuple(op.operands), tuple(sorted(op.properties.items(), key=lambda item: item[0])), value.type


def _rounded(value: SSAValue) -> SSAValue | None:
    """The value before quantization and dequantization."""
    maker = dequantization(value)
    source = maker_of(maker.operands[0]) if maker is not None else None
    return source.operands[0] if source is not None and source.name.startswith(f"{_NAMESPACE}quantize") else None


def _computed(output: SSAValue, end: RegionEndOp, members: Collection[Operation]) -> SSAValue | None:
    """The unquantized form of a result, if the call itself reads only that form."""
    value, maker = _rounded(output), maker_of(output)
    if value is None or maker is None or value.owner not in members:
        return None
    inside = {use.operation for part in (output, maker.operands[0]) for use in part.uses if use.operation in members}
    return value if inside <= {maker} else None


def _move_behind(begin: RegionBeginOp, end: RegionEndOp) -> None:
    """Move quantization that the call itself does not read to after the end of the call."""
    inside = set(between(begin, end))
    block = end.parent
    assert block is not None
    for op in reversed(list(between(begin, end))):
        if op.name.startswith(_NAMESPACE) and not any(
            use.operation is end or block.find_ancestor_op_in_block(use.operation) in inside
            for result in op.results for use in result.uses
        ):  # fmt: skip
            op.detach()
            block.insert_op_after(op, end)
            inside.discard(op)

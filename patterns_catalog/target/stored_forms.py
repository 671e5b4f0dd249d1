"""Weights in a stored form, such as integers with scales, are moved and joined as they are stored.

    transpose(unpack(data, scales), p)              ->   unpack(transpose(data, p), transpose(scales, p))
    concat(unpack(a, s), unpack(b, t))              ->   unpack(concat(a, b), concat(s, t))

What is moved and joined then are constants, which are stored in the new form, so that a run only unpacks them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.axes import axes_before
from patcomp.ir.constants import constant_integers, is_constant, is_splat
from patcomp.ir.dialect import ops_with
from patcomp.ir.traits import Reshape
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Operation
from patcomp.patterns import OpView, Rejected, example, op_rule
from patterns_catalog.slices import Part
from patterns_catalog.target.linear import is_weight
from patterns_catalog.target.parts_together import copied

_BLOCKS, _TABLE, _SLICES = "coreai.blockwise_shift_scale", "coreai.lut_to_dense", "coreai.dequantize"


def stored_form(value: Value) -> Operation | None:
    """The op that unpacks a weight from values that are computed from constants alone."""
    op = value.made_by(_BLOCKS, _TABLE, _SLICES)
    return op if op is not None and all(is_weight(Value(each)) for each in op.operands) else None


def is_stored(value: Value) -> bool:
    """Whether a value is a constant, or a weight in a stored form."""
    return is_constant(value.ssa) or stored_form(value) is not None


def transposed(c: Coreai, value: Value, order: Sequence[int]) -> Value:
    """A constant or a weight in a stored form in another order of axes, unpacked after the transpose."""
    places = [order.index(axis) for axis in range(value.rank)]
    return _moved(c, value, places, lambda x: c.transpose(x, [*order, *range(len(order), x.rank)]))


def expanded(c: Coreai, value: Value, axes: Sequence[int]) -> Value:
    """A constant or a weight in a stored form with further axes of size 1, unpacked after they are added.

    Args:
        c: the functions of the dialect.
        value: the weight.
        axes: which axes of the result are new.
    """
    places = [place for place in range(value.rank + len(axes)) if place not in axes]
    return _moved(c, value, places, lambda x: c.expand_dims(x, list(axes)))


def part_of_stored(c: Coreai, value: Value, part: Part, axis: int) -> Value:
    """A part of a constant or of a weight in a stored form along an axis, unpacked after it is cut.

    Raises:
        Rejected: the part begins or ends inside of a block.
    """
    if (op := stored_form(value)) is None:
        return part.of(c, value, axis)
    size, taken = value.static_shape[axis], part.end - part.start
    if op.name == _SLICES:
        raise Rejected("slices of a weight with one scale for each slice are not cut")

    def of_blocks(parameter: Value) -> Value:
        count = parameter.static_shape[axis]
        if count == 1:
            return parameter
        block = size // count
        if block > 1 and (part.step != 1 or part.start % block or taken % block):
            raise Rejected(f"the part {part.start}:{part.end} of a weight begins or ends inside of a block of {block}")
        scaled = Part(axis, part.start // block, part.end // block, part.step)
        return part_of_stored(c, parameter, scaled, axis)

    data, *parameters = map(Value, op.operands)
    data = part_of_stored(c, data, part, axis)
    if op.name == _TABLE:
        table, along = parameters
        return c.lut_to_dense(data, of_blocks(table), _axes(along, value.rank)[0])
    return c.blockwise_shift_scale(data, *map(of_blocks, parameters))


def _moved(c: Coreai, value: Value, places: Sequence[int], move: Callable[[Value], Value]) -> Value:
    """The weight with its stored parts (values, scales, offsets) moved; `places[i]` is the new position of axis i."""
    if (op := stored_form(value)) is None:
        return move(value)
    data, *parameters = map(Value, op.operands)
    data = _moved(c, data, places, move)
    if op.name == _BLOCKS:
        return c.blockwise_shift_scale(data, *(_moved(c, each, places, move) for each in parameters))
    if op.name == _TABLE:
        table, axis = parameters
        return c.lut_to_dense(data, _moved(c, table, places, move), places[_axes(axis, value.rank)[0]])
    scale, offset1, offset2, axis = parameters
    axes = [places[each] for each in _axes(axis, value.rank)] if scale.rank else list(range(data.rank))
    return c.dequantize(data, scale, offset1, offset2, axes)


def form(value: Value, axis: int) -> Hashable:
    """What weights have in common that `joined` joins along an axis; constants of one type have it, too."""
    rest = tuple(size for place, size in enumerate(value.shape) if place != axis)
    if (op := stored_form(value)) is None:
        return (value.dtype, rest) if is_constant(value.ssa) else value
    data, *parameters = map(Value, op.operands)
    if op.name == _SLICES:
        *parameters, along = parameters
        is_one_each = all(each.rank == 1 for each in parameters) and _axes(along, value.rank) == [axis]
        return op.name, form(data, axis), [each.dtype for each in parameters] if is_one_each else value
    if op.name == _TABLE:
        return op.name, rest, form(data, axis), form(parameters[0], axis), *_axes(parameters[1], value.rank)
    return op.name, rest, form(data, axis), *(form(each, axis) for each in parameters)


def joined(c: Coreai, axis: int, values: Sequence[Value]) -> Value:
    """Weights of one `form`, joined along an axis in front of the op that is rewritten, and unpacked after that."""
    ops = [op for value in values if (op := stored_form(value)) is not None]
    if not ops:
        return c.concat(axis, [copied(value) for value in values])
    data, *parameters = ([Value(op.operands[place]) for op in ops] for place in range(len(ops[0].operands)))
    lengths = [each.static_shape[axis] for each in data]
    made = joined(c, axis, data)
    if ops[0].name == _TABLE:
        table, (first, *_) = parameters
        return c.lut_to_dense(made, _joined_blocks(c, axis, table, lengths), _axes(first, made.rank)[0])
    if ops[0].name == _SLICES:
        scale, offset1, offset2 = (joined(c, 0, each) for each in parameters[:-1])
        return c.dequantize(made, scale, offset1, offset2, [axis])
    return c.blockwise_shift_scale(made, *(_joined_blocks(c, axis, each, lengths) for each in parameters))


def _joined_blocks(c: Coreai, axis: int, values: Sequence[Value], lengths: Sequence[int]) -> Value:
    """Parameters of blocks, joined; a parameter is repeated where its blocks are larger than those of others."""
    counts = [value.static_shape[axis] for value in values]
    block = math.gcd(*(length // count for length, count in zip(lengths, counts, strict=True)))
    shape = [sum(lengths) // block if place == axis else size for place, size in enumerate(values[0].static_shape)]
    known = [value.constant for value in values]
    numbers = {each.flat[0].tobytes() for each in known if each is not None and is_splat(each)}
    if len(numbers) == 1 and all(each is not None and is_splat(each) for each in known):
        assert known[0] is not None
        return c.constant(np.broadcast_to(known[0].flat[0], shape), values[0].element_type)
    times = [length // block // count for length, count in zip(lengths, counts, strict=True)]
    return joined(c, axis, [_repeated(c, value, axis, each) for value, each in zip(values, times, strict=True)])


def _repeated(c: Coreai, value: Value, axis: int, times: int) -> Value:
    """Each element of a constant along an axis, several times."""
    if times == 1:
        return value
    shape = list(value.static_shape)
    counts = [times if place == axis + 1 else 1 for place in range(value.rank + 1)]
    wide = c.tile(c.expand_dims(copied(value), [axis + 1]), counts)
    shape[axis] *= times
    return c.reshape(wide, shape)


def _axes(value: Value, rank: int) -> list[int]:
    """The axes that an operand names."""
    known = constant_integers(value.ssa)
    assert known is not None
    return [axis % rank for axis in known]


@op_rule("target", "coreai.transpose", *ops_with(Reshape), name="moves of a weight as it is stored",
    targets=("cpu", "gpu", "neural_engine"), examples=[
    example("2x32xf32", program=lambda torch, x: x @ _weight(torch).t()),
    example("2x32x5xf32", program=lambda torch, x: torch.nn.functional.conv1d(x, _weight(torch)[:, :, None])),
])  # fmt: skip
def move_of_stored_form(op: OpView, c: Coreai) -> Value:
    """transpose(unpack(data, scales), p) -> unpack(transpose(data, p), transpose(scales, p))

    So for ops that only add axes of size 1. A weight that other ops read, too, stays as it is, because a second form
    would take as many bytes again.
    """
    for name in ("permutation", "axes", "new_shape"):
        op.ignore(name, because="`axes_before` reads it from the op or the types")
    value, axes = op.input, axes_before(op.operation)
    unpacked = stored_form(value)
    op.expect(unpacked is not None, "the input is not a weight in a stored form")
    op.expect(value.is_read_once, "another op reads the weight, too")
    if unpacked is None or axes is None:
        op.reject("the op does more than to add axes of size 1")
    op.cover(unpacked)
    if op.op_name == "coreai.transpose":
        return transposed(c, value, list(axes.values()))
    return expanded(c, value, [axis for axis in range(Value(op.operation.results[0]).rank) if axis not in axes])


def _weight(torch: Any) -> Any:
    """Floats of bytes with a scale for each row, for the examples."""
    table = torch.tensor([[(7 * i + 11 * j) % 255 - 127 for j in range(32)] for i in range(16)], dtype=torch.int8)
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the operator
    unpack = torch.ops.quantized_decomposed.dequantize_per_channel
    return unpack(table, torch.arange(1.0, 17.0), torch.tensor([0] * 16), 0, -128, 127, torch.int8)

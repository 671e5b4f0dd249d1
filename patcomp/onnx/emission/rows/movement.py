"""Ops that move elements: shapes, slices, gathers and scatters."""

from __future__ import annotations

import numpy as np

from patcomp.onnx.emission.nodes import EmittedOp, NotInOnnxError, emits

BEYOND = 2**63 - 1
"""Behind the end of any dimension."""


@emits("reshape")
def reshape(call: EmittedOp) -> str:
    return call.node("Reshape", call.inputs[0], call.indices(1), allowzero=1)


@emits("transpose")
def transpose(call: EmittedOp) -> str:
    return call.node("Transpose", call.inputs[0], perm=call.numbers(1, "permutation"))


@emits("expand_dims")
def expand_dims(call: EmittedOp) -> str:
    return call.node("Unsqueeze", call.inputs[0], call.indices(1))


@emits("shrink_dims")
def shrink_dims(call: EmittedOp) -> str:
    return call.node("Squeeze", call.inputs[0], call.indices(1))


@emits("broadcast_to")
def broadcast_to(call: EmittedOp) -> str:
    return call.node("Expand", call.inputs[0], call.indices(1))


@emits("broadcast_in_dims")
def broadcast_in_dims(call: EmittedOp) -> str:
    axes = [axis % call.rank() for axis in call.numbers(2, "axes")]
    ones = call.constant(np.ones(call.rank()))
    shape = call.scope.node("ScatterElements", ones, call.constant(axes), call.indices(1), axis=0)
    return call.node("Expand", call.inputs[0], shape)


@emits("broadcast_shapes")
def broadcast_shapes(call: EmittedOp) -> str:
    """The sizes of the other shape where a size is 1."""
    lengths = [call.shape(index)[0] for index in (0, 1)]
    if None in lengths:
        raise NotInOnnxError("shapes of an unknown rank")
    rank = max(lengths)  # type: ignore[type-var]
    first, second = (
        call.scope.node("Concat", call.constant(np.ones(rank - length)), call.indices(index), axis=0)  # type: ignore[operator]
        for index, length in enumerate(lengths)
    )
    is_one = call.scope.node("Equal", first, call.constant(1))
    return call.scope.cast(call.scope.node("Where", is_one, second, first), call.element)


@emits("get_shape")
def get_shape(call: EmittedOp) -> str:
    return call.scope.cast(call.node("Shape", call.inputs[0]), call.element)


@emits("tile")
def tile(call: EmittedOp) -> str:
    counts = call.shape(1)[0]
    if counts is None or counts > call.rank():
        raise NotInOnnxError("it has more counts than its operand dimensions")
    ones = call.constant(np.ones(call.rank() - counts))
    return call.node("Tile", call.inputs[0], call.scope.node("Concat", ones, call.indices(1), axis=0))


@emits("reverse")
def reverse(call: EmittedOp) -> str:
    axes = [axis % call.rank() for axis in call.numbers(1, "dims")]
    last, before, step = (call.constant(np.full(len(axes), each)) for each in (-1, -BEYOND - 1, -1))
    return call.node("Slice", call.inputs[0], last, before, call.constant(axes), step)


@emits("concat")
def concat(call: EmittedOp) -> str:
    return call.node("Concat", *call.inputs[1:], axis=call.axis(0))


@emits("split")
def split(call: EmittedOp) -> list[str]:
    axis, results = call.axis(2), call.op.results
    if len(results) == 1:
        return [call.node("Identity", call.inputs[0])]
    sizes = call.numbers(1, "sections")
    if not call.rank(1):  # equal sizes, and a smaller last one
        first = call.constant([sizes[0]] * (len(results) - 1))
        rest = call.scope.node("Sub", call.size(0, axis), call.constant([sizes[0] * (len(results) - 1)]))
        sections = call.scope.node("Concat", first, rest, axis=0)
    else:
        sections = call.constant(sizes)
    return call.scope.several("Split", [call.inputs[0], sections], [each.name for each in results], axis=axis)


def _slice(call: EmittedOp, x: str, rank: int, first: int) -> str:
    """The slice of a value by the bounds of the op, which are its operands from `first` on."""
    starts, ends, strides = (call.indices(first + each) for each in range(3))
    return call.node("Slice", x, starts, ends, call.constant(np.arange(rank)), strides)


@emits("slice")
def slice_(call: EmittedOp) -> str:
    return _slice(call, call.inputs[0], call.rank(), 1) if call.rank() else call.node("Identity", call.inputs[0])


@emits("slice_update")
def slice_update(call: EmittedOp) -> str:
    """A scatter to the positions that the slice takes among all, counted in one dimension."""
    x, scope = call.inputs[0], call.scope
    if not call.rank():
        return call.node("Identity", call.inputs[4])
    shape, one = scope.node("Shape", x), call.constant([-1])
    count = scope.node("Size", x)
    places = scope.node("Reshape", scope.node("Range", call.constant(0), count, call.constant(1)), shape, allowzero=1)
    taken = scope.node("Reshape", _slice(call, places, call.rank(), 1), one)
    flat, updates = scope.node("Reshape", x, one), scope.node("Reshape", call.inputs[4], one)
    return call.node("Reshape", scope.node("ScatterElements", flat, taken, updates, axis=0), shape, allowzero=1)


PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@emits("pad")
def pad(call: EmittedOp) -> str:
    mode = call.op.attributes["padding_mode"]
    if mode not in PAD_MODES:
        raise NotInOnnxError(f"the padding mode {mode}")
    pairs = call.scope.node("Reshape", call.indices(1), call.constant([-1, 2]))  # before and after of each dimension
    amounts = call.scope.node("Reshape", call.scope.node("Transpose", pairs, perm=[1, 0]), call.constant([-1]))
    if (known := call.known(1)) is not None:
        amounts = call.constant(known.reshape(-1, 2).T.reshape(-1))
    if not call.rank():
        return call.node("Identity", call.inputs[0])
    value = (call.computed(2)[0],) if mode == "constant" else ()
    return call.result(call.node("Pad", call.computed(0)[0], amounts, *value, mode=PAD_MODES[mode]))


@emits("gather_along_axis")
def gather_along_axis(call: EmittedOp) -> str:
    return call.node("GatherElements", call.inputs[0], call.cast(1, "si64"), axis=call.axis(2))


@emits("gather_nd")
def gather_nd(call: EmittedOp) -> str:
    return call.node("GatherND", call.inputs[0], call.cast(1, "si64"))


SCATTERS = {"update": "none", "add": "add", "sub": "add", "mul": "mul", "max": "max", "min": "min"}


@emits("scatter_along_axis")
def scatter_along_axis(call: EmittedOp) -> str:
    mode = call.op.attributes["scatter_mode"]
    if mode not in SCATTERS:
        raise NotInOnnxError(f"the scatter mode {mode}")
    x, updates = call.computed(0, 2)
    updates = call.scope.node("Neg", updates) if mode == "sub" else updates
    indices, axis = call.cast(1, "si64"), call.axis(3)
    return call.result(call.node("ScatterElements", x, indices, updates, axis=axis, reduction=SCATTERS[mode]))


@emits("scatter_nd")
def scatter_nd(call: EmittedOp) -> str:
    return call.node("ScatterND", call.inputs[0], call.cast(1, "si64"), call.inputs[2])


@emits("range")
def range_(call: EmittedOp) -> str:
    return call.result(call.node("Range", *call.computed()))

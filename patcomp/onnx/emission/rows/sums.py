"""Products, convolutions, reductions, sorting, pools and resampling; and quantised data."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import helper

from patcomp.ir.types import integer_range, is_float, is_integer
from patcomp.onnx.emission.nodes import COMPUTED, ONNX_TYPES, EmittedOp, NotInOnnxError, emits, simple

for _name in ("batch_matmul", "decomposable.broadcasting_batch_matmul"):
    emits(_name)(simple("MatMul"))


@emits("conv2d", "conv3d")
def conv(call: EmittedOp) -> str:
    stride, dilation, groups = call.numbers(2, "stride"), call.numbers(3, "dilation"), call.numbers(4, "groups")
    made = call.node("Conv", *call.computed(0, 1), strides=stride, dilations=dilation, group=groups[0])
    return call.result(made)


@emits("conv_transpose2d", "conv_transpose3d")
def conv_transpose(call: EmittedOp) -> str:
    stride, padding, dilation, more, groups = (call.numbers(index, "geometry") for index in range(2, 7))
    made = call.node(
        "ConvTranspose", *call.computed(0, 1), strides=stride, pads=padding * 2, dilations=dilation,
        output_padding=more, group=groups[0],
    )  # fmt: skip
    return call.result(made)


_REDUCTIONS = {
    "reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean",
    "reduce_product": "ReduceProd",
}  # fmt: skip


def _reduction(kind: str) -> Callable[[EmittedOp], str]:
    return lambda call: call.result(call.node(kind, call.computed(0)[0], call.indices(1), keepdims=1))


def _of_bools(kind: str) -> Callable[[EmittedOp], str]:
    return lambda call: call.scope.cast(call.node(kind, call.cast(0, "si32"), call.indices(1), keepdims=1), "i1")


for _name, _kind in _REDUCTIONS.items():
    emits(_name)(_reduction(_kind))
emits("all")(_of_bools("ReduceMin"))
emits("any")(_of_bools("ReduceMax"))


def _without_nan(call: EmittedOp, least: float = -np.inf) -> str:
    """The operand with the least number for NaN, which never wins; f16 becomes f32."""
    (x,) = call.computed(0)
    if is_integer(call.operand_element()):
        return x
    single = call.cast(0, "f32") if call.operand_element() == "f16" else x
    number = call.constant(least, "f64" if call.operand_element() == "f64" else "f32")
    return call.scope.node("Where", call.scope.node("IsNaN", single), number, single)


@emits("argmax")
def argmax(call: EmittedOp) -> str:
    return call.scope.cast(call.node("ArgMax", _without_nan(call), axis=call.axis(1), keepdims=1), call.element)


@emits("softmax")
def softmax(call: EmittedOp) -> str:
    return call.result(call.node("Softmax", call.computed(0)[0], axis=call.axis(1)))


def _sorted(call: EmittedOp, output: int) -> str:
    """The values (0) or the positions (1) along an axis in order; ONNX does not say where NaN comes."""
    axis, descending = call.axis(1), bool(call.numbers(2, "order")[0])
    inputs = [call.computed(0)[0], call.size(0, axis)]
    return call.scope.several("TopK", inputs, ["", ""], axis=axis, largest=int(descending), sorted=1)[output]


@emits("sort")
def sort(call: EmittedOp) -> str:
    return call.result(_sorted(call, 0))


@emits("argsort")
def argsort(call: EmittedOp) -> str:
    return call.scope.cast(_sorted(call, 1), call.element)


SCANS = {"product": ("Mul", ""), "max": ("Max", "ReduceMin"), "min": ("Min", "ReduceMax")}
"""What combines two elements, and the reduction whose result changes no element that it is combined with."""


@emits("scan")
def scan(call: EmittedOp) -> str:
    combiner, axis = call.op.attributes["scan_op"], call.axis(1)
    reverse, (x,) = int(bool(call.numbers(2, "direction")[0])), call.computed(0)
    if combiner == "sum":
        return call.result(call.node("CumSum", x, call.constant(axis), reverse=reverse))
    element, (kind, neutral) = {**COMPUTED, "f16": "f32"}.get(call.element, call.element), SCANS[combiner]
    if neutral:
        x = _without_nan(call, -np.inf if combiner == "max" else np.inf)
        start = call.scope.node(neutral, x, call.constant([axis]), keepdims=0)
    else:
        x = call.cast(0, "f32") if call.element == "f16" else x
        shape = call.scope.node("Shape", call.scope.node("ReduceMax", x, call.constant([axis]), keepdims=0))
        start = call.scope.node("Expand", call.constant(1, element), shape)
    names = [call.scope.names.fresh(name) for name in ("before", "element", "after", "element_after")]
    infos = [helper.make_tensor_value_info(name, ONNX_TYPES[element], None) for name in names]
    nodes = [helper.make_node(kind, names[:2], names[2:3]), helper.make_node("Identity", names[2:3], names[3:])]
    step = helper.make_graph(nodes, "step", infos[:2], infos[2:])
    _, made = call.scope.several(
        "Scan", [start, x], ["", ""], body=step, num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[axis],
        scan_input_directions=[reverse], scan_output_directions=[reverse],
    )  # fmt: skip
    return call.result(made, element)


@emits("non_zero")
def non_zero(call: EmittedOp) -> str:
    columns = call.scope.node("NonZero", call.computed(0)[0])
    return call.scope.cast(call.node("Transpose", columns, perm=[1, 0]), call.element)


# ---- pools and resampling -------------------------------------------------------------------------


@emits("max_pool_2d", "max_pool_3d")
def max_pool(call: EmittedOp) -> str:
    kernel, stride, dilation = (call.numbers(index, "window") for index in (1, 2, 3))
    ceil = int(bool(call.numbers(4, "rounding")[0]))
    if ceil and any(step > far * (size - 1) + 1 for size, step, far in zip(kernel, stride, dilation, strict=True)):
        raise NotInOnnxError("windows that are apart, with sizes that are rounded up")
    if (is_integer(call.element) and integer_range(call.element)[1] >= 2**53) or call.element == "i1":
        raise NotInOnnxError(f"a pool of {call.element}")
    exact = {"f16": "f32", "bf16": "f32"}.get(call.element, call.element if is_float(call.element) else "f64")
    x = call.inputs[0] if exact == call.element else call.cast(0, exact)
    made = call.node("MaxPool", x, kernel_shape=kernel, strides=stride, dilations=dilation, ceil_mode=ceil)
    return call.result(made, exact)


@emits("sum_pool_2d", "sum_pool_3d")
def sum_pool(call: EmittedOp) -> str:
    if is_integer(call.element):
        raise NotInOnnxError(f"a sum over windows of {call.element}")
    kernel, stride, dilation = (call.numbers(index, "window") for index in (1, 2, 3))
    x = call.cast(0, "f32") if call.element in ("f16", "bf16") else call.inputs[0]
    means = call.scope.node("AveragePool", x, kernel_shape=kernel, strides=stride, dilations=dilation)
    exact = "f64" if call.element == "f64" else "f32"
    return call.result(call.node("Mul", means, call.constant(float(math.prod(kernel)), exact)), exact)


@emits("interpolate")
def interpolate(call: EmittedOp) -> str:
    """Output position p reads position (p + 0.5 - offset) / scale - 0.5 of each dimension, clamped to its ends."""
    if not is_float(call.element):
        raise NotInOnnxError(f"resampling of {call.element}")
    scale, offset = call.numbers(2, "scale"), call.numbers(3, "offset")
    lengths, nearest = call.known(1), call.op.attributes["interpolation_mode"] == "nearest_neighbor"
    scope, exact = call.scope, "f64" if call.element == "f64" else "f32"
    x, one = call.inputs[0] if exact == call.element else call.cast(0, exact), call.constant(1.0, "f32")
    for axis, size in enumerate(call.shape()):
        if scale[axis] == 1 and offset[axis] == 0 and lengths is not None and lengths[axis] == size:
            continue
        length = scope.node("Gather", call.indices(1), call.constant(axis))
        steps = scope.cast(scope.node("Range", call.constant(0), length, call.constant(1)), "f32")
        shifted = scope.node("Add", steps, call.constant(np.float32(0.5) - np.float32(offset[axis]), "f32"))
        divided = scope.node("Div", shifted, call.constant(scale[axis], "f32"))
        places = scope.node("Sub", divided, call.constant(0.5, "f32"))
        last = scope.cast(scope.node("Sub", call.size(0, axis), call.constant([1])), "f32")
        if nearest:
            clamped = scope.node("Min", scope.node("Max", scope.node("Round", places), call.constant(0.0, "f32")), last)
            x = scope.node("Gather", x, scope.cast(clamped, "si64"), axis=axis)
            continue
        clamped = scope.node("Min", scope.node("Max", places, call.constant(0.0, "f32")), last)
        low = scope.node("Floor", clamped)
        high = scope.node("Min", scope.node("Add", low, one), last)
        shape = call.constant([-1] + [1] * (call.rank() - axis - 1))
        weight = scope.node("Reshape", scope.node("Sub", clamped, low), shape)
        weights = [scope.cast(each, exact) for each in (scope.node("Sub", one, weight), weight)]
        parts = [scope.node("Gather", x, scope.cast(each, "si64"), axis=axis) for each in (low, high)]
        x = scope.node("Add", *(scope.node("Mul", *pair) for pair in zip(parts, weights, strict=True)))
    return call.result(scope.node("Identity", x), exact)


# ---- quantised data -------------------------------------------------------------------------------


def _along(call: EmittedOp, index: int, axis_index: int) -> str:
    """A scale or an offset in f32, in a shape that broadcasts with the data."""
    values = call.cast(index, "f32")
    if not call.rank(index):
        return values
    axis = call.axis(axis_index) % call.rank()
    return call.scope.node("Reshape", values, call.constant([-1] + [1] * (call.rank() - axis - 1)))


@emits("dequantize")
def dequantize(call: EmittedOp) -> str:
    scale, offset1, offset2 = (_along(call, index, 4) for index in (1, 2, 3))
    scaled = call.scope.node("Mul", call.scope.node("Sub", call.cast(0, "f32"), offset1), scale)
    return call.result(call.node("Add", scaled, offset2), "f32")


@emits("quantize")
def quantize(call: EmittedOp) -> str:
    if not is_integer(call.element):
        raise NotInOnnxError(f"quantising to {call.element}")
    scale, offset1, offset2 = (_along(call, index, 4) for index in (1, 2, 3))
    quotient = call.scope.node("Div", call.scope.node("Sub", call.cast(0, "f32"), offset2), scale)
    rounded = call.scope.node("Add", call.scope.node("Round", quotient), offset1)
    numbers = call.scope.node("Where", call.scope.node("IsNaN", rounded), call.constant(0.0, "f32"), rounded)
    low, high = (call.constant(float(bound), "f32") for bound in integer_range(call.element))
    return call.scope.cast(call.node("Min", call.scope.node("Max", numbers, low), high), call.element)


@emits("blockwise_shift_scale")
def blockwise_shift_scale(call: EmittedOp) -> str:
    """(data - offset1) * scale + offset2, each for a block of the data: the data's dimensions are split in blocks."""
    shapes = [call.shape(index) for index in range(4)]
    if any(None in shape for shape in shapes):
        raise NotInOnnxError("blocks of a dynamic size")
    sizes: list[int] = []
    for axis, size in enumerate(shapes[0]):
        counts = {int(shape[axis] or 1) for shape in shapes[1:]} - {1}
        if len(counts) > 1:
            raise NotInOnnxError("scales and offsets in blocks of several sizes")
        count = counts.pop() if counts else 1
        sizes += [count, int(size or 0) // count]
    data = call.scope.node("Reshape", call.cast(0, "f32"), call.constant(sizes))
    scale, offset1, offset2 = (
        call.scope.node(
            "Reshape", call.cast(index, "f32"), call.constant([n for dim in shapes[index] for n in (dim or 1, 1)])
        )
        for index in (1, 2, 3)
    )
    scaled = call.scope.node("Add", call.scope.node("Mul", call.scope.node("Sub", data, offset1), scale), offset2)
    return call.result(call.node("Reshape", scaled, call.constant(list(shapes[0]))), "f32")

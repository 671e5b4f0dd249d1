"""The verifier on single ops: shapes, element types, counts and properties that do not fit are refused."""

from __future__ import annotations

import re

import pytest

from patcomp.errors import VerifyError
from patcomp.ir.verify import verify
from tests.ir.programs import program

X = "tensor<2x3xf32>"
AXIS = "%a = coreai.constant dense<{}> : tensor<si32>\n"
AXES = "%a = coreai.constant dense<{}> : tensor<{}xsi32>\n"


def reduction(axes: str, count: int, result: str, source: str = X, op: str = "reduce_sum") -> tuple[str, str, str]:
    body = AXES.format(axes, count) + f"%y = coreai.{op} %x, %a : ({source}, tensor<{count}xsi32>) -> {result}"
    return f"%x: {source}", body, result


def axis_op(op: str, axis: int, source: str, result: str, more: str = "") -> tuple[str, str, str]:
    flags = "%f = coreai.constant dense<false> : tensor<i1>\n" if more else ""
    operands, types = (", %f, %f", ", tensor<i1>, tensor<i1>") if more else ("", "")
    body = AXIS.format(axis) + flags
    return (
        f"%x: {source}",
        f"{body}%y = coreai.{op} %x, %a{operands} : ({source}, tensor<si32>{types}) -> {result}",
        result,
    )


def slicing(start: str, end: str, stride: str, source: str, result: str, length: int = 1) -> tuple[str, str, str]:
    values = zip("set", (start, end, stride), strict=True)
    constants = "".join(f"%{n} = coreai.constant dense<{v}> : tensor<{length}xsi32>\n" for n, v in values)
    vectors = ", ".join([f"tensor<{length}xsi32>"] * 3)
    return f"%x: {source}", f"{constants}%y = coreai.slice %x, %s, %e, %t : ({source}, {vectors}) -> {result}", result


def shaped(op: str, value: str, count: int, source: str, result: str, arrow: str = "->") -> tuple[str, str, str]:
    index = "si32" if op in ("expand_dims", "shrink_dims", "reverse") else "ui32"
    body = f"%n = coreai.constant dense<{value}> : tensor<{count}x{index}>\n"
    body += f"%y = coreai.{op} %x, %n : ({source}, tensor<{count}x{index}>) {arrow} {result}"
    return f"%x: {source}", body, result


def split(sections: str, count: str, source: str, results: list[str]) -> tuple[str, str, str]:
    names = [f"%y{i}" for i in range(len(results))] if len(results) > 1 else ["%y"]
    body = AXIS.format(0) + f"%n = coreai.constant dense<{sections}> : tensor<{count}ui32>\n"
    body += f"{', '.join(names)} = coreai.split %x, %n, %a : ({source}, tensor<{count}ui32>, tensor<si32>) -> "
    return f"%x: {source}", body + (f"({', '.join(results)})" if len(results) > 1 else results[0]), "; ".join(results)


def binary(op: str, left: str, right: str, result: str) -> tuple[str, str, str]:
    return f"%x: {left}, %w: {right}", f"%y = coreai.{op} %x, %w : ({left}, {right}) -> {result}", result


def convolution(result: str, weight: str = "4x2x3x3", groups: int = 1, index: str = "ui32") -> tuple[str, str, str]:
    body = (
        f"%s = coreai.constant dense<1> : tensor<2x{index}>\n%g = coreai.constant dense<{groups}> : tensor<ui32>\n"
        f"%y = coreai.conv2d %x, %w, %s, %s, %g : (tensor<1x2x5x5xf32>, tensor<{weight}xf32>, "
        f"tensor<2x{index}>, tensor<2x{index}>, tensor<ui32>) -> {result}"
    )
    return f"%x: tensor<1x2x5x5xf32>, %w: tensor<{weight}xf32>", body, result


def pooling(ceil: str, result: str) -> tuple[str, str, str]:
    body = (
        "%k = coreai.constant dense<2> : tensor<2xui32>\n%d = coreai.constant dense<1> : tensor<2xui32>\n"
        f"%c = coreai.constant dense<{ceil}> : tensor<i1>\n"
        "%y = coreai.max_pool_2d %x, %k, %k, %d, %c : (tensor<1x1x5x5xf32>, tensor<2xui32>, tensor<2xui32>, "
        f"tensor<2xui32>, tensor<i1>) -> {result}"
    )
    return "%x: tensor<1x1x5x5xf32>", body, result


def blockwise(scale: str, offset: str = "si8") -> tuple[str, str, str]:
    body = (
        f"%y = coreai.blockwise_shift_scale %x, %s, %o, %z : (tensor<2x4xsi8>, tensor<{scale}xf32>, "
        f"tensor<{scale}x{offset}>, tensor<{scale}xf32>) -> tensor<2x4xf32>"
    )
    arguments = f"%x: tensor<2x4xsi8>, %s: tensor<{scale}xf32>, %o: tensor<{scale}x{offset}>, %z: tensor<{scale}xf32>"
    return arguments, body, "tensor<2x4xf32>"


def quantization(scale: str, axis: str, axis_type: str, offset: str | None = None) -> tuple[str, str, str]:
    offset = scale if offset is None else offset
    body = (
        f"%a = coreai.constant dense<{axis}> : tensor<{axis_type}si32>\n"
        f"%y = coreai.quantize %x, %s, %o, %z, %a : ({X}, tensor<{scale}f32>, tensor<{offset}si8>, "
        f"tensor<{offset}f32>, tensor<{axis_type}si32>) -> tensor<2x3xsi8>"
    )
    arguments = f"%x: {X}, %s: tensor<{scale}f32>, %o: tensor<{offset}si8>, %z: tensor<{offset}f32>"
    return arguments, body, "tensor<2x3xsi8>"


# name: ((arguments, body, results), words of the refusal)
MALFORMED: dict[str, tuple[tuple[str, str, str], str]] = {
    # axes
    "reduce axis out of range": (reduction("2", 1, X), "axis 2 is out of range for rank 2"),
    "reduce axis twice": (reduction("[1, -1]", 2, "tensor<2x1xf32>"), "repeat one another"),
    "reduce a 0-d tensor": (reduction("0", 1, "tensor<f32>", "tensor<f32>"), "0-d tensor"),
    "reduce with a wrong result": (reduction("1", 1, X), "result type must be tensor<2x1xf32>"),
    "reduce that drops the dimension": (reduction("1", 1, "tensor<2xf32>"), "result type must be tensor<2x1xf32>"),
    "reduce to another element type": (reduction("1", 1, "tensor<2x1xf64>"), "must share one element type"),
    "mean of integers": (
        reduction("1", 1, "tensor<2x1xsi32>", "tensor<2x3xsi32>", "reduce_mean"), "must have an element type of bf16"
    ),
    "argmax that drops the dimension": (axis_op("argmax", 1, X, "tensor<2xui32>"), "must be tensor<2x1xui32>"),
    "argmax to signed": (axis_op("argmax", 1, X, "tensor<2x1xsi32>"), "element type of ui16, ui32"),
    "argmax of a 0-d tensor": (axis_op("argmax", 0, "tensor<f32>", "tensor<ui32>"), "0-d tensor"),
    "softmax axis out of range": (axis_op("softmax", 2, X, X), "axis 2 is out of range"),
    "softmax of a 0-d tensor": (axis_op("softmax", 0, "tensor<f32>", "tensor<f32>"), "axis 0 is out of range"),
    "sort axis out of range": (axis_op("sort", -3, X, X, "flags"), "axis -3 is out of range"),
    "argsort to si16": (axis_op("argsort", 1, X, "tensor<2x3xsi16>", "flags"), "exactly tensor<2x3xsi32>"),
    "reverse twice": (shaped("reverse", "[0, 0]", 2, X, X), "repeat one another"),
    "expand_dims twice": (
        shaped("expand_dims", "[0, 0]", 2, X, "tensor<1x1x2x3xf32>", "to"), "repeat one another"
    ),
    "shrink_dims of a long dimension": (shaped("shrink_dims", "0", 1, X, "tensor<3xf32>", "to"), "is not 1"),
    "shrink_dims of a dynamic dimension": (
        shaped("shrink_dims", "0", 1, "tensor<?x3xf32>", "tensor<3xf32>", "to"), "is not 1"
    ),
    # slices
    "slice bounds of wrong length": (slicing("0", "1", "1", X, "tensor<1x3xf32>"), "one value for each of 2"),
    "slice with stride 0": (slicing("0", "4", "0", "tensor<6xf32>", "tensor<4xf32>"), "strides must not be zero"),
    "slice with a wrong result": (slicing("0", "4", "1", "tensor<6xf32>", "tensor<3xf32>"), "tensor<4xf32>"),
    # shapes
    "reshape to another count": (shaped("reshape", "[2, 2]", 2, X, "tensor<2x2xf32>"), "another number of elements"),
    "transpose by no permutation": (shaped("transpose", "[0, 0]", 2, X, X), "no permutation of rank 2"),
    "transpose with a wrong result": (shaped("transpose", "[1, 0]", 2, X, X), "result type must be tensor<3x2xf32>"),
    "broadcast_to another shape": (shaped("broadcast_to", "[4, 3]", 2, X, "tensor<4x3xf32>"), "cannot broadcast"),
    "broadcast_to a lower rank": (shaped("broadcast_to", "3", 1, X, "tensor<3xf32>"), "lower rank"),
    "broadcasting of shapes that do not": (
        binary("decomposable.broadcasting_add", X, "tensor<2xf32>", X), "do not broadcast"
    ),
    "same-shape op of different shapes": (binary("add", X, "tensor<3xf32>", X), "use the broadcasting op"),
    "concat of different shapes": (
        ("%x: tensor<2x3xf32>, %w: tensor<2x4xf32>",
         AXIS.format(0) + "%y = coreai.concat %a, %x, %w : (tensor<si32>, tensor<2x3xf32>, tensor<2x4xf32>) "
         "-> tensor<4x3xf32>", "tensor<4x3xf32>"),
        "differ outside axis 0",
    ),
    "concat of a dynamic and a static dimension": (
        ("%x: tensor<?x3xf32>, %w: tensor<2x3xf32>",
         AXIS.format(1) + "%y = coreai.concat %a, %x, %w : (tensor<si32>, tensor<?x3xf32>, tensor<2x3xf32>) "
         "-> tensor<2x6xf32>", "tensor<2x6xf32>"),
        "differ outside axis 1",
    ),
    "split sections of another sum": (
        split("[2, 2]", "2x", "tensor<5xf32>", ["tensor<2xf32>", "tensor<2xf32>"]), "do not add up to 5"
    ),
    "split with too few results": (split("[2, 3]", "2x", "tensor<5xf32>", ["tensor<2xf32>"]), "makes 2 results"),
    "split in parts with too many results": (
        split("3", "", "tensor<6xf32>", ["tensor<3xf32>"] * 3), "makes 2 results, but 3 are declared"
    ),
    "cast to another shape": (
        (f"%x: {X}", f"%y = coreai.cast %x : {X} to tensor<2x4xf16>", "tensor<2x4xf16>"), "cannot change the shape"
    ),
    "get_shape to another length": (
        (f"%x: {X}", f"%y = coreai.get_shape %x : {X} -> tensor<?xui32>", "tensor<?xui32>"), "exactly tensor<2xui32>"
    ),
    # products, windows
    "matrix product of different inner dimensions": (
        binary("batch_matmul", "tensor<2x3xf32>", "tensor<4x5xf32>", "tensor<2x5xf32>"), "inner dimensions"
    ),
    "matrix product of a vector": (
        binary("decomposable.broadcasting_batch_matmul", "tensor<3xf32>", "tensor<3x5xf32>", "tensor<5xf32>"), "rank 2"
    ),
    "convolution with a wrong result": (convolution("tensor<1x4x4x4xf32>"), "must be tensor<1x4x3x3xf32>"),
    "convolution of other channels": (convolution("tensor<1x4x3x3xf32>", "4x3x3x3"), "input has 2 channels"),
    "convolution with signed strides": (convolution("tensor<1x4x3x3xf32>", index="si32"), "element type of ui16, ui32"),
    "ceil pooling with the floor's result": (pooling("true", "tensor<1x1x2x2xf32>"), "must be tensor<1x1x3x3xf32>"),
    # quantised data
    "blockwise scale of a lower rank": (blockwise("2"), "must have the rank"),
    "blockwise blocks that do not divide": (blockwise("1x3"), "not divisible"),
    "one quantisation scale for a tensor, given as a vector": (quantization("3x", "[0, 1]", "2x"), "must be 0-d"),
    "quantisation axes out of order": (quantization("", "[1, 0]", "2x"), "listed in order"),
    "quantisation scales for another axis": (quantization("3x", "0", ""), "3 scales for the 2 slices"),
    "quantisation axis out of range": (quantization("3x", "5", ""), "axis 5 is out of range"),
    "quantisation scale and offset of different shapes": (quantization("3x", "1", "", ""), "differ in shape"),
    "lookup table of another rank": (
        ("%i: tensor<2x2xui4>, %l: tensor<1x16x1xf32>",
         "%a = coreai.constant dense<0> : tensor<si16>\n"
         "%y = coreai.lut_to_dense %i, %l, %a : (tensor<2x2xui4>, tensor<1x16x1xf32>, tensor<si16>) "
         "-> tensor<2x2xf32>", "tensor<2x2xf32>"),
        "needs rank 4",
    ),
    # element types
    "signless integers": (binary("add", *["tensor<2xi32>"] * 3), "must have an element type of"),
    "index elements": (binary("add", *["tensor<2xindex>"] * 3), "must have an element type of"),
    "unranked tensors": (binary("add", *["tensor<*xf32>"] * 3), "must be a ranked tensor"),
    "mixed element types": (binary("add", "tensor<2xf32>", "tensor<2xf16>", "tensor<2xf32>"), "must share one element"),
    "exponential of integers": (
        ("%x: tensor<2xsi32>", "%y = coreai.exp %x : tensor<2xsi32> -> tensor<2xsi32>", "tensor<2xsi32>"),
        "operand `x` must have an element type of",
    ),
    "comparison to integers": (binary("greater", *["tensor<2xf32>"] * 2, "tensor<2xui8>"), "element type of i1"),
    "an axis of 64 bits": (
        (f"%x: {X}, %a: tensor<1xsi64>",
         f"%y = coreai.reduce_sum %x, %a : ({X}, tensor<1xsi64>) -> tensor<2x1xf32>", "tensor<2x1xf32>"),
        "element type of si16, si32",
    ),
    "axes of rank 0": (
        (f"%x: {X}, %a: tensor<si32>",
         f"%y = coreai.reduce_sum %x, %a : ({X}, tensor<si32>) -> tensor<2x1xf32>", "tensor<2x1xf32>"),
        "must be of rank 1",
    ),
    "a constant of another type": (
        ("", '%y = "coreai.constant"() <{value = dense<1.0> : tensor<2xf32>}> : () -> tensor<?xf32>', "tensor<?xf32>"),
        "exactly tensor<2xf32>",
    ),
    "a scalar constant": (
        ("%y: tensor<2xf32>", '%0 = "coreai.constant"() <{value = 1.0 : f32}> : () -> f32', "tensor<2xf32>"),
        "must be a ranked tensor",
    ),
    # counts, properties
    "too few operands": (
        (f"%x: {X}", f'%y = "coreai.add"(%x) : ({X}) -> {X}', X), "takes 2 operands, but has 1"
    ),
    "too many results": (
        (f"%x: {X}", f'%y, %z = "coreai.abs"(%x) : ({X}) -> ({X}, {X})', X), "takes 1 results, but has 2"
    ),
    "a property that is not there": (
        ("%x: tensor<2xf32>, %p: tensor<2xui32>, %v: tensor<f32>",
         '%y = "coreai.pad"(%x, %p, %v) : (tensor<2xf32>, tensor<2xui32>, tensor<f32>) -> tensor<?xf32>',
         "tensor<?xf32>"),
        "lacks the property `padding_mode`",
    ),
    "a property of the wrong kind": (
        (f"%x: {X}", f'%y = "coreai.gelu"(%x) <{{approximate = "tanh"}}> : ({X}) -> {X}', X),
        "must be a #coreai.approximate",
    ),
    "an unknown property": (
        (f"%x: {X}", f'%y = "coreai.abs"(%x) <{{fast = unit}}> : ({X}) -> {X}', X), "has no property `fast`"
    ),
    "a scan combiner out of range": (
        (f"%x: {X}, %a: tensor<ui32>, %r: tensor<i1>",
         f'%y = "coreai.scan"(%x, %a, %r) <{{scan_op = 4 : i32}}> : ({X}, tensor<ui32>, tensor<i1>) -> {X}', X),
        "from 0 to 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_refused(name: str) -> None:
    (arguments, body, results), words = MALFORMED[name]
    with pytest.raises(VerifyError, match=re.escape(words)):
        verify(program(arguments, body, results))


@pytest.mark.parametrize(
    "parts",
    [
        reduction("-1", 1, "tensor<2x1xf32>"),
        reduction("1", 1, "tensor<?x1xf32>"),
        axis_op("argmax", 1, X, "tensor<2x1xui16>"),
        shaped("expand_dims", "[]", 0, X, X, "to"),
        slicing("1", "2147483647", "1", "tensor<5xf32>", "tensor<4xf32>"),
        slicing("4", "0", "-2", "tensor<6xf32>", "tensor<2xf32>"),
        split("3", "", "tensor<5xf32>", ["tensor<3xf32>", "tensor<2xf32>"]),
        binary("decomposable.broadcasting_add", "tensor<?x3xf32>", "tensor<2x1xf32>", X),
        binary("decomposable.broadcasting_add", "tensor<?xf32>", "tensor<?xf32>", "tensor<?xf32>"),
        binary("greater", "tensor<?xf32>", "tensor<?xf32>", "tensor<2xi1>"),
        binary("add", *["tensor<0x3xf32>"] * 3),
        convolution("tensor<1x4x3x3xf32>"),
        convolution("tensor<1x4x3x3xf32>", "4x1x3x3", groups=2),
        pooling("true", "tensor<1x1x3x3xf32>"),
        pooling("false", "tensor<1x1x2x2xf32>"),
        blockwise("1x2"),
        quantization("3x", "-1", ""),
        quantization("", "0", ""),
        ("%x: tensor<?x3xf32>", "%y = coreai.cast %x : tensor<?x3xf32> to tensor<2x3xf16>", "tensor<2x3xf16>"),
    ],
)
def test_taken(parts: tuple[str, str, str]) -> None:
    verify(program(*parts))


# ---- values known at run time ---------------------------------------------------------------------


@pytest.mark.parametrize("result", ["tensor<2x1xf32>", "tensor<?x?xf32>"])
def test_axes_known_at_run_time_leave_the_result_to_the_author(result: str) -> None:
    body = f"%y = coreai.reduce_sum %x, %a : ({X}, tensor<1xsi32>) -> {result}"
    verify(program(f"%x: {X}, %a: tensor<1xsi32>", body, result))


def test_sizes_known_at_run_time_leave_the_results_to_the_author() -> None:
    body = (
        AXIS.format(0) + "%y = coreai.split %x, %n, %a : (tensor<?xf32>, tensor<ui32>, tensor<si32>) -> tensor<?xf32>"
    )
    verify(program("%x: tensor<?xf32>, %n: tensor<ui32>", body, "tensor<?xf32>"))


def test_a_verdict_holds_for_one_constant_only() -> None:
    right = (
        AXES.format("[1]", 1) + "%y = coreai.reduce_sum %x, %a : (tensor<2x3xf32>, tensor<1xsi32>) -> tensor<2x1xf32>"
    )
    wrong = right.replace("%a", "%b").replace("%y", "%z").replace("dense<[1]>", "dense<[0]>")
    with pytest.raises(VerifyError, match="tensor<1x3xf32>"):
        verify(program("%x: tensor<2x3xf32>", f"{right}\n{wrong}", "tensor<2x1xf32>"))

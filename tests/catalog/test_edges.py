"""Numbers, shapes and indices that compilers get wrong: NaN, wrapping integers, 0-d and empty tensors.

Every case runs on the reference evaluator and on the real runtime, beside eager PyTorch.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from patcomp.emit.native import Native
from tests.catalog.cases import assert_all_agree, assert_refused, make_case, param, values

NAN, INF = float("nan"), float("inf")

NUMBERS = [
    param("maximum of NaN", "maximum", values([NAN, 1.0, -INF]), values([0.0, NAN, NAN])),
    param("minimum of NaN", "minimum", values([NAN, 1.0, INF]), values([0.0, NAN, NAN])),
    param("amax of NaN", "amax", values([[NAN, 1.0], [2.0, -INF]]), [1]),
    param("clamp of NaN", "clamp", values([NAN, INF, -INF]), -1, 1.5),
    param("clamp with low above high", "clamp", values([0.0, 5.0]), 3.0, 1.0),
    param("clamp integers between floats", "clamp", "5xsi64[-9,9]", -1.5, 2.5),
    param("clamp unsigned below zero", "clamp", "5xui8[0,200]", -3, 3),
    param("clamp to one side of bytes", "clamp", "5xsi8", -3, None),
    param("ge of NaN", "ge.Tensor", values([NAN, 1.0, NAN]), values([NAN, 1.0, 0.0])),
    param("le of NaN", "le.Scalar", values([NAN, 1.0, -INF]), 1.0),
    param("relu of NaN", "relu", values([NAN, -INF, INF])),
    param("neg of zero", "reciprocal", values([-0.0, 0.0, INF])),
    param("negated unsigned integers wrap", "neg", values([0, 1, 255], torch.uint8)),
    param("bytes wrap in a sum", "add.Tensor", values([100, -100], torch.int8), values([100, -100], torch.int8)),
    param("bytes wrap in a product", "mul.Tensor", values([100, 77], torch.int8), values([3, -5], torch.int8)),
    param("an unsigned byte plus a negative number", "add.Scalar", values([0, 5, 200], torch.uint8), -1),
    param("a byte and a number beyond it", "mul.Scalar", values([4, 5], torch.int8), -129),
    param("a byte compared with a number beyond it", "gt.Scalar", values([4, 5], torch.int8), 200),
    param("an integer power wraps", "pow.Tensor_Scalar", values([9, -9, 0], torch.int16), 9),
    param("an integer to the power of 0", "pow.Tensor_Scalar", "4xsi32", 0),
    param("a bool to an integer power", "pow.Tensor_Scalar", "4xi1", 3),
    param("an integer to a float power", "pow.Tensor_Scalar", "4xsi32[1,9]", 0.5),
    param("a number to a float power", "pow.Scalar", 2, "4xf32"),
    param("an integer to the power of a tensor", "pow.Tensor_Tensor", "4xsi32", "4xsi32[0,3]"),
    param("a number to the power of an integer tensor", "pow.Scalar", 2, "4xsi64[0,9]"),
    param("a float power of special values", "pow.Tensor_Scalar", values([-INF, -0.0, NAN, -2.0, INF]), 0.5),
    param("an inverse square root of special values", "pow.Tensor_Scalar", values([-0.0, NAN, 4.0, INF]), -0.5),
    param("integers divided", "div.Tensor", "2x3xsi64", "3xsi32[1,9]"),
    param("an integer divided by zero", "div.Scalar", "4xsi64", 0),
    param("bools divided", "div.Tensor", "4xi1", values([True, True, True, False], torch.bool)),
    param("a bool plus an integer", "add.Tensor", "4xi1", "4xsi64"),
    param("a bool plus a number", "add.Scalar", "4xi1", 1),
    param("bools scaled and added", "add.Tensor", "4xi1", "4xi1", alpha=2),
    param("integers scaled and subtracted", "sub.Tensor", "4xsi32", "3x4xsi32", alpha=-3),
    param("half precision times a number beyond it", "mul.Scalar", values([1e-3, 0.0, 2.0], torch.float16), 1e5),
    param("half precision times a tiny number", "mul.Scalar", values([6e4, 1.0], torch.float16), 1e-8),
    param("half precision plus a number beyond it", "add.Scalar", values([-6e4, 1.0], torch.float16), 7e4),
    param("half precision times a wide scalar", "mul.Tensor", values([1e-3, 0.5], torch.float16), values(1e5)),
    param("half precision divided by a wide scalar", "div.Tensor", values([6e4, 0.5], torch.float16), values(1e5)),
    param("half precision plus a wide scalar", "add.Tensor", values([-6e4, 1.0], torch.float16), values(7e4)),
    param("brain float plus a tiny number", "sub.Scalar", values([0.0, 1.0], torch.bfloat16), 1e-40),
    param("half precision subtracted from beyond it", "rsub.Scalar", values([6e4, -1.0], torch.float16), 7e4),
    param("brain float plus a double scalar", "add.Tensor", "3xbf16", values(0.3, torch.float64)),
    param("where with numbers", "where.Scalar", "4xi1", 1, 0.1),
    param("where with a number for itself", "where.ScalarSelf", "4xi1", 0.1, "4xsi64"),
    param("where with a 0-d condition", "where.self", "i1", "2x3xf32", "3xf16"),
    param("where keeps NaN out", "where.self", values([True, False], torch.bool), values([1, NAN]), values([NAN, 2])),
    param("NaN is true", "_to_copy", values([NAN, 0.0, -0.0, INF, 1e-40]), dtype="i1"),
    param("negative integers as unsigned bytes", "_to_copy", values([-1, 256, 300, -300]), dtype="si32"),
    param("long integers as unsigned bytes", "_to_copy", "9xsi64[-999,999]", dtype="ui8"),
    param("unsigned bytes as signed", "_to_copy", "9xui8[0,255]", dtype="si8"),
    param("bytes as long integers", "_to_copy", "9xsi8[-128,127]", dtype="si64"),
    param("long integers as short", "_to_copy", "9xsi64[-99999,99999]", dtype="si16"),
    param("floats as long integers", "_to_copy", "9xf32[-99,99]", dtype="si64"),
    param("float32 beyond half precision", "_to_copy", values([1e5, -1e5, 1e-9]), dtype="f16"),
    param("hardswish of special values", "hardswish", values([NAN, INF, -INF, 3.0, -3.0])),
    param("hardsigmoid of special values", "hardsigmoid", values([NAN, INF, -INF, 3.0, -3.0])),
    param("softmax of infinities", "_softmax", values([[-INF, -INF], [-INF, 0.0], [INF, 0.0]]), 1, False),
    param("softmax of half precision in float32", "_softmax", "2x3xf16", -1, False),
    param("log_softmax of -infinity", "_log_softmax", values([[-INF, 0.0], [5e4, -5e4]]), 1, False),
    param("fill integers with a fraction", "full_like", "3xsi32", -1.9),
    param("fill bools with a number", "full", [3], 0.5, dtype="i1"),
    param("fill unsigned bytes with -1", "full", [3], -1, dtype="ui8"),
    param("fill with infinity", "full", [2], -INF, dtype="f16"),
    param("cumulated bools", "cumsum", "6xi1", 0),
    param("cumulated long integers", "cumsum", "2x6xsi64", -1),
    param("cumulated in another type", "cumsum", "2x6xsi32[-99,99]", 1, dtype="si8"),
    param("bytes summed", "sum", values([100, 100, 100], torch.int8)),
    param("summed in another type", "sum.dim_IntList", "2x6xsi32[-99,99]", [1], dtype="si8"),
    param("mean in another type", "mean.dim", "2x3xsi64", [1], dtype="f32"),
    param("a product of bytes that wraps", "mm", "2x9xsi8[-99,99]", "9x2xsi8[-99,99]"),
    param("addmm without its first tensor", "addmm", values([NAN]), "2x3xf32", "3x4xf32", beta=0),
    param("addmm of integers", "addmm", "4xsi64", "2x3xsi64", "3x4xsi64", beta=2, alpha=-1),
    param("range with a negative step", "arange.start_step", 5, -5, -3),
    param("range of fractions", "arange.start_step", 0, 1, 0.1),
    param("range from halves to integers", "arange.start_step", 0.5, 5, 1.5, dtype="si64"),
]

SHAPES = [
    param("0-d add", "add.Tensor", "f32", "f32"),
    param("0-d sum", "sum", "f32"),
    param("0-d mean", "mean", "f16"),
    param("0-d amax", "amax", "si32", []),
    param("0-d softmax", "_softmax", "f32", 0, False),
    param("0-d cumsum", "cumsum", "f32", -1),
    param("0-d transpose", "transpose.int", "f32", 0, -1),
    param("0-d t", "t", "f32"),
    param("1-d t", "t", "3xf32"),
    param("0-d view", "view", "1x1xf32", []),
    param("view of 0-d", "view", "f32", [1, 1]),
    param("0-d squeeze", "squeeze", "f32"),
    param("0-d squeeze.dim", "squeeze.dim", "f32", -1),
    param("squeeze nothing", "squeeze", "2x3xf32"),
    param("squeeze all", "squeeze", "1x1xf32"),
    param("0-d expand", "expand", "f32", [2, 3]),
    param("0-d gather", "gather", "f32", 0, values([0, 0], torch.int64)),
    param("0-d where", "where.self", "i1", "f32", "f32"),
    param("0-d clamp", "clamp", "f32", 0.0, 0.1),
    param("0-d embedding", "embedding", "7x3xf32", "si64[0,6]"),
    param("0-d pad", "constant_pad_nd", "f32", []),
    param("mean over nothing named", "mean.dim", "2x3xf32", []),
    param("sum over all", "sum.dim_IntList", "2x3xf32", None, True),
    param("slice of negative bounds", "slice.Tensor", "8x3xf32", 0, -6, -2),
    param("slice of oversized bounds", "slice.Tensor", "8x3xf32", 0, -99, 99),
    param("slice by steps to the end", "slice.Tensor", "8x3xf32", 0, 1, 9223372036854775807, 3),
    param("empty slice", "slice.Tensor", "8x3xf32", 0, 6, 2),
    param("slice of an empty tensor", "slice.Tensor", "0x3xf32", 1, 0, 2),
    param("empty sum of two", "add.Tensor", "0x3xf32", "3xf32"),
    param("empty product", "mm", "0x3xf32", "3x4xf32"),
    param("empty view", "view", "0x3xf32", [3, 0, 2]),
    param("empty bools", "gt.Scalar", "0xf32", 1.0),
    param("empty brain floats", "neg", "0x2xbf16"),
    param("empty composite", "pixel_shuffle", "0x8x2x2xf32", 2),
    param("empty layer_norm", "native_layer_norm", "0x4xf64", [4], "4xf64", "4xf64", 1e-5),
    param("sum of nothing", "sum", "0x3xf32"),
    param("sum of nothing for each", "sum.dim_IntList", "2x0x3xsi64", [1], True),
    param("mean of nothing", "mean.dim", "0x3xf32", [0]),
    param("product of nothing", "mm", "2x0xf32", "0x3xf32"),
    param("addmm of nothing", "addmm", "3xf32", "2x0xf32", "0x3xf32"),
    param("pad of nothing", "constant_pad_nd", "0xf32", [2, 1], 0.5),
    param("attention to nothing", "scaled_dot_product_attention", "1x2x3x4xf32", "1x2x0x4xf32", "1x2x0x4xf32"),
    param("empty split", "split_with_sizes", "7x2xf32", [3, 0, 4]),
    param("cat with an empty tensor", "cat", ["2x3xf32", "2x0xf32", "2x1xf32"], 1),
    param("cat with a legacy empty tensor", "cat", ["0xf32", "2x3xf32"], 0),
    param("cat of different types", "cat", ["2x3xi1", "2x3xsi8", "2x3xf16"], 0),
    param("cat of one", "cat", ["2x3xf32"], 0),
    param("select from the end", "select.int", "2x3xf32", -1, -3),
    param("pad that only cuts", "constant_pad_nd", "4x5xf32", [-1, -2, 0, -1]),
    param("pad integers with a fraction", "constant_pad_nd", "3xsi64", [1, 1], -1.5),
    param("pad bools", "constant_pad_nd", "3xi1", [1, 1], 2.0),
    param("pad half precision with -infinity", "constant_pad_nd", "3xf16", [1, 1], -INF),
    param("as_strided that overlaps", "as_strided", "6xf32", [4, 3], [1, 1]),
    param("as_strided with step 0", "as_strided", "6xf32", [4, 3], [0, 2], 1),
    param("as_strided backwards in order", "as_strided", "6xf32", [3, 2], [1, 3]),
    param("as_strided 0-d", "as_strided", "6xf32", [], [], 4),
    param("permute of five dimensions", "permute", "1x2x3x2x2xf32", [4, -2, 0, 2, 1]),
]

INDICES = [
    param("index from the end", "index.Tensor", "4x5xf32", [values([-1, -4, 3], torch.int64)]),
    param("indices that broadcast", "index.Tensor", "4x5xf32", ["2x1xsi64[-4,3]", "3xsi64[-5,4]"]),
    param("indices with none between", "index.Tensor", "2x3x4x5xf32", ["3xsi64[0,1]", None, "2x1xsi64[-4,3]"]),
    param("indices in the middle", "index.Tensor", "2x3x4x5xf32", [None, "2xsi64[0,2]", "2xsi64[0,3]"]),
    param("index at the end", "index.Tensor", "2x3xf32", [None, "2x2xsi64[-3,2]"]),
    param("index of 32 bits", "index.Tensor", "4x5xf32", ["3xsi32[-4,3]"]),
    param("0-d index", "index.Tensor", "4x5xf32", ["si64[0,3]"]),
    param("0-d indices for everything", "index.Tensor", "4x5xf32", ["si64[0,3]", "si64[-5,4]"]),
    param("0-d index in the middle", "index.Tensor", "2x4x5xf32", [None, "si64[0,3]"]),
    param("index bools", "index.Tensor", "4x5xi1", ["3xsi64[0,3]"]),
    param("index without elements", "index.Tensor", "4x5xf32", [torch.zeros(0, dtype=torch.int64)]),
    param("index_select from the last", "index_select", "2x3x4xf32", -1, "5xsi32[0,3]"),
    param("index_select of long integers", "index_select", "4x3xsi64", 0, "5xsi64[0,3]"),
    param("gather of a smaller index", "gather", "4x5x3xf32", 1, "2x6x3xsi64[0,4]"),
    param("gather from the last", "gather", "4x5xsi64", -1, "4x2xsi64[0,4]"),
    param("embedding of half precision", "embedding", "7x3xf16", "2x4xsi32[0,6]"),
]


@pytest.mark.parametrize(("op", "args", "kwargs"), [*NUMBERS, *SHAPES, *INDICES])
def test_agrees(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], native: Native) -> None:
    assert_all_agree(make_case(op, args, kwargs), native)


REFUSED = [
    param("index with a byte mask", "index.Tensor", "4x5xf32", [values([1, 0, 1, 1], torch.uint8)]),
    param("complex numbers", "mul.Tensor", "3xcomplex<f32>", "3xcomplex<f32>"),
    param("the absolute value of a complex number", "abs", "3xcomplex<f32>"),
    param("unsigned integers of 32 bits as signed", "_to_copy", "3xui32[0,9]", dtype="si32"),
    param("signed integers as unsigned ones of 32 bits", "_to_copy", "3xsi8", dtype="ui32"),
    param("a constant beyond 32 bits", "full", [2], 2**40, dtype="si64"),
    param("a sum with a number beyond 32 bits", "add.Scalar", "3xsi64", 2**40),
    param("a double beyond float32", "full", [2], 1e300, dtype="f64"),
]


@pytest.mark.parametrize(("op", "args", "kwargs"), REFUSED)
def test_is_refused(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert_refused(make_case(op, args, kwargs))

"""The ranges themselves, and the transfer functions on floats, on ranges without bounds and with options."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from patcomp.ir import tensor
from patcomp.ir.types import TOKEN
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block
from patcomp.narrowing.ranges import (
    ANY_NUMBER,
    BOOL,
    FALSE,
    LONGEST,
    MOST_ELEMENTS,
    TRUE,
    Range,
    RangedOp,
    converted,
    hull,
    number,
    range_of_type,
)
from patcomp.narrowing.widths import Widths
from tests.helpers.ranged_ops import ranges_of

# ---- ranges themselves ---------------------------------------------------------------------------


def test_an_intersection_that_is_empty_is_the_other_range() -> None:
    assert Range(1, 5).clipped(Range(3, 9)) == Range(3, 5)
    assert Range(1, 3).clipped(Range(3, 9)) == Range(3, 3)
    assert Range(1, 2).clipped(Range(3, 9)) == Range(3, 9)
    assert Range(1, 5, rounded=True).clipped(Range(3, 9, size=True)) == Range(3, 5, rounded=True)


def test_ranges_of_types() -> None:
    assert range_of_type(tensor((2,), "i1")) == Range(0, 1)
    assert range_of_type(tensor((2,), "si8")) == Range(-128, 127)
    assert range_of_type(tensor((2,), "ui16")) == Range(0, 2**16 - 1)
    assert range_of_type(tensor((2,), "f16")) == Range(-65504.0, 65504.0)
    assert range_of_type(tensor((2,), "f64")) == Range(-math.inf, math.inf, rounded=True)
    assert range_of_type(TOKEN) == ANY_NUMBER


def test_lengths_of_dimensions() -> None:
    def length(shape: tuple[int | None, ...], dims: Any) -> int:
        return RangedOp({"self": Value(Block(arg_types=[tensor(shape, "f32")]).args[0])}, [], {}.__getitem__).length(
            dims
        )

    assert [length((2, 3, 4), dims) for dims in (None, [], 1, -1, [0, -1])] == [24, 24, 3, 4, 8]
    assert [length((2, None, None), dims) for dims in (0, 1, [0, 1], [1, 2], None)] == [
        2, LONGEST, 2 * LONGEST, MOST_ELEMENTS, 2 * MOST_ELEMENTS
    ]  # fmt: skip
    assert [length((), None), length((0, 3), None)] == [1, 1]


@pytest.mark.parametrize(
    ("range_", "source", "target", "expected"),
    [
        (Range(-3, 5), "si64", "i1", BOOL),
        (Range(0, 0), "si64", "i1", FALSE),
        (Range(1, 9), "f32", "i1", TRUE),
        (Range(-9, -1), "f32", "i1", TRUE),
        (Range(-9, 0), "f32", "i1", BOOL),
        (Range(-3, 5), "si64", "si32", Range(-3, 5)),
        (Range(-3.9, 5.9), "f32", "si32", Range(-3, 5)),
        (Range(-3.9, 5.9), "f32", "si64", Range(-3, 5, saturated=True)),
        (Range(0, 2.0**31), "f32", "ui64", Range(0, 2**31 + 2**13, saturated=True)),
        (Range(-(2.0**31), 0), "f32", "si64", Range(-(2**31) - 2**13, 0, saturated=True)),
        (Range(-math.inf, math.inf), "f32", "si64", Range(-math.inf, math.inf, saturated=True)),
        (Range(0, 2**24), "si64", "f64", Range(0, 2**24)),
        (Range(0, 2**24 + 1), "si64", "f64", Range(0, 2**24 + 1, rounded=True)),
        (Range(-(2**24) - 1, 0), "ui64", "f64", Range(-(2**24) - 1, 0, rounded=True)),
        (Range(0, 2**24 + 1), "si64", "f32", Range(0, 2**24 + 1)),
        (Range(0, 1, rounded=True), "f64", "f64", Range(0, 1, rounded=True)),
        (Range(0, 1, rounded=True), "f64", "f32", Range(0, 1)),
        (Range(0, 1), "f64", "f64", Range(0, 1)),
        (Range(0, 1, rounded=True), "f32", "f64", Range(0, 1)),
    ],
)
def test_casts(range_: Range, source: str, target: str, expected: Range) -> None:
    assert converted(range_, source, target) == expected


@pytest.mark.parametrize(
    ("value_", "expected"),
    [
        (True, Range(1, 1)),
        (3, Range(3, 3)),
        (0.5, Range(0.5, 0.5)),
        (0.1, Range(0.1, 0.1, rounded=True)),
        (2**24 + 1, Range(2**24 + 1, 2**24 + 1, rounded=True)),
        (1e300, Range(1e300, 1e300, rounded=True)),
        (math.inf, ANY_NUMBER),
        (math.nan, ANY_NUMBER),
    ],
)
def test_ranges_of_numbers(value_: float, expected: Range) -> None:
    assert number(value_) == expected


def test_hulls() -> None:
    assert hull([]) == FALSE
    assert hull([Range(1, 2), Range(-1, 0)]) == Range(-1, 2)
    for flag in ("rounded", "saturated", "size"):
        assert hull([Range(1, 2), replace(Range(3, 4), **{flag: True})]) == replace(Range(1, 4), **{flag: True})
    assert hull([Range(1, 2), Range(0, math.inf)]) == Range(0, math.inf)
    assert Range(0, math.inf) * Range(0, 0) == Range(0, 0)
    assert Range(0, math.inf) * Range(-1, 2) == ANY_NUMBER
    assert Range(0, math.inf) - Range(0, math.inf) == ANY_NUMBER
    assert Range(0, 1, rounded=True) + Range(0, 1) == Range(0, 2, rounded=True)
    assert (Range(2, 3).sums(4), Range(-2, 3).sums(4), Range(-3, -2).sums(2)) == (
        Range(2, 12),
        Range(-8, 12),
        Range(-6, -2),
    )


# ---- floats, and numbers without bounds ----------------------------------------------------------

INF = math.inf
ROUNDED = Range(-2.0, 3.0, rounded=True)


def unary(name: str, range_: Range, dtype: str = "f32", shape: tuple[int | None, ...] = (2, 3), **more: Any) -> Range:
    operand = Value(Block(arg_types=[tensor(shape, dtype)]).args[0])
    return ranges_of(name, {"self": operand, **more}, [operand], {operand: range_})[0]


def two(name: str, first: Range, second: Range, dtype: str = "f32", **more: Any) -> Range:
    operands = [Value(Block(arg_types=[tensor((2, 3), dtype)]).args[0]) for _ in range(2)]
    names = ("self", "exponent" if name.startswith("pow") else "other")
    known = dict(zip(operands, (first, second), strict=True))
    return ranges_of(name, dict(zip(names, operands, strict=True)) | more, operands[:1], known)[0]


FLOATS_OF_ONE: list[tuple[str, Range, Range]] = [
    ("sqrt", Range(4.0, 9.0), Range(2.0, 3.0)),
    ("sqrt", Range(-4.0, 9.0, rounded=True), Range(0.0, 3.0, rounded=True)),
    ("rsqrt", Range(0.0, 4.0), Range(0, INF)),
    ("reciprocal", Range(-1.0, 4.0), ANY_NUMBER),
    ("reciprocal", ROUNDED, replace(ANY_NUMBER, rounded=True)),
    ("log2", Range(1.0, 8.0), Range(0.0, 3.0)),
    ("log2", Range(0.0, 8.0), Range(-149.0, 3.0)),
    ("log", Range(1.0, INF), Range(0.0, INF)),
    ("log10", Range(1.0, 1.0, rounded=True), Range(0.0, 0.0, rounded=True)),
    *((name, ROUNDED, Range(0, 1, rounded=True)) for name in ("sigmoid", "_softmax", "hardsigmoid")),
    *((name, ROUNDED, Range(-1, 1, rounded=True)) for name in ("tanh", "sin", "cos", "erf")),
    *((name, ROUNDED, Range(0, INF, rounded=True)) for name in ("exp", "exp2", "cosh", "linalg_vector_norm")),
    ("expm1", Range(0, 1), Range(-1, INF)),
    *((name, Range(0, 1), Range(-math.pi / 2, math.pi / 2)) for name in ("asin", "atan")),
    ("acos", Range(0, 1), Range(0, math.pi)),
    *(
        (name, Range(-1.5, 2.5, rounded=True), Range(-2, 3, rounded=True))
        for name in ("floor", "ceil", "round", "trunc")
    ),
    ("floor", Range(-INF, 2.5), Range(-INF, 3)),
    ("ceil", Range(-2.5, INF), Range(-3, INF)),
]


@pytest.mark.parametrize(("name", "range_", "expected"), FLOATS_OF_ONE)
def test_functions_of_floats(name: str, range_: Range, expected: Range) -> None:
    found = unary(name, range_)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.rounded == expected.rounded


def test_logarithms_of_the_smallest_numbers() -> None:
    assert [unary("log2", Range(0.0, 8.0), dtype).low for dtype in ("f16", "f32", "f64")] == [-24, -149, -1074]


TWO: list[tuple[str, Range, Range, str, Range]] = [
    ("div.Tensor", Range(1.0, 4.0), Range(2.0, 8.0), "f32", Range(0.125, 2.0)),
    ("div.Tensor", Range(-1.0, 4.0), Range(-8.0, -2.0, rounded=True), "f32", Range(-2.0, 0.5, rounded=True)),
    ("div.Tensor", Range(1.0, 4.0), Range(0.0, 8.0), "f32", ANY_NUMBER),
    ("div.Tensor", ROUNDED, Range(-1.0, 0.0), "f32", replace(ANY_NUMBER, rounded=True)),
    ("div.Tensor", Range(1.0, INF), Range(2.0, 8.0), "f32", Range(0.125, INF)),
    ("div.Tensor", Range(1.0, 4.0), Range(2.0, INF), "f32", Range(0.0, 2.0)),
    ("div.Tensor", Range(1.0, INF), Range(2.0, INF), "f32", ANY_NUMBER),
    ("div.Tensor_mode", ROUNDED, Range(2.0, 8.0), "f32", replace(ANY_NUMBER, rounded=True)),
    ("div.Tensor_mode", Range(-7, 5), Range(0, 3), "si64", Range(-7, 7)),
    ("div.Tensor_mode", Range(-7, 5), Range(-3, 0), "si64", Range(-7, 7)),
    ("div.Tensor_mode", Range(-7, 5), Range(1, INF), "si64", Range(-7, 7)),
    ("div.Tensor_mode", Range(-INF, 5), Range(1, 2), "si64", ANY_NUMBER),
    ("remainder.Tensor", ROUNDED, Range(2.0, 8.0), "f32", Range(0, 8.0, rounded=True)),
    ("remainder.Tensor", Range(1.0, 2.0), Range(-8.0, -2.0), "f32", Range(-8.0, 0)),
    ("fmod.Tensor", Range(-100.0, 3.0), Range(-8.0, 2.0, rounded=True), "f32", Range(-8.0, 3.0, rounded=True)),
    ("fmod.Tensor", ROUNDED, Range(2.0, 8.0), "f32", Range(-2.0, 3.0, rounded=True)),
    ("div.Scalar", Range(1.0, 4.0), Range(2.0, 2.0), "f32", Range(0.5, 2.0)),
    ("fmod.Scalar", Range(-100, 3), Range(8, 8), "si64", Range(-7, 3)),
    ("remainder.Scalar", Range(0, 3), Range(8, 8), "si64", Range(0, 3)),
    ("remainder.Scalar_Tensor", Range(-1, 3), Range(8, 8), "si64", Range(0, 7)),
    ("pow.Tensor_Tensor", Range(-3, 2), Range(0, 3), "si64", Range(-27, 27)),
    ("pow.Tensor_Tensor", Range(0, 2), Range(-3, 3), "si64", Range(0, 8)),
    ("pow.Tensor_Tensor", Range(-1, 1), Range(0, 999), "si64", Range(-1, 1)),
    ("pow.Tensor_Tensor", Range(0, 2), Range(0, 65), "si64", Range(0, INF)),
    ("pow.Tensor_Tensor", Range(0, 2), Range(0, 64), "si64", Range(0, 2**64)),
    ("pow.Tensor_Tensor", Range(-INF, 2), Range(0, 2), "si64", ANY_NUMBER),
    ("pow.Tensor_Tensor", Range(-3, 2), Range(2, 2), "si64", Range(0, 9)),
    ("pow.Tensor_Tensor", Range(-3, 2), Range(-2, -2), "si64", Range(0, 1)),
    ("pow.Scalar", Range(2.0, 2.0), ROUNDED, "f32", Range(0, INF, rounded=True)),
    ("pow.Tensor_Scalar", ROUNDED, Range(2, 2), "f32", Range(0, INF, rounded=True)),
    ("pow.Tensor_Scalar", ROUNDED, Range(3, 3), "f32", Range(-INF, INF, rounded=True)),
    ("bitwise_and.Tensor", Range(-INF, 3), Range(-5, 2), "si64", Range(-INF, 3)),
    ("bitwise_or.Tensor", Range(0, 4), Range(0, 3), "si64", Range(0, 7)),
    ("bitwise_or.Tensor", Range(-8, 4), Range(0, 3), "si64", Range(-8, 7)),
    ("bitwise_xor.Tensor", Range(-9, 4), Range(0, 3), "si64", Range(-16, 15)),
    ("mul.Tensor", Range(0, 9, size=True), Range(0, 9, size=True), "si64", Range(0, MOST_ELEMENTS, size=True)),
    ("mul.Tensor", Range(0, 9, size=True), Range(0, 9), "si64", Range(0, 81)),
]


@pytest.mark.parametrize(("name", "first", "second", "dtype", "expected"), TWO)
def test_functions_of_two_operands(name: str, first: Range, second: Range, dtype: str, expected: Range) -> None:
    more = {"rounding_mode": "floor"} if name.startswith("div") else {}
    assert two(name, first, second, dtype, **more) == expected


def test_a_square_is_not_negative() -> None:
    operand = Value(Block(arg_types=[tensor((2,), "si64")]).args[0])
    given = {"self": operand, "other": operand}
    assert ranges_of("mul.Tensor", given, [operand], {operand: Range(-3, 2)}) == [Range(0, 9)]


@pytest.mark.parametrize(
    ("dtype", "range_", "shape", "expected"),
    [
        ("si64", Range(-2, 3), (4,), Range(-81, 81)),
        ("si64", Range(0, 3), (4,), Range(0, 81)),
        ("si64", Range(-1, 1), (99,), Range(-1, 1)),
        ("si64", Range(0, 2), (65,), Range(0, INF)),
        ("si64", Range(0, 2), (64,), Range(0, 2**64)),
        ("si64", Range(0, INF), (2,), Range(0, INF)),
        ("f32", Range(0.0, 2.0, rounded=True), (2,), Range(0, INF, rounded=True)),
        ("f32", Range(-1.0, 0.5), (2,), Range(-1, 1)),
    ],
)
def test_products(dtype: str, range_: Range, shape: tuple[int, ...], expected: Range) -> None:
    assert [unary(name, range_, dtype, shape, dim=0) for name in ("prod", "prod.dim_int", "cumprod")] == [expected] * 3


@pytest.mark.parametrize(
    ("start", "end", "step", "count", "dtype", "expected"),
    [
        (0, 5, 1, 5, "si64", Range(0, 4)),
        (2, 9, 3, 3, "si64", Range(2, 8)),
        (9, 2, -3, 3, "si64", Range(3, 9)),
        (4, 5, 1, 1, "si64", Range(4, 4)),
        (4, 4, 1, 0, "si64", Range(4, 4)),
        (0.5, 2.0, 0.5, 3, "f32", Range(0.5, 1.5)),
        (0, Range(3, 9), 1, None, "si64", Range(0, 8)),
        (0, Range(3, 9, size=True), 1, None, "si64", Range(0, LONGEST - 1)),
        (5, Range(3, 9), 1, None, "si64", Range(5, 8)),
    ],
)
def test_counted_numbers(start: Any, end: Any, step: Any, count: Any, dtype: str, expected: Range) -> None:
    last, result = (Value(Block(arg_types=[tensor(shape, dtype)]).args[0]) for shape in ((), (count,)))
    known = {last: end if isinstance(end, Range) else Range(end, end)}
    assert ranges_of("arange.start_step", {"start": start, "end": last, "step": step}, [result], known) == [expected]


def test_numbers_that_are_written_or_summed_at_positions() -> None:
    base, values = (Value(Block(arg_types=[tensor((4,), "si64")]).args[0]) for _ in range(2))
    known = {base: Range(-1, 5), values: Range(-2, 3)}

    def put(name: str, source: str, **more: Any) -> Range:
        return ranges_of(name, {"self": base, source: values, **more}, [base], known)[0]

    hull_, sums = Range(-2, 5), Range(-9, 17)
    for name in ("index_put", "_index_put_impl", "_unsafe_index_put"):
        assert put(name, "values", accumulate=False) == hull_
        assert put(name, "values", accumulate=True) == sums
    assert put("scatter_add", "src") == sums
    for name in ("scatter_reduce.two", "scatter.reduce"):
        assert [put(name, "src", reduce=reduce) for reduce in ("amax", "amin", "mean")] == [hull_] * 3
        assert [put(name, "src", reduce=reduce) for reduce in ("sum", "add")] == [sums] * 2
        assert put(name, "src", reduce="prod") == ANY_NUMBER


def test_what_a_condition_chooses() -> None:
    condition, a, b = (Value(Block(arg_types=[tensor((4,), "si64")]).args[0]) for _ in range(3))
    for truth, expected in ((TRUE, Range(1, 2)), (FALSE, Range(5, 6)), (BOOL, Range(1, 6))):
        known = {condition: truth, a: Range(1, 2), b: Range(5, 6)}
        for name in ("where.self", "where.Scalar", "where.ScalarSelf", "where.ScalarOther"):
            assert ranges_of(name, {"condition": condition, "self": a, "other": b}, [a], known) == [expected]


def test_sizes_and_positions() -> None:
    shape = (2, None, 7)
    assert unary("sym_size.int", Range(0, 0), shape=shape, dim=1) == Range(0, LONGEST, size=True)
    assert unary("sym_size.int", Range(0, 0), shape=shape, dim=-1) == Range(7, 7)
    assert unary("nonzero", Range(0, 0), shape=(2, 7)) == Range(0, 6)
    assert unary("nonzero", Range(0, 0), shape=(0,)) == Range(0, 0)
    assert unary("nonzero", Range(0, 0), shape=shape) == Range(0, LONGEST - 1)
    left, right = (Value(Block(arg_types=[tensor(shape, "si64")]).args[0]) for shape in ((2, None), (None, 3)))
    found = ranges_of("mm", {"self": left, "mat2": right}, [left], {left: Range(0, 2), right: Range(0, 3)})
    assert found == [Range(0, 6 * LONGEST)]


@pytest.mark.parametrize("dtype", ["si64", "f32"])
@pytest.mark.parametrize("name", ["clamp", "hardtanh"])
def test_bounds_that_are_given(name: str, dtype: str) -> None:
    suffix = "_val" if name == "hardtanh" else ""
    given = {f"min{suffix}": -1, f"max{suffix}": 2}
    assert unary(name, Range(-9, 9, rounded=True), dtype, **given) == Range(-1, 2, rounded=True)
    assert unary(name, Range(0, 1), dtype, **given) == Range(0, 1)
    half = unary(name, Range(0, 9), dtype, **{f"min{suffix}": 1.5, f"max{suffix}": 2.5})
    assert half == (Range(1.5, 2.5) if dtype == "f32" else Range(1, 2))


def test_types_after_lowering() -> None:
    names = ("si64", "ui64", "f64", "si32", "f32", "i1")
    types = [tensor((2, None), name) for name in names]

    def spelled(**choices: Any) -> list[str]:
        return [str(Widths(**choices).of(type_)) for type_ in types]

    narrow = [str(tensor((2, None), name)) for name in ("si32", "ui32", "f32", "si32", "f32", "i1")]
    kept = list(map(str, types))
    assert spelled() == spelled(int64="error", float64="error") == narrow
    assert spelled(int64="keep") == [*kept[:2], *narrow[2:]]
    assert spelled(float64="keep") == [*narrow[:2], kept[2], *narrow[3:]]
    assert spelled(int64="keep", float64="keep") == kept
    assert Widths("keep", "keep").of(tensor((2,), "complex<f64>")) == Widths().of(tensor((2,), "complex<f64>"))
    assert Widths().of(TOKEN) is TOKEN

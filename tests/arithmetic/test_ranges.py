"""Ranges (`narrowing`): every transfer function on ranges with and without ends, against PyTorch on many numbers.

`tests/narrowing/test_ranges.py` says for which ranges of numbers the results are exact; here no number may be outside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from patcomp.ir.aten_facts import facts_of, ops_where
from patcomp.ir.value import Value
from patcomp.narrowing.ranges import Range, converted
from patcomp.narrowing.transfer_functions import TRANSFER
from tests.helpers.ranged_ops import OPS, Filled, function_of, mapped, overload, ranges_of, value

INF = math.inf
ENDS = (-INF, -3, -1, 0, 1, 2, INF)
RANGES = [
    (low, high) for low, high in itertools.combinations_with_replacement(ENDS, 2) if abs(low) < INF or low != high
]
WHOLE = torch.arange(-6, 7)


def members(numbers: torch.Tensor, range_: tuple[float, float]) -> torch.Tensor:
    """The numbers that are in a range."""
    return numbers[(numbers >= range_[0]) & (numbers <= range_[1])]


def check(found: Range, real: torch.Tensor, *where: object) -> None:
    """Ranges hold for finite numbers."""
    real = real.double()
    real = real[real.isfinite()]
    slack = 1e-6 * real.abs()
    assert bool((real + slack >= found.low).all()), (*where, found, float(real.min()))
    assert bool((real - slack <= found.high).all()), (*where, found, float(real.max()))


# ---- ranges themselves ---------------------------------------------------------------------------

PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_arithmetic_of_ranges(name: str) -> None:
    for one, other in itertools.product(RANGES, repeat=2):
        left, right = members(WHOLE, one), members(WHOLE, other)
        check(PAIRS[name](Range(*one), Range(*other)), PAIRS[name](left[:, None], right[None]), one, other)


def test_other_operations_of_ranges() -> None:
    for one in RANGES:
        x, range_ = members(WHOLE, one), Range(*one)
        check(-range_, -x, one)
        check(abs(range_), x.abs(), one)
        assert range_.magnitude == max(abs(one[0]), abs(one[1]))
        for count in (1, 2, 3):
            sums = torch.stack([sum(each) for n in range(1, count + 1) for each in itertools.product(x[:5], repeat=n)])  # type: ignore[arg-type]
            check(range_.sums(count), sums, one, count)
        for other in RANGES:
            y = members(WHOLE, other)
            check(range_ | Range(*other), torch.cat([x, y]), one, other)
            both = members(x, other)
            check(range_.clipped(Range(*other)), both, one, other)
            assert range_.within(Range(*other)) == (other[0] <= one[0] and one[1] <= other[1])


NARROW = {"si8": torch.int8, "ui8": torch.uint8, "i1": torch.bool, "si32": torch.int32, "f32": torch.float32}


@pytest.mark.parametrize("target", NARROW)
def test_casts_of_ranges(target: str) -> None:
    """Integers that fit stay, and fractions are cut toward zero."""
    for one in RANGES:
        for source, numbers in (("si64", WHOLE), ("f32", torch.arange(-24, 25) / 4)):
            x = members(numbers, one)
            if target == "ui8":
                x = x[x > -1]
            check(converted(Range(*one), source, target), x.to(NARROW[target]), one, source)


# ---- element-wise ops ----------------------------------------------------------------------------

FLOATS = torch.cat([torch.arange(-24, 25) / 4, torch.tensor([1e30, -1e30, 1e-30, -1e-30])])
UNARY = """
neg abs sign relu bitwise_not logical_not floor ceil round trunc sigmoid tanh sin cos erf exp exp2 cosh expm1
asin atan acos log log2 log10 sqrt rsqrt reciprocal hardsigmoid
""".split()  # noqa: SIM905
BINARY = """
add.Tensor sub.Tensor rsub.Tensor mul.Tensor div.Tensor remainder.Tensor fmod.Tensor maximum minimum gcd
bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor eq.Tensor ne.Tensor
pow.Tensor_Tensor
""".split()  # noqa: SIM905
OF_INTEGERS = {"bitwise_not", "gcd", "bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor"}
OF_FLOATS = set(UNARY[UNARY.index("sigmoid") :]) | {"div.Tensor"}
WITH_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *(("clamp", {"min": low, "max": high}) for low, high in [(-2, 1), (None, 0), (1, None), (2, -1)]),
    ("hardtanh", {"min_val": -1, "max_val": 2}),
    *(
        (f"{name}.Scalar", {"other": other})
        for name in ("add", "sub", "rsub", "mul", "lt", "le", "gt", "ge", "eq", "ne")
        for other in (-3, 0, 2)
    ),
    *((f"{name}.Scalar", {"other": other}) for name in ("remainder", "fmod", "div") for other in (-3, 2)),
    *(
        (f"{name}.Scalar", {"other": other})
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
        for other in (-3, 5)
    ),
    *(("pow.Tensor_Scalar", {"exponent": exponent}) for exponent in (0, 1, 2, 3)),
    *(("pow.Scalar", {"self": base}) for base in (-2, 0, 1, 2)),
    *(("div.Scalar_mode", {"other": 2, "rounding_mode": mode}) for mode in ("floor", "trunc")),
    ("remainder.Scalar_Tensor", {"self": 5}),
]


def kinds(name: str) -> Iterator[torch.Tensor]:
    """Whole numbers, and floats, as far as an op takes them."""
    if name.partition(".")[0] not in {each.partition(".")[0] for each in OF_FLOATS}:
        yield WHOLE
    if name.partition(".")[0] not in {each.partition(".")[0] for each in OF_INTEGERS}:
        yield FLOATS


@pytest.mark.parametrize("name", UNARY)
def test_ops_of_one_operand(name: str) -> None:
    for numbers in kinds(name):
        check_one(name, numbers, {})


@pytest.mark.parametrize(("name", "options"), WITH_OPTIONS, ids=lambda each: str(each))
def test_ops_with_numbers(name: str, options: dict[str, Any]) -> None:
    for numbers in kinds(name):
        check_one(name, numbers, options)


def check_one(name: str, numbers: torch.Tensor, options: dict[str, Any]) -> None:
    free = next(each.name for each in overload(name)._schema.arguments if each.name not in options)
    for range_ in RANGES:
        x = members(numbers, range_)
        if name.startswith("remainder") and free == "other":
            x = x[x != 0]
        real = overload(name)(**{free: x}, **options)
        operand = value(x)
        (found,) = ranges_of(
            name, {free: operand, **defaults(name), **options}, [value(real)], {operand: Range(*range_)}
        )
        check(found, real, range_, options, numbers.dtype)


def defaults(name: str) -> dict[str, Any]:
    return {each.name: each.default_value for each in overload(name)._schema.arguments if each.has_default_value()}


TWO: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in BINARY),
    *((f"{name}.Tensor", {"alpha": -2}) for name in ("add", "sub", "rsub")),
    *(("div.Tensor_mode", {"rounding_mode": mode}) for mode in ("floor", "trunc")),
]


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "options"), TWO, ids=lambda each: str(each))
def test_ops_of_two_operands(name: str, options: dict[str, Any], every: int) -> None:
    """On every seventh pair of ranges, and on all."""
    for numbers in kinds(name):
        check_two(name, numbers, options, every)


def check_two(name: str, numbers: torch.Tensor, options: dict[str, Any], every: int) -> None:
    first, second = [each.name for each in overload(name)._schema.arguments][:2]
    divides = name.startswith(("div", "remainder", "fmod"))
    for one, other in itertools.islice(itertools.product(RANGES, repeat=2), 0, None, every):
        x, y = members(numbers, one), members(numbers, other)
        if numbers is WHOLE:
            y = y[y != 0] if divides else y[y >= 0] if name.startswith("pow") else y
        if not y.numel():
            continue
        real = overload(name)(x[:, None], y[None], **options)
        left, right = value(x), value(y)
        given = {first: left, second: right, **defaults(name), **options}
        (found,) = ranges_of(name, given, [value(real)], {left: Range(*one), right: Range(*other)})
        check(found, real, one, other, options, numbers.dtype)


# ---- ops of tensors ------------------------------------------------------------------------------

X, Y = Filled((2, 3), 0, 0), Filled((2, 3), 1, 1)  # their ranges are those of `SPANS`
ROW = torch.tensor([[0, 1, 1]])
MORE: list[tuple[str, tuple[Any, ...]]] = [
    ("prod", (X,)),
    ("prod.dim_int", (X, 1)),
    ("cumprod", (X, -1)),
    ("scatter_add", (X, 0, ROW, Y)),
    *(("scatter_reduce.two", (X, 0, ROW, Y, how)) for how in ("sum", "prod", "mean", "amax", "amin")),
    ("index_put", (X, [torch.tensor([0, 0])], Filled((2, 3), 1, 1), True)),
    ("logical_and", (X, Y)),
    ("any.dim", (X, 1)),
    ("gather", (X, 1, ROW)),
    ("flip", (X, [0])),
    ("arange.start_step", (-3, 7, 2)),
    ("arange.start_step", (5, -4, -3)),
    ("repeat_interleave.Tensor", (torch.tensor([2, 0, 3]),)),
]
MOVES = [*OPS, *MORE]
SPANS = [(-5, 2), (0, 3), (-4, -1), (2, 2), (-1, 0)]
TENSORS = 40


@pytest.mark.parametrize(("name", "arguments"), MOVES, ids=[f"{name} {place}" for place, (name, _) in enumerate(MOVES)])
def test_ops_of_tensors_of_both_ends(name: str, arguments: tuple[Any, ...]) -> None:
    """On tensors whose elements are the smallest or the largest numbers of a range, and what is between."""
    generator = torch.Generator().manual_seed(0)
    for low, high in SPANS:
        values: dict[Any, Value] = {}
        known: dict[Value, Range] = {}

        def drawn(each: Any, low: int = low, high: int = high) -> Any:
            if not isinstance(each, Filled):
                return each
            ends = torch.randint(0, 2, each.shape, generator=generator).bool()
            made = torch.where(ends, torch.tensor(low), torch.tensor(high)).to(each.dtype)
            between = torch.randint(low, high + 1, each.shape, generator=generator)
            return torch.where(torch.rand(each.shape, generator=generator) < 0.2, between.to(each.dtype), made)

        def as_value(each: Any, low: int = low, high: int = high, values: Any = values, known: Any = known) -> Any:
            if isinstance(each, Filled):
                values.setdefault(each, value(torch.empty(each.shape, dtype=each.dtype)))
                known[values[each]] = Range(low, high)
                return values[each]
            constant = value(each)
            known[constant] = Range(each.min().item(), each.max().item())
            return constant

        real: list[list[torch.Tensor]] = []
        for _ in range(TENSORS):
            made = overload(name)(*mapped(arguments, drawn))
            real.append([torch.as_tensor(each) for each in (made if isinstance(made, tuple | list) else [made])])
        schema = overload(name)._schema.arguments
        given = {argument.name: argument.default_value for argument in schema}
        given |= dict(zip(given, mapped(arguments, as_value), strict=False))
        found = ranges_of(name, given, [value(each) for each in real[0]], known)
        for range_, results in zip(found, zip(*real, strict=True), strict=True):
            check(range_, torch.cat([each.reshape(-1) for each in results]), low, high)


def test_every_transfer_function_is_checked() -> None:
    """Those of ops that only move numbers are one function, which is checked by a few of them."""
    by_hand = {"empty_permuted", "_to_copy"}  # not the numbers of PyTorch's empty tensors; `converted`, above
    checked = {
        *UNARY,
        *BINARY,
        "div.Tensor_mode",
        *(name for name, _ in WITH_OPTIONS),
        *(name for name, _ in MOVES),
        *by_hand,
    }
    assert {function_of(name) for name in checked} == set(TRANSFER.values())
    assert {facts_of(name).range for name in ops_where("range")} | {"self"} == set(TRANSFER)

"""The ranges of each op's results, against PyTorch's own results on all numbers of small ranges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from typing import Any

import pytest
import torch

from patcomp.ir.value import Value
from patcomp.narrowing.ranges import (
    Range,
)
from tests.helpers.ranged_ops import OPS, Filled, mapped, overload, ranges_of, value

BOUNDS = (-7, -4, -1, 0, 1, 3, 8)
INTERVALS = list(combinations_with_replacement(BOUNDS, 2))
NUMBERS = torch.arange(BOUNDS[0], BOUNDS[-1] + 1)


def inside(table: torch.Tensor, *intervals: tuple[int, int]) -> torch.Tensor:
    """The part of a table over `NUMBERS` whose operands are in some intervals."""
    first = BOUNDS[0]
    return table[tuple(slice(low - first, high - first + 1) for low, high in intervals)]


# ---- elementwise integers ------------------------------------------------------------------------

Arguments = dict[str, Any]
UNARY: dict[str, list[Arguments]] = {
    **{name: [{}] for name in ("neg", "abs", "sign", "relu", "bitwise_not")},
    "logical_not": [{}],
    "clamp": [{"min": -2, "max": 5}, {"min": 4}, {"max": -3}, {"min": 1, "max": -1}],
    "add.Scalar": [{"other": 3, "alpha": -2}],
    "sub.Scalar": [{"other": 3, "alpha": -2}],
    "rsub.Scalar": [{"other": 3, "alpha": -2}],
    "mul.Scalar": [{"other": -3}, {"other": 0}],
    **{f"{name}.Scalar": [{"other": other} for other in (-7, 0, 8)] for name in ("lt", "le", "gt", "ge", "eq", "ne")},
}
BINARY: dict[str, list[Arguments]] = {
    "add.Tensor": [{"alpha": 1}, {"alpha": -3}],
    "sub.Tensor": [{"alpha": 1}, {"alpha": -3}],
    "rsub.Tensor": [{"alpha": 1}, {"alpha": -3}],
    **{name: [{}] for name in ("mul.Tensor", "maximum", "minimum")},
    **{f"{name}.Tensor": [{}] for name in ("lt", "le", "gt", "ge", "eq", "ne")},
}


@pytest.mark.parametrize("name", UNARY)
def test_ranges_of_one_operand_are_exact(name: str) -> None:
    operand = value(NUMBERS)
    for arguments in UNARY[name]:
        table = overload(name)(NUMBERS, **arguments)
        for interval in INTERVALS:
            known = {operand: Range(*interval)}
            (found,) = ranges_of(name, {"self": operand, **arguments}, [value(table)], known)
            real = inside(table, interval)
            if name == "logical_not":
                real = real if 0 in range(interval[0], interval[1] + 1) else real.logical_and(real)
            assert (found.low, found.high) == (int(real.min()), int(real.max())), (arguments, interval)


@pytest.mark.parametrize("name", BINARY)
def test_ranges_of_two_operands_are_exact(name: str) -> None:
    for arguments in BINARY[name]:
        for first, second, found, real in pairs(name, **arguments):
            assert (found.low, found.high) == (int(real.min()), int(real.max())), (arguments, first, second)


def pairs(name: str, **arguments: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int], Range, torch.Tensor]]:
    """For each two intervals: the range that is found, and PyTorch's results on all their numbers."""
    left, right = value(NUMBERS), value(NUMBERS)
    others = NUMBERS[NUMBERS != 0] if name.startswith(("div", "remainder", "fmod")) else NUMBERS
    table = overload(name)(NUMBERS[:, None], others[None], **arguments)
    if len(others) < len(NUMBERS):  # a column for zero, which intervals leave out
        zero = -BOUNDS[0]
        table = torch.cat([table[:, :zero], table[:, :1] * 0, table[:, zero:]], dim=1)
    for first, second in product(INTERVALS, INTERVALS):
        if len(others) < len(NUMBERS) and second[0] <= 0 <= second[1]:
            continue
        known = {left: Range(*first), right: Range(*second)}
        (found,) = ranges_of(name, {"self": left, "other": right, **arguments}, [value(table)], known)
        yield first, second, found, inside(table, first, second)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_rounded_quotients_are_exact(mode: str) -> None:
    for first, second, found, real in pairs("div.Tensor_mode", rounding_mode=mode):
        assert (found.low, found.high) == (int(real.min()), int(real.max())), (first, second)


EXACT_BOUNDS = {
    "gcd": 786, "bitwise_and.Tensor": 1347, "bitwise_or.Tensor": 277, "bitwise_xor.Tensor": 663,
    "remainder.Tensor": 590, "fmod.Tensor": 621,
}  # fmt: skip
"""How many bounds are exact. More would be by accident; with fewer, the analysis warns more often."""


@pytest.mark.parametrize("name", EXACT_BOUNDS)
def test_other_ranges_have_all_numbers(name: str) -> None:
    exact = 0
    for first, second, found, real in pairs(name):
        low, high = int(real.min()), int(real.max())
        assert found.low <= low, (first, second)
        assert found.high >= high, (first, second)
        exact += (found.low == low) + (found.high == high)
    assert exact == EXACT_BOUNDS[name]


def test_powers_have_all_numbers() -> None:
    base, exact = value(NUMBERS), 0
    for exponent, interval in product(range(5), INTERVALS):
        real = inside(NUMBERS**exponent, interval)
        given = {"self": base, "exponent": exponent}
        (found,) = ranges_of("pow.Tensor_Scalar", given, [base], {base: Range(*interval)})
        assert found.low <= real.min() <= real.max() <= found.high, (exponent, interval)
        exact += (found.low == int(real.min())) + (found.high == int(real.max()))
    assert exact == 178


# ---- ops of tensors: all elements are the smallest or the largest number of their range ------------


WIDER = {
    "argmax", "argmin", "topk", "max.dim", "sort", "cummin", "nonzero", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "sum", "where.self", "abs",
}  # fmt: skip
"""Ops whose positions, or counts, are not all reached by tensors of equal elements."""


@pytest.mark.parametrize(("name", "arguments"), OPS, ids=[f"{name} {place}" for place, (name, _) in enumerate(OPS)])
def test_ranges_of_tensors(name: str, arguments: tuple[Any, ...]) -> None:
    found, real = compared(name, arguments)
    for range_, numbers in zip(found, real, strict=True):
        bounds = numbers.min().item(), numbers.max().item()
        assert range_.low <= bounds[0] <= bounds[1] <= range_.high
        assert name in WIDER or (range_.low, range_.high) == bounds


def compared(name: str, arguments: tuple[Any, ...]) -> tuple[list[Range], list[torch.Tensor]]:
    """The range of each result, and all numbers that it has."""
    filled = [each for argument in arguments for each in (argument if isinstance(argument, list) else [argument])]
    filled = list(dict.fromkeys(each for each in filled if isinstance(each, Filled)))
    outputs = []
    for bounds in product("lh", repeat=len(filled)):
        made = {
            each: torch.full(each.shape, each.low if bound == "l" else each.high, dtype=each.dtype)
            for each, bound in zip(filled, bounds, strict=True)
        }
        result = overload(name)(*mapped(arguments, lambda each, made=made: made.get(each, each)))
        result = list(result) if isinstance(result, tuple | list) else [result]
        outputs.append([torch.as_tensor(each) for each in result])
    values: dict[Any, Value] = {each: value(torch.empty(each.shape, dtype=each.dtype)) for each in filled}
    known = {values[each]: Range(each.low, each.high) for each in filled}

    def as_value(argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            constant = value(argument)
            known[constant] = Range(argument.min().item(), argument.max().item())
            return constant
        return values.get(argument, argument) if isinstance(argument, Filled) else argument

    schema = overload(name)._schema.arguments
    given = {argument.name: argument.default_value for argument in schema}
    given |= dict(zip(given, mapped(arguments, as_value), strict=False))
    found = ranges_of(name, given, [value(each) for each in outputs[0]], known)
    return found, [torch.cat([each.reshape(-1) for each in result]) for result in zip(*outputs, strict=True)]

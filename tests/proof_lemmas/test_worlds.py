"""Worlds of symbols: which numbers constants stand for, arithmetic, and orders."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from patcomp_lab.proof.worlds import CODE_OF_INFINITY, MINUS_INFINITY, SIGN, CodeKind, P, World


def code(number: Fraction) -> int:
    return number.numerator * pow(number.denominator, -1, P) % P


RATIONAL = {
    0.0: Fraction(0), -3.0: Fraction(-3), 0.375: Fraction(3, 8), 2.0**-12: Fraction(1, 4096), 1e6: Fraction(10**6),
    0.1: Fraction(1, 10), float(np.float32(1e-5)): Fraction(1, 10**5), -1e-8: Fraction(-1, 10**8),
    0.044715: Fraction(44715, 10**6), 1 / 3: Fraction(1, 3), float(np.float16(1 / 3)): Fraction(1365, 4096),
    float(np.float32(-5 / 7)): Fraction(-5, 7), 1 / 63: Fraction(1, 63),
}  # fmt: skip


@pytest.mark.parametrize("number", RATIONAL)
def test_a_constant_is_the_fraction_that_was_rounded(number: float) -> None:
    world = World(CodeKind.REALS)
    assert world.number_of(number) == code(RATIONAL[number])
    assert world.constants == {code(RATIONAL[number]): number}


@pytest.mark.parametrize("square", [2.0, 3.0, 0.5, 1e-5, 10.0, 1 / 8])
def test_a_constant_is_the_root_that_was_rounded(square: float) -> None:
    world = World(CodeKind.REALS)
    for root in (math.sqrt(square), float(np.float32(math.sqrt(square)))):
        made = world.number_of(root)
        assert made * made % P == world.number_of(square)
        assert bool(world.is_positive(torch.tensor(made)))


def test_other_constants_have_codes_of_their_own() -> None:
    one, other = World(CodeKind.REALS), World(CodeKind.REALS, 1)
    for number in (math.pi, 1.2357913791, 0.7978845608028654**3):
        made, inverse = one.number_of(number), one.number_of(1 / number)
        assert made * inverse % P == 1
        assert (made + one.number_of(-number)) % P == 0
        assert one.number_of(float(np.float32(number))) == made
        assert one.number_of(number * 1.001) != made
        assert other.number_of(number) != made
    assert one.number_of(math.inf) == CODE_OF_INFINITY
    assert one.number_of(-math.inf) == MINUS_INFINITY
    assert one.number_of(math.nan) == one.number_of(-math.nan) == P + 3


def test_constants_to_the_bit() -> None:
    world = World(CodeKind.BITS)
    codes = [world.number_of(number) for number in (0.0, 1.0, 1 / 3, float(np.float32(1 / 3)), math.inf, 5e-324)]
    negative = [
        world.number_of(number) for number in (-0.0, -1.0, -1 / 3, float(np.float32(-1 / 3)), -math.inf, -5e-324)
    ]
    assert len({*codes, *negative}) == 12
    assert [made ^ SIGN for made in codes] == negative
    assert world.negated(torch.tensor([*codes, P + 3])).tolist() == [*negative, P + 3]
    assert World(CodeKind.BITS, 1).number_of(1.0) == codes[1]


def test_arithmetic_of_the_field() -> None:
    world = World(CodeKind.REALS)
    x = world.symbols("x", (50,))
    one = torch.ones_like(x)
    assert torch.equal(world.arithmetic("mul", x, world.inverse(x)), one)
    assert torch.equal(world.arithmetic("div", x, x), one)
    assert torch.equal(world.arithmetic("sub", x, x), 0 * x)
    assert torch.equal(world.arithmetic("add", x, P - x), 0 * x)
    assert world.inverse(0 * x).unique().numel() == 1
    positive, negative = world.is_positive(x), world.is_positive(P - x)
    assert torch.equal(positive, ~negative)
    assert 10 < int(positive.sum()) < 40
    root = world.root(x)
    assert torch.equal((root * root % P)[positive], x[positive])
    assert torch.equal(world.root(x * x % P), torch.where(positive, x, P - x))
    assert bool(world.is_positive(root)[positive].all())
    assert int(world.root(torch.tensor(0))) == 0
    i = int(world.oracle("root of -1", torch.tensor(0))) % P
    assert torch.equal(root[negative], (world.root(P - x) * i % P)[negative])


def test_arithmetic_beyond_the_numbers() -> None:
    """A sum of a number and an infinity is the infinity; what else there is, is a symbol of its operands."""
    world = World(CodeKind.REALS)
    number, infinite, lowest, nan = (torch.tensor(each) for each in (5, CODE_OF_INFINITY, MINUS_INFINITY, P + 3))
    assert world.arithmetic("add", number, lowest) == lowest == world.arithmetic("add", lowest, number)
    assert world.arithmetic("add", number, nan) == nan
    found = [
        int(world.arithmetic(name, one, other))
        for name, one, other in (
            ("add", infinite, lowest), ("sub", infinite, infinite), ("sub", number, infinite),
            ("sub", infinite, number), ("mul", number, infinite), ("mul", number + 1, infinite),
            ("div", number, infinite), ("div", infinite, number),
        )
    ]  # fmt: skip
    assert len(set(found)) == len(found)
    for name in ("add", "mul"):
        assert world.arithmetic(name, infinite, nan) == world.arithmetic(name, nan, infinite)
    mixed = world.arithmetic("add", torch.tensor([1, CODE_OF_INFINITY]), torch.tensor([2, 2]))
    assert mixed.tolist() == [3, CODE_OF_INFINITY]


@pytest.mark.parametrize("kind", CodeKind)
def test_constants_are_ordered_by_their_values(kind: CodeKind) -> None:
    world = World(kind)
    numbers = torch.tensor([-math.inf, -3.0, -1e-5, 0.0, 0.25, 1 / 3, 7.0, math.inf], dtype=torch.float64)
    assert torch.equal(world.keys(world.numbers(numbers)), numbers)
    assert bool(world.keys(world.numbers(torch.tensor([math.nan]))).isnan().all())


def test_symbols_are_ordered_at_random() -> None:
    world = World(CodeKind.BITS)
    keys = world.keys(world.symbols("x", (400,)))
    assert bool(keys.isnan().any())
    assert keys[~keys.isnan()].unique().tolist() == list(range(-6, 7))
    assert torch.equal(world.keys(world.symbols("x", (400,)) ^ SIGN).nan_to_num(99.0), (-keys).nan_to_num(99.0))
    reals = World(CodeKind.REALS)
    x = reals.symbols("x", (400,))
    found = reals.keys(x)
    assert not bool(found.isnan().any())
    assert torch.equal(reals.keys(P - x), -found)
    assert float(found.abs().max()) <= 16
    assert found.unique().numel() == 400


def test_oracles() -> None:
    """A code depends on the world, the function and the operands in their order, and on nothing else."""
    for kind in CodeKind:
        world = World(kind)
        x, y = world.symbols("x", (2, 3)), world.symbols("y", (3,))
        made = world.oracle("f", x, y)
        assert torch.equal(made, world.oracle("f", x, y.expand(2, 3)))
        others = [
            world.oracle("g", x, y),
            world.oracle("f", y, x),
            World(kind, 1).oracle("f", x, y),
            world.oracle("f", x),
        ]
        assert not any(bool((made == other).any()) for other in others)
        assert made.unique().numel() == 6
        assert 0 <= int(made.min()) <= int(made.max()) < (P if kind is CodeKind.REALS else 2**63)
        assert world.oracle("f", x[0, 0], y[0]).shape == ()


def test_casts_over_the_reals() -> None:
    world = World(CodeKind.REALS)
    x = world.symbols("x", (3,))
    half, other = (world.cast(x, torch.float32, dtype) for dtype in (torch.float16, torch.bfloat16))
    assert not bool(((half == x) | (other == x) | (half == other)).any())
    assert torch.equal(world.cast(half, torch.float16, torch.float32), half)
    assert torch.equal(world.cast(half, torch.float32, torch.float16), half)  # which float16 has
    assert not bool((world.cast(half, torch.float32, torch.bfloat16) == half).any())
    numbers = world.numbers(torch.tensor([0.5, 0.1, math.inf]))
    assert (world.cast(numbers, torch.float32, torch.float16) == numbers).tolist() == [True, False, True]
    exact = World(CodeKind.REALS, casts_are_exact=True)
    assert torch.equal(exact.cast(x, torch.float32, torch.float16), x)

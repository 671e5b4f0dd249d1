"""The lemmas of proofs, bit for bit: z3 looks for a number for which one is wrong, and finds that there is none.

`same` compares bits, but for which NaN it is. Arithmetic rounds to the nearest number, ties to even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from patcomp_lab.proof.lemmas import LEMMAS

z3 = pytest.importorskip("z3", reason="z3-solver is part of the extra `dev`")

SORTS = {"f8": (3, 4), "f16": (5, 11), "bf16": (8, 8), "f32": (8, 24), "f64": (11, 53)}
"""The bits of the exponent, and of the number with its hidden bit."""

NEAREST = z3.RNE()
SECONDS = 30


def same(a: Any, b: Any) -> Any:
    return z3.Or(z3.And(z3.fpIsNaN(a), z3.fpIsNaN(b)), a == b)  # the values of a sort are bits: -0 is not 0


def is_proved(claim: Any) -> bool:
    """Whether z3 finds no counterexample because there is none.

    Raises:
        TimeoutError: z3 does not know.
    """
    solver = z3.Solver()
    solver.set("timeout", 1000 * SECONDS)
    solver.add(z3.Not(claim))
    answer = solver.check()
    if answer == z3.unknown:
        raise TimeoutError(solver.reason_unknown())
    return bool(answer == z3.unsat)


class Numbers:
    """Two unknown numbers of a type, and its constants and operations."""

    def __init__(self, element: str):
        self.sort = z3.FPSort(*SORTS[element])
        self.x, self.y = z3.FPs("x y", self.sort)
        self.one, self.zero, self.minus_zero = (
            z3.FPVal(1.0, self.sort),
            z3.fpPlusZero(self.sort),
            z3.fpMinusZero(self.sort),
        )

    def add(self, a: Any, b: Any) -> Any:
        return z3.fpAdd(NEAREST, a, b)

    def sub(self, a: Any, b: Any) -> Any:
        return z3.fpSub(NEAREST, a, b)

    def mul(self, a: Any, b: Any) -> Any:
        return z3.fpMul(NEAREST, a, b)

    def div(self, a: Any, b: Any) -> Any:
        return z3.fpDiv(NEAREST, a, b)

    def cast(self, a: Any, element: str) -> Any:
        return z3.fpFPToFP(NEAREST, a, z3.FPSort(*SORTS[element]))


Claim = Callable[[Numbers], Any]

IDENTITIES: dict[str, Claim] = {
    "x * 1 = x": lambda n: same(n.mul(n.x, n.one), n.x),
    "x / 1 = x": lambda n: same(n.div(n.x, n.one), n.x),
    "x + -0 = x": lambda n: z3.And(same(n.add(n.x, n.minus_zero), n.x), same(n.add(n.minus_zero, n.x), n.x)),
    "x - 0 = x": lambda n: same(n.sub(n.x, n.zero), n.x),
    "x * -1 = -x": lambda n: same(n.mul(n.x, z3.fpNeg(n.one)), z3.fpNeg(n.x)),
    "x + -y = x - y": lambda n: same(n.add(n.x, z3.fpNeg(n.y)), n.sub(n.x, n.y)),
    "x + y = y + x": lambda n: same(n.add(n.x, n.y), n.add(n.y, n.x)),
    "x * y = y * x": lambda n: same(n.mul(n.x, n.y), n.mul(n.y, n.x)),
}
"""The lemmas within one type."""

FLOATS = [pytest.param(name, marks=[pytest.mark.slow] if name == "f64" else []) for name in SORTS if name != "f8"]


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("name", IDENTITIES)
def test_an_identity_holds_for_every_number(name: str, element: str) -> None:
    assert is_proved(IDENTITIES[name](Numbers(element)))


WRONG: dict[str, Claim] = {
    "x + 0 = x": lambda n: same(n.add(n.x, n.zero), n.x),
    "x - -0 = x": lambda n: same(n.sub(n.x, n.minus_zero), n.x),
    "x * 0 = 0": lambda n: same(n.mul(n.x, n.zero), n.zero),
    "x - x = 0": lambda n: same(n.sub(n.x, n.x), n.zero),
    "x / x = 1": lambda n: same(n.div(n.x, n.x), n.one),
    "0 - x = -x": lambda n: same(n.sub(n.zero, n.x), z3.fpNeg(n.x)),
    "(x + y) - y = x": lambda n: same(n.sub(n.add(n.x, n.y), n.y), n.x),
    "x - y = y - x": lambda n: same(n.sub(n.x, n.y), n.sub(n.y, n.x)),
    "(x + x) / 2 = x": lambda n: same(n.div(n.add(n.x, n.x), n.add(n.one, n.one)), n.x),
    "a lost sign": lambda n: same(z3.fpAbs(z3.fpNeg(n.x)), n.x),
}
"""Claims that look like lemmas and are wrong for some number, so that the checks above can fail."""


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_for_one_number_is_not_proved(name: str) -> None:
    assert not is_proved(WRONG[name](Numbers("bf16")))


# ---- casts ---------------------------------------------------------------------------------------

WIDER = [
    ("f16", "f32"),
    ("bf16", "f32"),
    *(pytest.param(element, "f64", marks=pytest.mark.slow) for element in ("f16", "bf16", "f32")),
]


@pytest.mark.parametrize(("element", "wide"), WIDER)
def test_a_wider_type_has_every_number(element: str, wide: str) -> None:
    """A cast to it and back gives the number, and a cast to it and on gives what the cast gives at once."""
    n = Numbers(element)
    through = n.cast(n.x, wide)
    assert is_proved(same(n.cast(through, element), n.x))
    for to in SORTS:
        assert is_proved(same(n.cast(through, to), n.cast(n.x, to)))


@pytest.mark.parametrize(
    ("element", "other", "to"), [("f16", "bf16", "f32"), ("bf16", "f16", "f32"), ("f32", "f16", "bf16")]
)
def test_no_other_type_has_every_number(element: str, other: str, to: str) -> None:
    n = Numbers(element)
    assert not is_proved(same(n.cast(n.cast(n.x, other), to), n.cast(n.x, to)))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_an_op_of_few_bits_is_the_op_of_enough_bits_rounded(name: str) -> None:
    """With twice the bits and two more, as float32 has for both 16-bit types; shown for 4 and 11 bits."""
    n = Numbers("f8")
    wide = getattr(n, name)(n.cast(n.x, "f16"), n.cast(n.y, "f16"))
    assert is_proved(same(n.cast(wide, "f8"), getattr(n, name)(n.x, n.y)))


def test_every_lemma_is_proved() -> None:
    assert set(LEMMAS) == {*IDENTITIES, "a wider type has every number"}


# ---- claims of rules -------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 32])
def test_identities_of_integers_that_wrap(bits: int) -> None:
    """`times_one`, `plus_zero`, `minus_zero`, `plus_negated`, and the bounds of `merge_slices`."""
    x, y, start, step, inner, times, k = z3.BitVecs("x y start step inner times k", bits)
    assert is_proved(z3.And(x * 1 == x, x + 0 == x, x - 0 == x, x + y * -1 == x - y))
    if bits == 8:
        assert is_proved(start + step * (inner + times * k) == (start + step * inner) + (step * times) * k)
        assert not is_proved((x * 2) / 2 == x)


def test_an_index_from_the_end_counts_from_the_front() -> None:
    """`gather_from_the_front`"""
    i, n = z3.BitVecs("i n", 32)
    fixed = z3.If(i < 0, i + n, i)
    assert is_proved(z3.Implies(z3.And(n > 0, i >= -n, i < n), z3.And(fixed >= 0, fixed < n)))


def test_hard_sigmoid_over_the_reals() -> None:
    x = z3.Real("x")

    def clamped(value: Any, low: int, high: int) -> Any:
        return z3.If(value < low, low, z3.If(value > high, high, value))

    assert is_proved(clamped(x / 6 + z3.Q(1, 2), 0, 1) == clamped(x + 3, 0, 6) / 6)
    assert not is_proved(clamped(x / 6 + z3.Q(1, 2), 0, 1) == clamped(x + 2, 0, 6) / 6)


def test_a_row_of_scores_is_hidden_where_its_largest_is_minus_infinity() -> None:
    """Attention: `not any(s != -inf)` and `max(s) == -inf`, with a maximum that gives NaN where a score is NaN."""
    n = Numbers("bf16")
    scores, lowest = z3.FPs("s t u", n.sort), z3.fpMinusInfinity(n.sort)

    def larger(a: Any, b: Any) -> Any:
        return z3.If(z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b)), z3.fpNaN(n.sort), z3.fpMax(a, b))

    some = z3.Or(*(z3.Not(z3.fpEQ(score, lowest)) for score in scores))
    assert is_proved(some == z3.Not(z3.fpEQ(larger(larger(scores[0], scores[1]), scores[2]), lowest)))
    dropping = z3.fpMax(z3.fpMax(scores[0], scores[1]), scores[2])
    assert not is_proved(some == z3.Not(z3.fpEQ(dropping, lowest)))

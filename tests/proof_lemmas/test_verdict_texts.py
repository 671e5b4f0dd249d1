"""What a verdict says of the programs that were compared: its strength, its bound and its text."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from patcomp_lab.proof.approximations import Measured
from patcomp_lab.proof.deciding_numbers import DistanceBound
from patcomp_lab.proof.outcome import WITHOUT_FLOATS
from patcomp_lab.proof.verdict import MOVED_CASTS, PROOFS, Strength, Verdict, _decided, _Found

BITS, LEMMA, REALS, EVERY, WHOLE, APPROXIMATION, NUMBERS, REFUTED, UNREACHED = Strength


def found(of_floats: dict[Strength, int] | None = None, **others: Any) -> _Found:
    return _Found(of_floats=Counter(of_floats or {}), **others)


BOUNDS = {
    "none": None, "few": DistanceBound(100, 1.0), "more": DistanceBound(100, 3.0),
    "exceptions": DistanceBound(100, 0.5, (), 2, (7.0,)),
    "many": DistanceBound(100, 9.0, (), 6, (8.0,)),
}  # fmt: skip
DECIDED: dict[str, tuple[dict[str, Any], _Found, float | None, Strength, str]] = {
    "to the bit": ({"decided": {BITS: 2}}, found(), None, BITS, "r: equal to the bit on 2 programs"),
    "one program": ({"decided": {BITS: 1}}, found(), None, BITS, "r: equal to the bit on 1 program"),
    "the weakest": (
        {"decided": {BITS: 2, REALS: 1}}, found({BITS: 1, REALS: 1}), None, REALS,
        "r: equal over the reals on 3 programs; 2 equal to the bit, 1 equal over the reals",
    ),
    "the weakest with floats": (
        {"decided": {BITS: 2, REALS: 1}}, found({BITS: 1}), None, BITS,
        "r: equal to the bit on 3 programs; 2 equal to the bit, 1 equal over the reals",
    ),
    "lemmas": (
        {"decided": {LEMMA: 2}}, found({LEMMA: 2}, lemmas={"x * 1 = x", "x + -0 = x"}), None, LEMMA,
        "r: equal with an identity of numbers on 2 programs; x * 1 = x, x + -0 = x",
    ),
    "lemmas of other programs": (
        {"decided": {LEMMA: 1, REALS: 1}}, found({REALS: 1}, lemmas={"x * 1 = x"}), None, REALS,
        "r: equal over the reals on 2 programs; 1 equal with an identity of numbers, 1 equal over the reals",
    ),
    "the largest bound of the fewest exceptions": (
        {"decided": {EVERY: 1}}, found({EVERY: 1}, bounds=BOUNDS), None, EVERY,
        "r: within a bound on every number on 1 program; "
        "within 0.5 units in the last place on 100 numbers but 2, such as 7",
    ),
    "the largest bound": (
        {"decided": {EVERY: 1, BITS: 1}}, found({EVERY: 1}, bounds={n: BOUNDS[n] for n in ("more", "few", "many")}),
        None, EVERY,
        "r: within a bound on every number on 2 programs; 1 equal to the bit, 1 within a bound on every number; "
        "within 3.0 units in the last place on 100 numbers",
    ),
    "a bound of programs without floats": (
        {"decided": {EVERY: 1}}, found({}, bounds=BOUNDS), None, EVERY,
        "r: within a bound on every number on 1 program",
    ),
    "rounding": (
        {"decided": {REALS: 1}}, found({REALS: 1}, ulps=[1.0, 2.25], moves_casts=True), None, REALS,
        f"r: equal over the reals on 1 program; {MOVED_CASTS}, at most 2.2 units in the last place apart where a "
        "search looked",
    ),
    "rounding of whole numbers": (
        {"decided": {WHOLE: 1}}, found({WHOLE: 1}, ulps=[0.0]), None, WHOLE,
        "r: equal on whole numbers on 1 program; at most 0.0 units in the last place apart where a search looked",
    ),
    "no rounding": ({"decided": {BITS: 1}}, found({BITS: 1}, ulps=[5.0]), None, BITS,
                    "r: equal to the bit on 1 program"),
    "an approximation": (
        {"decided": {APPROXIMATION: 3}}, found(measured=Measured(0.0123, 4567)), 0.5, APPROXIMATION,
        "r: an approximation within its bound on 3 programs; "
        "0.5 is declared, 0.012 measured on 4,567 numbers",
    ),
    "as many on numbers": (
        {"decided": {BITS: 2}, "on_numbers": {"why": 2}}, found(), None, BITS,
        "r: equal to the bit on 2 programs; 2 programs with numbers only: why",
    ),
    "more on numbers": (
        {"decided": {BITS: 2}, "on_numbers": {"why": 2, "that": 1}}, found(), None, NUMBERS,
        "r: not proved, equal on numbers on 3 programs; 2 programs with numbers only: why; "
        "1 program with numbers only: that",
    ),
    "without floats": (
        {"decided": {BITS: 1}, "on_numbers": {WITHOUT_FLOATS: 5}}, found(), None, BITS,
        f"r: equal to the bit on 1 program; 5 programs with numbers only: {WITHOUT_FLOATS}",
    ),
    "not compared": (
        {"missed": {"a": 1, "b": 2}}, found(), None, UNREACHED,
        "r: not decided on 0 programs; 2 programs not compared: b; 1 program not compared: a",
    ),
    "nothing": (
        {}, found(), None, UNREACHED, "r: not decided on 0 programs; no program was found that the rule matches",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_what_a_verdict_says(name: str) -> None:
    counts, what, bound, strength, text = DECIDED[name]
    given: dict[str, Any] = {field: Counter(count) for field, count in counts.items()}
    verdict = Verdict("r", UNREACHED, **given)
    said = _decided(verdict, what, bound)
    assert (said.strength, str(said)) == (strength, text)
    assert said.ulps == (max(what.ulps, default=None) if strength in (REALS, WHOLE) else None)
    assert said.programs == sum(counts.get("decided", {}).values())
    assert said.compared == said.programs + sum(counts.get("on_numbers", {}).values())


def test_the_text_of_a_wrong_rule() -> None:
    assert str(Verdict("r", REFUTED, Counter({BITS: 1, REALS: 2}), reason="why")) == "r: wrong after 3 programs; why"


def test_which_strengths_are_proofs() -> None:
    assert [each for each in Strength if each.is_proof] == list(PROOFS)
    assert not any(each.is_proof for each in (NUMBERS, REFUTED, UNREACHED))


def test_results_of_an_approximation_are_measured() -> None:
    measured = Measured()
    wide, other = torch.tensor([1.0, 2.0, torch.inf]), torch.tensor([1.5, 1.75, 3.0])
    assert measured.add(wide, other) == 0.5
    assert (measured.apart, measured.numbers) == (0.5, 2)
    assert measured.add(wide.half(), other.half() + 5) == 5.5
    assert measured.add(wide[2:], other[2:]) == 0.0
    assert (measured.apart, measured.numbers) == (0.5, 2)
    assert measured.add(wide, other.nan_to_num() * 0 + 1.25) == 0.75
    assert (measured.apart, measured.numbers) == (0.75, 4)

"""The numbers with which programs are run, and when results at the limits of 16 bits agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from patcomp_lab.proof.counterexample import COUNTEREXAMPLE_TOLERANCES, InvalidRewriteError
from patcomp_lab.proof.fills import _close, _integers, fills_of, literals_of, special_values
from patcomp_lab.proof.narrow_floats import NARROW_DRAWS, agree_in_range, drawn_numbers, has_narrow_floats
from patcomp_lab.proof.numbers import _may_be_rounding
from patcomp_lab.proof.open_aspects import is_wide
from patcomp_lab.proof.pairs import RulePair, RunInput
from patcomp_lab.proof.programs import Programs
from patterns_catalog import all_rules, default_rules

CATALOG = default_rules()
SPECIAL = ["infinities and zeros", "NaN", "halves", "large numbers"]
EQUAL, LIMITS = ["equal numbers"] * 6, ["limits of 16 bits"] * 8
FILLS: dict[str, tuple[list[str], tuple[float, ...]]] = {
    "times_one": ([""] * 6, ()),
    "rms_norm": (["", "", *SPECIAL, "", EQUAL[0]], (1e-06,)),
    "decompose kthvalue": (["", *SPECIAL, *EQUAL, "", EQUAL[0]], ()),
    "normalize eq": (["", *SPECIAL, "", EQUAL[0]], ()),
    "cast_of_cast": ([""] * 5 + LIMITS + [""], ()),
}


def first_pair(name: str) -> RulePair:
    listed = Programs(all_rules()[name], CATALOG, 1)
    pair = listed.pair_of(listed.examples()[0])
    assert pair is not None
    return pair


@pytest.mark.parametrize("name", FILLS)
def test_the_fills_of_a_pair(name: str) -> None:
    pair = first_pair(name)
    aspects, literals = FILLS[name]
    assert [fill.aspect for fill in fills_of(pair)] == aspects
    assert literals_of(pair) == literals
    for fill in fills_of(pair):
        first, again, other = fill(0), fill(0), fill(1)
        assert all(torch.equal(first[key].nan_to_num(), again[key].nan_to_num()) for key in first)
        assert {key: value.shape for key, value in first.items()} == {key: value.shape for key, value in other.items()}


def test_special_values_are_put_into_runs() -> None:
    """Each of them into one of the runs of an elementwise rule that keeps every bit."""
    pair = first_pair("times_one")
    placed = torch.cat([value.flatten() for fill in fills_of(pair) for value in fill(0).values()])
    exact = {value for _, values, _ in special_values(pair) for value in values if value == value}
    assert exact <= {*placed.tolist(), *(value for value in exact if value not in torch.tensor([*exact]).tolist())}
    assert bool(placed.isnan().any())
    assert [seed for _, _, seed in special_values(pair)] == [0, 1, 2, 3]
    assert len({values for _, values, _ in special_values(pair)}) == 4


def test_special_integers() -> None:
    assert _integers(RunInput("12xsi8"), 0, 300).tolist() == [0, -1, 1, 127, -128, 2, -7, 7, 0, -1, 1, 127]
    assert _integers(RunInput("5xsi8"), 1, 300).tolist() == [2, 0, 127, -7, -1]
    assert set(_integers(RunInput("40xsi32"), 0, 300).tolist()) == {0, -1, 1, 127, -128, 128, 255, 256, -300, 2, -7, 7}
    assert 2**31 - 1 in _integers(RunInput("40xsi32"), 0, 2**31)
    assert set(_integers(RunInput("40xui8"), 0, 300).tolist()) == {0, 1, 127, 128, 255, 2, 7}
    assert set(_integers(RunInput("40xsi32[0,2]"), 0, 300).tolist()) == {0, 1, 2}


def test_numbers_that_differ_in_their_last_places() -> None:
    assert _close(0, torch.float32) == [2.0**24 - place for place in (0, 1, 3, 0, 2)]
    assert _close(5, torch.int32) == [64, 63, 61, 64, 62]


# ---- differences that rounding may make ----------------------------------------------------------------


ONES = torch.ones(4)


@pytest.mark.parametrize(
    ("name", "expected", "actual", "aspect", "may_be"),
    [
        ("rms_norm", ONES, ONES + 29 * 2e-5, "", True),
        ("rms_norm", ONES, ONES + 31 * 2e-5, "", False),
        ("decompose kthvalue", ONES, ONES + 29 * 2e-5, "", True),
        ("decompose kthvalue", ONES, ONES + 31 * 2e-5, "", False),
        ("decompose kthvalue", ONES.half(), ONES.half() + 29 * 4e-3, "", True),
        ("decompose kthvalue", ONES.half(), ONES.half() + 31 * 4e-3, "", False),
        ("decompose kthvalue", ONES.bfloat16(), ONES.bfloat16() + 0.875, "", True),
        ("decompose kthvalue", ONES.bfloat16(), ONES.bfloat16() + 0.9375, "", False),
        ("times_one", ONES, ONES + 1e-7, "", False),
        ("rms_norm", ONES, ONES[:3], "", False),
        ("rms_norm", ONES.int(), ONES.int() + 1, "", False),
        ("rms_norm", ONES, ONES + 5, "large numbers", True),
        ("rms_norm", ONES, ONES * torch.inf, "large numbers", False),
    ],
)
def test_what_may_be_rounding(name: str, expected: Tensor, actual: Tensor, aspect: str, may_be: bool) -> None:
    pair = first_pair(name)
    error = pair.wrong("differs", {}, expected_y0=expected, actual_y0=actual)
    assert _may_be_rounding(pair, error, aspect) is may_be
    invalid = InvalidRewriteError(pair.drawing, "fails", "")
    invalid.tensors = error.tensors
    assert not _may_be_rounding(pair, invalid, aspect)


# ---- the limits of 16 bits ---------------------------------------------------------------------------


def test_the_numbers_of_each_draw() -> None:
    """One pool for all inputs, then another one for each input, then one number."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        pools = [tuple(drawn_numbers(draw, 0, dtype)) for draw in range(NARROW_DRAWS)]
        assert len(set(pools[:3])) == 3
        assert pools[3:6] == pools[:3]
        assert [tuple(drawn_numbers(draw, 1, dtype)) for draw in range(6)] == [*pools[:3], pools[1], pools[2], pools[0]]
        assert pools[6:] == [(300.0,), (1e-4,)]
    assert drawn_numbers(0, 0, torch.int32) == drawn_numbers(0, 0, torch.float32)


def test_which_pairs_have_narrow_floats() -> None:
    assert has_narrow_floats(first_pair("cast_of_cast"))
    assert not has_narrow_floats(first_pair("times_one"))


X = torch.tensor([1.0, 100.0])
STEP = 4 * 2e-5
AGREE: dict[str, tuple[Callable[[Tensor], Tensor], Tensor, Tensor, dict[str, Any], bool]] = {
    "equal": (lambda x: x, X, X, {}, True),
    "another shape": (lambda x: x, X, X[:1], {}, False),
    "near the largest": (lambda x: x, X, X + torch.tensor([1.5 * STEP * 100, 0.0]), {}, True),
    "far from the largest": (lambda x: x, X, X + torch.tensor([2.5 * STEP * 100, 0.0]), {}, False),
    "far from each": (lambda x: x, X, X + torch.tensor([2.5 * STEP, 0.0]), {"is_elementwise": True}, False),
    "near each": (lambda x: x, X, X * (1 + 1.5 * STEP), {"is_elementwise": True}, True),
    "an approximation": (lambda x: x, X, X + 0.01, {"approximation": 0.006, "is_elementwise": True}, True),
    "NaN of the source": (lambda x: x * torch.nan, X, X, {}, True),
    "NaN of the rule": (lambda x: x, X, X * torch.nan, {}, False),
    "where the source moves": (lambda x: (x * 1e7).sin(), X, X * 0, {}, True),
    "where the source is steady": (lambda x: x.sin(), X, X * 0, {}, False),
    "an overflow that 64 bits do not have": (
        lambda x: x * 3e38, X, torch.tensor([3e38, 5.0]), {"is_elementwise": True}, True
    ),
    "integers": (lambda x: x, X.long(), X.long() + 1, {}, False),
    "float16": (lambda x: x, X.half(), X.half() * (1 + 4 * COUNTEREXAMPLE_TOLERANCES["f16"]), {}, True),
    "far in float16": (lambda x: x, X.half(), X.half() * (1 + 9 * COUNTEREXAMPLE_TOLERANCES["f16"]), {}, False),
}  # fmt: skip


@pytest.mark.parametrize("name", AGREE)
def test_results_agree_where_the_source_is_steady(name: str) -> None:
    function, x, actual, options, agrees = AGREE[name]

    def before(inputs: Mapping[str, Any]) -> list[Tensor]:
        return [inputs["x"], function(inputs["x"])]

    rule = SimpleNamespace(approximation=options.get("approximation"))
    pair: Any = SimpleNamespace(rule=rule, is_elementwise=options.get("is_elementwise", False), before=before)
    assert agree_in_range(pair, function(x), actual, 1, {"x": x}) is agrees


def test_a_source_that_refuses_other_numbers_is_steady() -> None:
    def before(inputs: Mapping[str, Any]) -> list[Tensor]:
        raise ValueError

    pair: Any = SimpleNamespace(rule=SimpleNamespace(approximation=None), is_elementwise=False, before=before)
    assert not agree_in_range(pair, X, X + 1, 0, {"x": X})


def test_integers_beyond_32_bits() -> None:
    for value, wide in ((2**31 - 1, False), (2**31, True), (-(2**31), False), (-(2**31) - 1, True)):
        assert is_wide([torch.ones(2), torch.tensor([0, value])]) is wide
    assert not is_wide([torch.tensor([], dtype=torch.int64)])

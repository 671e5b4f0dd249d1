"""The comparison of one output: its difference, its limits with and without a twin, and what is noted of it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.comparison import beside_partial_sums, compare, psnr_of
from patcomp.evaluate.twin import Twin
from patcomp.ir.half import STANDS_FOR_MINUS_INFINITY


@pytest.mark.parametrize(
    ("values", "noted"),
    [
        ([0.0], True),
        ([1.0], False),
        ([math.nan], True),
        ([2.0, 2.0], True),
        ([2.0, 3.0], False),
        ([math.nan, 1.0], False),
        ([1.0, math.nan], False),
        ([], False),
    ],
)
def test_which_outputs_say_little(values: list[float], noted: bool) -> None:
    y = torch.tensor(values)
    assert bool(compare("y", "evaluator", y, y.clone()).note) is noted


def test_zeros_and_infinities_do_not_count_in_the_median() -> None:
    y = torch.tensor([0.0, 0.0, 0.0, math.inf, math.inf, 1.0])
    given = torch.tensor([0.0, 0.0, 0.0, math.inf, math.inf, 1.0 + 2**-12])
    assert compare("y", "evaluator", y, given).median_rel == 2**-12
    assert compare("y", "evaluator", y[:5], given[:5]).median_rel == 0.0


def test_the_psnr_and_the_relative_error_go_by_the_largest_magnitude() -> None:
    y = torch.tensor([-4.0, 2.0, 0.0, 1.0])
    error = compare("y", "evaluator", y, y + torch.tensor([0.0, 0.5, 0.0, 0.0]))
    assert (error.max_abs, error.max_rel) == (0.5, 0.125)
    assert error.psnr == pytest.approx(20 * math.log10(4) - 10 * math.log10(0.25 / 4))
    assert compare("y", "evaluator", torch.zeros(2), torch.tensor([0.0, 0.25])).max_rel == 0.25
    assert compare("y", "evaluator", y, y + math.inf).psnr == -math.inf


def test_zeros_may_differ_as_much_as_ones() -> None:
    zeros = torch.zeros(3)
    assert compare("y", "evaluator", zeros, zeros + 5e-5).passed
    assert not compare("y", "evaluator", zeros, zeros + 2e-4).passed
    assert compare("y", "evaluator", torch.full((3,), 1e-42), torch.full((3,), 1.3e-42)).max_abs > 0
    assert compare("y", "evaluator", torch.full((3,), 1e-42), torch.full((3,), 1.3e-42)).tolerance > 1e-39


def test_complex_numbers_are_compared_in_both_parts() -> None:
    y = torch.tensor([3.0 + 4.0j, 1.0j])
    assert compare("y", "evaluator", y, y * (1 + 5e-5)).passed
    error = compare("y", "evaluator", y, y.conj())
    assert (error.passed, error.max_abs, error.relative_to) == (False, 8.0, 5.0)
    assert error.element_type == "complex<f32>"


def test_an_empty_output_passes() -> None:
    for dtype in (torch.float32, torch.float16, torch.int32):
        error = compare("y", "evaluator", torch.ones(0, 3, dtype=dtype), torch.ones(0, 3, dtype=dtype))
        assert (error.passed, error.max_abs, error.psnr) == (True, 0.0, math.inf)


def test_a_mask_holds_numbers_below_its_bound_only() -> None:
    half = torch.tensor([-math.inf]).half()
    for number, count in ((STANDS_FOR_MINUS_INFINITY, 1), (2 * STANDS_FOR_MINUS_INFINITY, 0)):
        assert compare("y", "evaluator", torch.tensor([number]), half).overflows == count
    assert compare("y", "evaluator", torch.tensor([2 * STANDS_FOR_MINUS_INFINITY]), -half).overflows == 1
    assert compare("y", "evaluator", torch.tensor([2 * STANDS_FOR_MINUS_INFINITY]), half * 0).overflows == 1


def test_the_limits_beside_a_twin_are_the_widest_ones() -> None:
    """Those of the type, three times eager's own distance, and a few steps of rounding in half precision."""
    y, eps = torch.tensor([4.0, -1.0, 2.0]), 2**-10
    exact = Twin(y.double(), torch.float32)
    wrong = torch.tensor([4.5, -1.0, 2.0])
    assert compare("y", "evaluator", y, wrong, twin=lambda: exact).tolerance == pytest.approx(4e-4)
    moved = Twin(torch.tensor([4.2, -1.2, 2.2], dtype=torch.float64), torch.float32)
    error = compare("y", "evaluator", y, wrong, twin=lambda: moved)
    assert (error.passed, error.reference, error.half_loss) == (True, "float64 twin", 0.0)
    assert (error.tolerance, error.median_tolerance) == (pytest.approx(0.6), pytest.approx(3 * 0.2 / 2.2))
    near = Twin(y + 1e-6, torch.float16)
    error = compare("y", "evaluator", y.half(), y.half(), twin=lambda: near)
    assert error.tolerance == pytest.approx(4 * eps * 4, rel=1e-3)
    single = compare("y", "evaluator", y, torch.tensor([4.03, -1.0, 2.0]), twin=lambda: near)  # of half precision
    assert not single.passed
    single = compare("y", "evaluator", y, torch.tensor([4.01, -1.005, 2.007]), twin=lambda: near)
    assert (single.passed, single.reference) == (True, "float32 twin")
    assert single.median_tolerance == pytest.approx(4 * eps)


def test_rounding_steps_widen_the_limits_of_half_precision_only() -> None:
    y = torch.tensor([4.0, -1.0, 2.0], dtype=torch.float64)
    twin = Twin(y + 1e-7, torch.float32)
    error = compare("y", "evaluator", y, y + 5e-7, twin=lambda: twin)
    assert (error.passed, error.reference) == (False, "eager")
    assert compare("y", "evaluator", y, y + 3e-7, twin=lambda: twin).passed


def test_a_tenth_of_the_magnitude_says_enough() -> None:
    y = torch.tensor([30.0, -1.0, 2.0])
    for moved, is_noted in ((1.0, False), (1.5, True)):
        twin = Twin(y.double() - moved, torch.float32)
        error = compare("y", "evaluator", y, y + 0.5, twin=lambda twin=twin: twin)  # type: ignore[misc]
        assert (error.tolerance, bool(error.note)) == (3 * moved, is_noted)


def test_half_precision_explains_twenty_rounding_steps() -> None:
    """Of the loss beside the model in float32, and where eager PyTorch overflows."""
    ones, eps = Twin(torch.ones(2), torch.float16), 2**-10
    for steps, loss in ((20, 0.0), (21, 21 * eps)):
        y = torch.tensor([1.0 - steps * eps, 1.0]).half()
        assert compare("y", "evaluator", y, y.clone(), twin=lambda: ones).half_loss == loss
    y = torch.tensor([0.5, 0.0]).half()
    assert compare("y", "evaluator", y, y, twin=lambda: Twin(torch.zeros(2), torch.float16)).half_loss == 0.5
    eager, wide = torch.tensor([math.inf, 1.0]).half(), Twin(torch.tensor([1024.0, 1.0]), torch.float16)
    for number, passed in ((1004.0, True), (1003.5, False)):
        given = torch.tensor([number, 1.0]).half()
        error = compare("y", "evaluator", eager, given, twin=lambda: wide)
        assert (error.passed, error.tolerance, error.relative_to) == (passed, 20.0, 1024.0)


@pytest.mark.parametrize("twin", [None, Twin(torch.ones(2), torch.float32)])
def test_a_twin_that_is_none_or_of_another_shape_changes_nothing(twin: Twin | None) -> None:
    y = torch.tensor([1.0])
    error = compare("y", "evaluator", y, y + 0.5, twin=lambda: twin)
    assert (error.reference, error.passed, error.tolerance) == ("eager", False, pytest.approx(1e-4))


def test_a_given_tolerance_asks_for_no_twin() -> None:
    y = torch.tensor([1.0])
    assert compare("y", "evaluator", y, y + 0.5, 1.0, no_twin).passed
    assert not compare("y", "evaluator", y, y + 0.5, 0.25, no_twin).passed
    assert compare("y", "evaluator", y, y.clone(), None, no_twin).passed


def test_rounding_explains_no_output_of_another_shape() -> None:
    y = torch.ones(3).half()
    wrong = compare("y", "runtime", y, y + 1)
    assert beside_partial_sums(wrong, y + 1, torch.full((1, 3), 2.0).half()) is wrong


def no_twin() -> Twin:
    raise AssertionError("nothing needs a twin")


def test_a_loss_is_relative_to_the_largest_magnitude() -> None:
    y, twin = torch.tensor([3.0, 1.0]).half(), Twin(torch.tensor([4.0, 1.0]), torch.float16)
    assert compare("y", "evaluator", y, y, twin=lambda: twin).half_loss == 0.25


def test_integers_that_differ_ask_for_no_twin() -> None:
    y = torch.tensor([1, 2])
    assert not compare("y", "evaluator", y, y + 1, twin=no_twin).passed


@pytest.mark.parametrize("shape", [(1, 2), (3,), ()])
def test_outputs_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(EvaluationError, match=r"output 'y' has shape \(.*\), eager's has \(2,\)"):
        compare("y", "evaluator", torch.ones(2), torch.ones(shape))


def test_where_eager_overflows_a_twin_says_nothing_about_the_others() -> None:
    wide = Twin(torch.tensor([1e39, 1.0, 1.0, 1.0], dtype=torch.float64), torch.float32)
    eager, given = torch.tensor([math.inf, 1.0, 1.0, 1.0]), torch.tensor([math.inf, 2.0, 1.0, 1.0])
    error = compare("y", "evaluator", eager, given, twin=lambda: wide)
    assert (error.passed, error.reference) == (False, "eager")


def test_float32_is_finite_or_not_without_half_precision() -> None:
    """Neither counts as an overflow, nor is it noted; only in half precision is a missing twin."""
    ones, infinite = torch.ones(2), torch.tensor([math.inf, 1.0])
    assert compare("y", "evaluator", ones, infinite).overflows == 0
    for expected, given, noted in (
        (infinite, infinite.clone(), False),
        (infinite, infinite.half(), False),  # of a target, and the model has the infinity, too
        (infinite.half(), infinite.half(), True),
        (infinite.half(), infinite.half() * 2 + 3, False),
    ):
        assert bool(compare("y", "evaluator", expected, given).note) is noted


@pytest.mark.parametrize("wide", [torch.ones(2), torch.ones(1, 1)])
def test_a_twin_of_another_shape_tells_no_overflow(wide: Tensor) -> None:
    eager, twin = torch.tensor([math.inf]).half(), Twin(wide, torch.float16)
    error = compare("y", "evaluator", eager, eager.clone(), twin=lambda: twin)
    assert (error.passed, error.overflows, error.reference) == (True, 0, "eager")
    finite = torch.tensor([0.5]).half()
    assert compare("y", "evaluator", finite, finite, twin=lambda: twin).reference == "eager"


def test_an_empty_output_has_no_loss_beside_a_twin() -> None:
    empty = torch.ones(0).half()
    error = compare("y", "evaluator", empty, empty.clone(), twin=lambda: Twin(torch.ones(0), torch.float16))
    assert (error.passed, error.half_loss, error.reference) == (True, 0.0, "float32 twin")


def test_the_limits_of_half_precision_without_a_twin() -> None:
    """Four rounding steps of a model in half precision; 2 % of a float32 model that a target made float16."""
    y = torch.tensor([8.0, 1.0])
    half = compare("y", "evaluator", y.half(), y.half())
    assert (half.tolerance, half.relative_to) == (4 * 2**-10 * 8, 8.0)
    error = compare("y", "evaluator", y, y.half())
    assert (error.tolerance, error.relative_to) == (0.02 * 8, 8.0)
    assert compare("y", "evaluator", y.double(), y.half()).tolerance == 4 * 2**-10 * 8


def test_floats_on_two_sides_of_an_integer_differ_by_rounding() -> None:
    for dtype in (torch.float32, torch.complex64):
        y = torch.ones(2, dtype=dtype)
        assert compare("y", "evaluator", y, y - 2**-15).max_abs == 2**-15


def test_the_psnr_of_outputs_that_are_empty_equal_or_differ_by_one() -> None:
    y = torch.tensor([2.0, 1.0])
    assert psnr_of(y[:0], y[:0]) == psnr_of(y, y.clone()) == math.inf
    assert psnr_of(y, y + 1) == pytest.approx(20 * math.log10(2))


def test_rounding_explains_floats_that_are_finite() -> None:
    """Another difference than that on the evaluator, also one of integers, stays an error."""
    for y, moved in ((torch.tensor([1, 2]), 1), (torch.ones(2).half(), math.inf), (torch.ones(2).half(), 1)):
        wrong = compare("y", "runtime", y, y + moved)
        found = beside_partial_sums(wrong, y + moved, y + moved)
        assert (found is not wrong) is (y.is_floating_point() and moved == 1)

"""Pairs of programs compared on numbers: random ones, and those at which rules tend to be wrong.

A rule of the stage `optimize` promises every bit. The rules of other stages may round in another way, so their results
agree within a tolerance; NaN, infinities and shapes must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.patterns import Stage
from patcomp.patterns.aspects import LARGE, NARROW, FurtherResults
from patcomp_lab.proof.calls import Compiled
from patcomp_lab.proof.counterexample import InvalidRewriteError, WrongRuleError, agrees
from patcomp_lab.proof.fills import fills_of
from patcomp_lab.proof.narrow_floats import agree_in_range, in_64_bits
from patcomp_lab.proof.open_aspects import depends_on_data, is_result_open, is_wide
from patcomp_lab.proof.pairs import Rewritten, RulePair

_ROUNDING = 30
"""How many tolerances a result may be off where its inputs cancel."""


@dataclass(frozen=True)
class _Difference:
    """A difference of a pair."""

    error: WrongRuleError
    may_be_rounding: bool
    """Whether it is so small that rounding may make it, so that symbols decide."""


def differences(pair: RulePair) -> Iterator[_Difference]:
    """The inputs on which a pair differs."""
    for fill in fills_of(pair):
        if (error := _difference(pair, fill(0), fill.aspect)) is None:
            continue
        if fill.aspect == NARROW or not _may_be_rounding(pair, error, fill.aspect):
            yield _Difference(error, False)
        elif _rounds_better(pair, fill(0), error):
            continue
        elif fill.aspect != LARGE and any(_difference(pair, fill(seed), fill.aspect) for seed in (101, 202)):
            yield _Difference(error, True)


def _may_be_rounding(pair: RulePair, error: WrongRuleError, aspect: str) -> bool:
    """Whether a rule that may round in another way differs by little, as a small difference of large numbers does.

    Of large numbers, only infinities and NaN are compared: an exponential makes much of how its operand is rounded.
    """
    is_exact = pair.rule.stage is Stage.OPTIMIZE or pair.rule.approximation is not None  # up to its bound
    if is_exact or isinstance(error, InvalidRewriteError):
        return False
    expected = next(value for name, value in error.tensors.items() if name.startswith("expected"))
    actual = next(value for name, value in error.tensors.items() if name.startswith("actual"))
    if expected.shape != actual.shape or not expected.is_floating_point():
        return False
    if aspect == LARGE:
        return torch.equal(expected.isfinite(), actual.isfinite())
    if isinstance(pair, Rewritten):
        return agrees(expected, actual, _ROUNDING * pair.tolerance)
    narrow = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(expected.dtype, 2e-5)
    return agrees(expected, actual, _ROUNDING * narrow)


def _rounds_better(pair: RulePair, inputs: Mapping[str, Any], error: WrongRuleError) -> bool:
    """Whether a rule is at most as far from the source in 64 bits as the source itself is."""
    (name, expected), (_, actual) = [each for each in error.tensors.items() if not each[0].startswith("input")]
    exact = in_64_bits(pair, inputs, int(name.rpartition("y")[2]))
    if exact is None or exact.shape != expected.shape:
        return False
    own, made = ((value.double() - exact).abs().nan_to_num(0.0, 0.0, 0.0).max() for value in (expected, actual))
    return bool(made <= own)


def _difference(pair: RulePair, inputs: Mapping[str, Any], aspect: str = "") -> WrongRuleError | None:
    """The error if the results of a pair differ on the inputs; None also if the source does not take them.

    Args:
        aspect: the aspect of the inputs. A rule may leave all results except the first one open in it.
    """
    try:
        with torch.no_grad():
            expected = pair.before(inputs)
    except (EvaluationError, RuntimeError, IndexError, ValueError):
        return None
    if isinstance(pair, Compiled) and (depends_on_data(pair.source, expected) or is_wide(expected)):
        return None
    try:
        with torch.no_grad():
            actual = pair.after(inputs)
    except EvaluationError as error:
        if _does_not_fit(pair, inputs):
            return None
        message = f"made a program that does not run: {error}"
        wrong = InvalidRewriteError(pair.drawing, message, pair.source_ir, pair.rewritten_ir)
        wrong.tensors = {f"input {name}": value for name, value in inputs.items()}
        return wrong
    compared = 1 if isinstance(pair.rule.unspecified.get(aspect), FurtherResults) else len(expected)
    for index, (one, other) in enumerate(zip(expected[:compared], actual, strict=False)):
        if aspect == NARROW and not (pair.rule.stage is Stage.OPTIMIZE and pair.is_elementwise):
            is_same = agree_in_range(pair, one, other, index, inputs)
        else:
            is_same = _same(pair, one, other)
        if not is_same and not is_result_open(pair, index, one, other, inputs):
            results = {f"expected_y{index}": one, f"actual_y{index}": other}
            return pair.wrong(_what_differs(pair, one, other), inputs, **results)
    return None


def _does_not_fit(pair: RulePair, inputs: Mapping[str, Any]) -> bool:
    """Whether inputs have numbers that the types of a compiled program do not have."""
    narrow = any(value.dtype in (torch.int64, torch.float64) for value in inputs.values())
    return narrow and not isinstance(pair, Rewritten)


def _same(pair: RulePair, expected: Tensor, actual: Tensor) -> bool:
    if tuple(expected.shape) != tuple(actual.shape):
        return False
    if pair.rule.stage is not Stage.OPTIMIZE:
        if isinstance(pair, Rewritten):
            return expected.dtype == actual.dtype and agrees(expected, actual, pair.tolerance, pair.rule.approximation)
        return agrees(expected, actual.to(expected.dtype), bound=pair.rule.approximation)
    return expected.dtype == actual.dtype and _same_bits(pair, expected, actual)


def _same_bits(pair: RulePair, expected: Tensor, actual: Tensor) -> bool:
    """Whether floats have the same bits. Sums may be rounded in another order, even in the same program: kernels add in
    an order that depends on strides. There, only NaN, infinities and the signs of zeros are compared to the bit."""
    if not expected.is_floating_point():
        return torch.equal(expected, actual)
    if not isinstance(pair, Rewritten) or not pair.is_elementwise:
        zeros = (expected == 0) & (actual == 0) & (expected.signbit() != actual.signbit())
        return not bool(zeros.any()) and agrees(expected, actual)
    return not bool(_differing(expected, actual).any())


def _differing(expected: Tensor, actual: Tensor) -> Tensor:
    """Where floats have other bits; NaN is NaN."""
    numbers = (expected != actual) | (expected.signbit() != actual.signbit())
    return torch.where(expected.isnan() | actual.isnan(), expected.isnan() != actual.isnan(), numbers)


def _what_differs(pair: RulePair, expected: Tensor, actual: Tensor) -> str:
    plain = "computes something else than what it replaces"
    if tuple(expected.shape) != tuple(actual.shape):
        return f"{plain}: a result of another shape"
    if pair.rule.stage is Stage.OPTIMIZE and expected.is_floating_point() and expected.dtype == actual.dtype:
        if torch.equal(expected.isnan(), actual.isnan()):
            numbers = ~expected.isnan()
            if torch.equal(expected[numbers], actual[numbers]):
                return f"{plain}: the sign of a zero, or NaN"
            if agrees(expected, actual):
                return f"{plain}: numbers are rounded in another way"
        elif agrees(expected.nan_to_num(), actual.nan_to_num()):
            return f"{plain}: the sign of a zero, or NaN"
    return plain

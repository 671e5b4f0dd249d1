"""Pairs of programs compared on numbers: random ones, and those at which rules tend to be wrong.

A rule of the stage `optimize` promises every bit. The rules of other stages may round in another way, so their results
agree within a tolerance; NaN, infinities and shapes must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.patterns import Stage
from patcomp.patterns.aspects import LARGE, FurtherResults, is_left_open
from patcomp.patterns.example_types import ExampleType
from patcomp.proof.calls import Compiled
from patcomp.proof.fills import every_float, fills_of, pairs_of_floats
from patcomp.proof.open_aspects import depends_on_data, is_result_open, is_wide
from patcomp.proof.pairs import Pair, Rewritten, made_of
from patcomp.proof.trials import InvalidRewriteError, WrongRuleError, agrees

_ROUNDING = 30
"""How many tolerances a result may be off where its inputs cancel."""

GRID_VARIANTS = 6
"""How many elementwise programs of a rule are run on every float of 16 bits."""

_GRID = 2**16
"""The number of elements of a tensor that has every float of 16 bits."""


@dataclass(frozen=True)
class Difference:
    """A difference of a pair."""

    error: WrongRuleError
    may_be_rounding: bool
    """Whether it is so small that rounding may make it, so that symbols decide."""


def differences(pair: Pair) -> Iterator[Difference]:
    """The inputs on which a pair differs."""
    for fill in fills_of(pair):
        if (error := difference(pair, fill(0), fill.aspect)) is None:
            continue
        if not _may_be_rounding(pair, error, fill.aspect):
            yield Difference(error, False)
        elif fill.aspect != LARGE and any(difference(pair, fill(seed), fill.aspect) for seed in (101, 202)):
            yield Difference(error, True)


def _may_be_rounding(pair: Pair, error: WrongRuleError, aspect: str) -> bool:
    """Whether a rule that may round in another way differs by little, as a small difference of large numbers does.

    Of large numbers, only infinities and NaN are compared: an exponential makes much of how its operand is rounded.
    """
    if pair.rule.stage is Stage.OPTIMIZE or isinstance(error, InvalidRewriteError):
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


def difference(pair: Pair, inputs: Mapping[str, Any], aspect: str = "") -> WrongRuleError | None:
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
        if not _same(pair, one, other) and not is_result_open(pair.rule, index, one, inputs):
            results = {f"expected_y{index}": one, f"actual_y{index}": other}
            return _at_fewest_elements(pair, pair.wrong(_what_differs(pair, one, other), inputs, **results))
    return None


def _does_not_fit(pair: Pair, inputs: Mapping[str, Any]) -> bool:
    """Whether inputs have numbers that the types of a compiled program do not have."""
    narrow = any(value.dtype in (torch.int64, torch.float64) for value in inputs.values())
    return narrow and not isinstance(pair, Rewritten)


def _same(pair: Pair, expected: Tensor, actual: Tensor) -> bool:
    if tuple(expected.shape) != tuple(actual.shape):
        return False
    if pair.rule.stage is not Stage.OPTIMIZE:
        if isinstance(pair, Rewritten):
            return expected.dtype == actual.dtype and agrees(expected, actual, pair.tolerance)
        return agrees(expected, actual.to(expected.dtype))
    return expected.dtype == actual.dtype and _same_bits(pair, expected, actual)


def _same_bits(pair: Pair, expected: Tensor, actual: Tensor) -> bool:
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


def _what_differs(pair: Pair, expected: Tensor, actual: Tensor) -> str:
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


def _at_fewest_elements(pair: Pair, error: WrongRuleError) -> WrongRuleError:
    """The error, with the elements of a grid at which the results differ and not the whole grid."""
    tensors = error.tensors
    expected = next(value for name, value in tensors.items() if name.startswith("expected"))
    actual = next(value for name, value in tensors.items() if name.startswith("actual"))
    if expected.shape != actual.shape or expected.numel() < _GRID or not expected.is_floating_point():
        return error
    exact = _differing(expected, actual.to(expected.dtype))
    wild = exact & (expected.isfinite() != actual.isfinite())
    far = exact & ((expected - actual).abs() >= 0.5 * (expected - actual).abs().nan_to_num(0.0, 0.0).max())
    chosen = next(each for each in (wild, far, exact) if bool(each.any()))
    places = chosen.reshape(-1).nonzero()[:4, 0]
    shape = expected.shape
    error.tensors = {
        f"{name}, at elements {places.tolist()}": value.reshape(-1)[places] if value.shape == shape else value
        for name, value in tensors.items()
    }
    return error


# ---- every float of 16 bits ---------------------------------------------------------------------------


def grid_refutation(pair: Rewritten) -> WrongRuleError | None:
    """The error of a pair of elementwise programs of flat tensors of 65,536 elements, filled with every float of 16
    bits, or, for several inputs, with all pairs of the 256 that are most special."""
    exact = pair.rule.stage is Stage.OPTIMIZE
    (run, *_) = pair.runs
    inputs = {}
    floats = [name for name, each in run.items() if (t := ExampleType.parsed(each.type)) and t.is_float and t.sizes]
    for index, (name, each) in enumerate(run.items()):
        value = made_of(each, (), index)
        if name in floats and value.numel() == _GRID:
            value = (every_float() if len(floats) == 1 else pairs_of_floats(floats.index(name))).to(value.dtype)
            if not exact:
                limit = 10.0 if is_left_open(pair.rule.unspecified, LARGE) else 100.0
                value = value.nan_to_num(0.5, limit, -limit).clamp(-limit, limit)
            value = value.reshape(made_of(each).shape)
        inputs[name] = value
    return difference(pair, inputs)


def flat(drawing: Any) -> Any | None:
    """An elementwise program with flat tensors of 65,536 elements in the place of those of the largest shape; None if
    its tensors have several shapes."""
    types = {name: type_ for name, value in drawing.example.items() if (type_ := ExampleType.parsed(value))}
    shapes = {type_.sizes for type_ in types.values() if type_.sizes}
    if len(shapes) != 1:
        return None
    example = {
        name: str(replace(types[name], sizes=(_GRID,))) if name in types and types[name].sizes else value
        for name, value in drawing.example.items()
    }
    return replace(drawing, example=example, runs=(), aspect="every float of 16 bits")

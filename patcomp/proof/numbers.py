"""Pairs of programs compared on numbers: random ones, and those at which rules tend to be wrong.

A rule of the stage `optimize` promises every bit. The rules of other stages may round in another way, so their results
agree within a tolerance; NaN, infinities and shapes must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.patterns import Stage
from patcomp.patterns.aspects import LARGE, SPECIAL, is_left_open
from patcomp.patterns.example_types import ExampleType
from patcomp.proof.calls import Compiled
from patcomp.proof.op_equivalence import operator_schema
from patcomp.proof.open_aspects import depends_on_data, is_result_open, is_wide
from patcomp.proof.pairs import Input, Pair, Rewritten, made_of
from patcomp.proof.trials import InvalidRewriteError, WrongRuleError, agrees
from patcomp.proof.variations import OpDrawing

_EXACT = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5, 1e-40, -1e-7, 3.4e38, -3.4e38, 65504.0, 3.0)
"""The values of the tensors on which a rule must keep every bit: those of floats with zeros of both signs, infinities,
NaN, halves, numbers too small for full precision, and the largest ones of 16 and 32 bits."""

_INTEGERS = (0, -1, 1, 127, -128, 128, 255, 256, -300, 32767, -32768, 65536, 70000, -(2**31), 2**31 - 1, 2, -7, 7)
"""The values of integer tensors on which a rule must keep every bit."""

_ROUNDING = 30
"""How many tolerances a result may be off where its inputs cancel."""

_SMALL = 300
"""The largest magnitude of the integers of a program that is compiled: sums of 64 bits become sums of 32 bits."""

GRID_VARIANTS = 6
"""How many elementwise programs of a rule are run on every float of 16 bits."""

_GRID = 2**16
"""The number of elements of a tensor that has every float of 16 bits."""


def refutation(pair: Pair) -> WrongRuleError | None:
    """The error of the first inputs on which a pair differs; None if none was found."""
    for fill in fills_of(pair):
        if (error := difference(pair, fill(0))) is None:
            continue
        if not _may_be_rounding(pair, error) or any(difference(pair, fill(seed)) for seed in (101, 202)):
            return error
    return None


def _may_be_rounding(pair: Pair, error: WrongRuleError) -> bool:
    """Whether a rule that may round in another way differs by little, as a small difference of large numbers does."""
    if pair.rule.stage is Stage.OPTIMIZE or isinstance(error, InvalidRewriteError):
        return False
    expected = next(value for name, value in error.tensors.items() if name.startswith("expected"))
    actual = next(value for name, value in error.tensors.items() if name.startswith("actual"))
    if expected.shape != actual.shape or not expected.is_floating_point():
        return False
    if isinstance(pair, Rewritten):
        return agrees(expected, actual, _ROUNDING * pair.tolerance)
    narrow = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(expected.dtype, 2e-5)
    return agrees(expected, actual, _ROUNDING * narrow)


def difference(pair: Pair, inputs: Mapping[str, Any]) -> WrongRuleError | None:
    """The error if the results of a pair differ on the inputs; None also if the source does not take them."""
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
    for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
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
    far = exact & ~((expected - actual).abs() <= 1e-3 * expected.abs())
    places = (far if bool(far.any()) else exact).reshape(-1).nonzero()[:4, 0]
    shape = expected.shape
    error.tensors = {
        f"{name}, at elements {places.tolist()}": value.reshape(-1)[places] if value.shape == shape else value
        for name, value in tensors.items()
    }
    return error


# ---- inputs ----------------------------------------------------------------------------------------


def fills_of(pair: Pair) -> Iterator[Callable[[int], dict[str, Any]]]:
    """The inputs on which a pair is compared: random ones for each run, and special ones; as functions of a seed."""
    for index, run in enumerate(pair.runs):
        yield partial(_filled, run, (), index)
    for run in pair.runs[:1] if len(pair.runs) == 1 else pair.runs[1:2]:
        for special, seed in special_values(pair):
            yield partial(_filled, run, special, seed)
        if _has_integers(run):
            largest = 2**31 if isinstance(pair, Rewritten) else _SMALL
            for seed in range(3):
                yield partial(_with_integers, run, largest, seed)


def special_values(pair: Pair) -> Iterator[tuple[Sequence[float], int]]:
    """The special values that take the place of random ones, with seeds that place them."""
    literals = literals_of(pair)
    if pair.rule.stage is Stage.OPTIMIZE:
        for seed in range(4 if isinstance(pair, Rewritten) and pair.is_elementwise else 2):
            start = 4 * seed
            yield (*_EXACT[start:], *_EXACT[:start], *literals), seed
        return
    for aspect, values in SPECIAL.items():
        if not is_left_open(pair.rule.unspecified, aspect):
            yield values, 0
    if literals:
        yield literals, 0
    if not is_left_open(pair.rule.unspecified, LARGE):
        yield (100.0, -100.0, 99.0, 120.0), 0


def literals_of(pair: Pair) -> tuple[float, ...]:
    """The numbers in the source, at which comparisons and bounds are decided."""
    found = []
    drawing = pair.drawing
    for name, value in getattr(drawing, "example", {}).items():
        if isinstance(drawing, OpDrawing) and "Scalar" not in operator_schema(drawing.op)[name].type:
            continue  # a size, an axis
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e5:
            found.append(float(value))
    return tuple(dict.fromkeys(found))[:8]


def _filled(run: Mapping[str, Input], special: Sequence[float], place: int, seed: int) -> dict[str, Any]:
    return {
        name: made_of(each, tuple(special[index % 3 :]) + tuple(special[: index % 3]), seed + place + index)
        for index, (name, each) in enumerate(run.items())
    }


def _has_integers(run: Mapping[str, Input]) -> bool:
    return any(_is_free_integer(each) for each in run.values())


def _is_free_integer(each: Input) -> bool:
    type_ = ExampleType.parsed(each.type)
    return each.given is None and type_ is not None and type_.is_integer and type_.limits is None


def _with_integers(run: Mapping[str, Input], largest: int, place: int, seed: int) -> dict[str, Any]:
    return {name: _integers(each, seed + place + index, largest) for index, (name, each) in enumerate(run.items())}


def _integers(each: Input, seed: int, largest: int) -> Tensor:
    """Special integers, of some largest magnitude, for a tensor of integers without a range."""
    value = made_of(each, (), seed)
    if not _is_free_integer(each):
        return value
    limits = torch.iinfo(value.dtype)
    numbers = [n for n in _INTEGERS if limits.min <= n <= limits.max and abs(n) <= largest]
    listed = torch.tensor(numbers, dtype=value.dtype)
    places = torch.arange(value.numel()) * (2 * seed + 1) + 5 * seed
    return listed[places % len(listed)].reshape(value.shape)


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
            value = (_every_float() if len(floats) == 1 else _pairs(floats.index(name))).to(value.dtype)
            if not exact:
                value = value.nan_to_num(0.5, 100.0, -100.0).clamp(-100, 100)
            value = value.reshape(made_of(each).shape)
        inputs[name] = value
    return difference(pair, inputs)


def _every_float() -> Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)


def _pairs(position: int) -> Tensor:
    """256 floats, each beside each other one: in rows for the first input, in columns for the second."""
    spread = _every_float()[::280]
    special = torch.tensor(_EXACT).to(torch.float32)
    values = torch.cat([special, spread.to(torch.float32)])[:256]
    values = torch.cat([values, torch.linspace(-4, 4, 256 - len(values))]) if len(values) < 256 else values
    one, other = torch.meshgrid(values, values, indexing="ij")
    return ((one, other) if position % 2 == 0 else (other, one))[0].reshape(-1)


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

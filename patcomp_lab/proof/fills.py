"""The numbers with which programs are run: random ones, and those at which rules tend to be wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from patcomp.patterns import Stage
from patcomp.patterns.aspects import LARGE, NARROW, SPECIAL, TIES, is_left_open
from patcomp.patterns.example_types import limits_of
from patcomp_lab.proof import narrow_floats, ties
from patcomp_lab.proof.op_calls import OpDrawing, operator_schema
from patcomp_lab.proof.pairs import Rewritten, RulePair, RunInput, made_of

_EXACT = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5, 1e-40, -1e-7, 3.4e38, -3.4e38, 65504.0, 3.0)
"""The values of the tensors on which a rule must keep every bit: those of floats with zeros of both signs, infinities,
NaN, halves, numbers too small for full precision, and the largest ones of 16 and 32 bits."""

_INTEGERS = (0, -1, 1, 127, -128, 128, 255, 256, -300, 32767, -32768, 65536, 70000, -(2**31), 2**31 - 1, 2, -7, 7)
"""The values of integer tensors on which a rule must keep every bit."""

_LARGE = (100.0, -100.0, 99.0, 120.0)
"""Numbers whose exponential overflows."""

_TINY = (1e-4, -3e-5, 1e-5, 2e-4, -1e-3)
"""Numbers whose squares are as small as the eps of a norm."""

_SMALL = 300
"""The largest magnitude of the integers of a program that is compiled: sums of 64 bits become sums of 32 bits."""


@dataclass(frozen=True)
class Fill:
    """Inputs for a run, as a function of a seed."""

    make: Callable[[int], dict[str, Any]]
    aspect: str = ""
    """The aspect of special values (`patterns.aspects`)."""

    def __call__(self, seed: int) -> dict[str, Any]:
        return self.make(seed)


def fills_of(pair: RulePair) -> Iterator[Fill]:
    """The inputs on which a pair is compared: random ones for each run, and special ones."""
    for index, run in enumerate(pair.runs):
        yield Fill(partial(_filled, run, (), index))
    for run in pair.runs[:1] if len(pair.runs) == 1 else pair.runs[1:2]:
        for aspect, special, seed in special_values(pair):
            yield Fill(partial(_filled, run, special, seed), aspect)
        if _has_integers(run):
            largest = 2**31 if isinstance(pair, Rewritten) else _SMALL
            for seed in range(3):
                yield Fill(partial(_with_integers, run, largest, seed))
        if ties.decides(pair):
            for draw, drawn in enumerate(ties.numbers_of(pair.rule)):
                yield Fill(partial(_of_numbers, run, partial(_same_numbers, drawn), draw), TIES)
        if narrow_floats.has_narrow_floats(pair) and not is_left_open(pair.rule.unspecified, NARROW):
            for draw in range(narrow_floats.NARROW_DRAWS):
                yield Fill(partial(_of_numbers, run, partial(narrow_floats.drawn_numbers, draw), draw), NARROW)
        if pair.rule.stage is Stage.OPTIMIZE:
            yield Fill(partial(_of_numbers, run, _close, 0))
        else:
            yield Fill(partial(_of_numbers, run, partial(_same_numbers, _TINY), 0))
            if not is_left_open(pair.rule.unspecified, TIES):
                yield Fill(partial(_of_numbers, run, partial(_same_numbers, (1.0,)), 0), TIES)


def special_values(pair: RulePair) -> Iterator[tuple[str, Sequence[float], int]]:
    """The special values to put in place of random ones: their aspect, the values, and the seed for their places.

    A rule that need not keep every bit is run on them in its examples and elementwise programs only: where an op has
    other arguments, kernels of PyTorch differ in what they make of infinities and NaN.
    """
    literals, is_elementwise = literals_of(pair), isinstance(pair, Rewritten) and pair.is_elementwise
    if pair.rule.stage is Stage.OPTIMIZE:
        for seed in range(4 if is_elementwise else 2):
            start = 4 * seed
            yield "", (*_EXACT[start:], *_EXACT[:start], *literals), seed
        return
    if literals:
        yield "", literals, 0
    if not is_elementwise and getattr(pair.drawing, "aspect", "the example") != "the example":
        return
    for aspect, values in {**SPECIAL, LARGE: _LARGE}.items():
        if not is_left_open(pair.rule.unspecified, aspect):
            yield aspect, values, 0


def literals_of(pair: RulePair) -> tuple[float, ...]:
    """The numbers in the source, at which comparisons and bounds are decided."""
    found = []
    drawing = pair.drawing
    for name, value in getattr(drawing, "example", {}).items():
        if isinstance(drawing, OpDrawing) and "Scalar" not in operator_schema(drawing.op)[name].type:
            continue  # a size, an axis
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e5:
            found.append(float(value))
    return tuple(dict.fromkeys(found))[:8]


def _filled(run: Mapping[str, RunInput], special: Sequence[float], place: int, seed: int) -> dict[str, Any]:
    return {
        name: made_of(each, tuple(special[index % 3 :]) + tuple(special[: index % 3]), seed + place + index)
        for index, (name, each) in enumerate(run.items())
    }


def _of_numbers(
    run: Mapping[str, RunInput], numbers: Callable[[int, torch.dtype], Sequence[float]], place: int, seed: int
) -> dict[str, Any]:
    """Tensors without other numbers than some, drawn, where an input is free."""
    made = {name: made_of(each, (), seed + place) for name, each in run.items()}
    generator = torch.Generator().manual_seed(seed + place)
    for index, (name, value) in enumerate(made.items()):
        is_free = value.is_floating_point() and run[name].given is None and limits_of(run[name].type) is None
        if is_free or run[name].is_free_integer:
            drawn = numbers(index, value.dtype)
            whole = drawn if is_free else [number for number in drawn if math.isfinite(number) and number % 1 == 0]
            listed = torch.tensor([*whole] or [1.0]).to(value.dtype)
            made[name] = listed[torch.randint(len(listed), value.shape, generator=generator)]
    return made


def _same_numbers(numbers: Sequence[float], place: int, dtype: torch.dtype) -> Sequence[float]:
    """Numbers that do not depend on the input."""
    return numbers


def _close(place: int, dtype: torch.dtype) -> Sequence[float]:
    """Large numbers that differ in their last places."""
    last = 2 / torch.finfo(dtype).eps if dtype.is_floating_point else 64.0
    return [last - place for place in (0, 1, 3, 0, 2)]


def _has_integers(run: Mapping[str, RunInput]) -> bool:
    return any(each.is_free_integer for each in run.values())


def _with_integers(run: Mapping[str, RunInput], largest: int, place: int, seed: int) -> dict[str, Any]:
    return {name: _integers(each, seed + place + index, largest) for index, (name, each) in enumerate(run.items())}


def _integers(each: RunInput, seed: int, largest: int) -> Tensor:
    """Special integers, of some largest magnitude, for a tensor of integers without a range."""
    value = made_of(each, (), seed)
    if not each.is_free_integer:
        return value
    limits = torch.iinfo(value.dtype)
    numbers = [n for n in _INTEGERS if limits.min <= n <= limits.max and abs(n) <= largest]
    listed = torch.tensor(numbers, dtype=value.dtype)
    places = torch.arange(value.numel()) * (2 * seed + 1) + 5 * seed
    return listed[places % len(listed)].reshape(value.shape)

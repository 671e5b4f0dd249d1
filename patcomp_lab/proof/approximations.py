"""Rules that declare an approximation: how far their results are from what they replace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp_lab.proof.counterexample import WrongRuleError
from patcomp_lab.proof.deciding_numbers import every_number
from patcomp_lab.proof.fills import fills_of
from patcomp_lab.proof.pairs import RulePair, made_of

_CHUNKS = 2048
"""In how many runs a program gets all 16-bit numbers at most; a program of fewer elements does not get them."""


@dataclass
class Measured:
    """The measured distance between results of rewritten programs and the original results."""

    apart: float = 0.0
    """The largest difference of two finite results in 32 bits."""
    numbers: int = 0
    """How many results in 32 bits were compared."""
    has_all_numbers: bool = False
    """Whether a program ran on all numbers of 16 bits."""

    def add(self, expected: Tensor, actual: Tensor) -> float:
        """Compare two results; return their largest difference."""
        both = expected.isfinite() & actual.isfinite()
        difference = (expected.double() - actual.double()).abs()[both]
        largest = float(difference.max()) if difference.numel() else 0.0
        if actual.dtype == torch.float32:
            self.apart, self.numbers = max(self.apart, largest), self.numbers + int(both.sum())
        return largest


def measure(pair: RulePair, bound: float, measured: Measured) -> WrongRuleError | None:
    """Measure an approximation on the numbers of its comparisons; one elementwise program of one float32 also on all
    numbers of float16 and bfloat16.

    Args:
        bound: the largest difference that the rule declares. The rounding of the results' type is allowed besides.
        measured: the function adds to it.

    Returns:
        The error that shows a larger difference.
    """
    numbers = [] if measured.has_all_numbers else [*_all_numbers(pair)]
    measured.has_all_numbers |= bool(numbers)
    for inputs in (*numbers, *(fill(0) for fill in fills_of(pair))):
        try:
            with torch.no_grad():
                before, after = pair.before(inputs), pair.after(inputs)
        except (EvaluationError, RuntimeError, IndexError, ValueError):  # `proof.numbers` tells who refuses the numbers
            continue
        for index, (expected, actual) in enumerate(zip(before, after, strict=False)):
            if not expected.is_floating_point() or expected.shape != actual.shape:
                continue
            largest = measured.add(expected, actual)
            size = float(expected[expected.isfinite()].abs().max()) if bool(expected.isfinite().any()) else 0.0
            if largest > bound + torch.finfo(actual.dtype).eps * 4 * size:
                message = f"is {largest:.2g} from what it replaces, and declares an approximation within {bound:g}"
                return pair.wrong(message, inputs, **{f"expected_y{index}": expected, f"actual_y{index}": actual})
    return None


def _all_numbers(pair: RulePair) -> Iterator[Mapping[str, Any]]:
    """All 16-bit numbers in tensors of the shape of the only input, for an elementwise program; otherwise nothing."""
    inputs = pair.runs[0]
    numbers = (
        every_number([each.type for each in inputs.values()]) if pair.is_elementwise and len(inputs) == 1 else None
    )
    if numbers is None or numbers[0].dtype != torch.float32:
        return
    ((name, given),) = inputs.items()
    like = made_of(given)
    if numbers[0].numel() > _CHUNKS * like.numel():
        return
    for chunk in numbers[0].split(like.numel()):
        if chunk.numel() == like.numel():
            yield {name: chunk.reshape(like.shape)}

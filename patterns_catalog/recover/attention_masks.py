"""The masks of attention that a model writes out, and the one mask of the composite that computes the same.

A model adds numbers to the scores, or puts a number in place of scores. The composite only adds, or drops scores
where a bool mask is false. The two are equal, row by row, in these cases:

- Numbers that are added stay unchanged.
- Minus infinity in place of a score is a bool mask, or minus infinity that is added.
- The smallest number of the type in place of a score is the same number, added: every score is lost in it when the
  sum is rounded. A row without a key has equal weights in both. Scores in float16 are not lost in float16's smallest
  number, -65504; then the mask is float32, and the number is float32's smallest.

Any other number in place of scores is refused unless no score can be below it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from patcomp.authoring import aten, coreai
from patcomp.ir.infer import broadcast_shapes
from patcomp.ir.types import element_name, element_type, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns.match import Match
from patterns_catalog.views import arguments_of

LARGEST = {"f32": float.fromhex("0x1.fffffep127"), "f16": 65504.0, "bf16": float.fromhex("0x1.fep127")}
"""The largest finite number of each type; the smallest is its negative."""


@dataclass(frozen=True)
class Added:
    """Numbers that are added to the scores."""

    numbers: Value


@dataclass(frozen=True)
class Filled:
    """A number in place of the scores where `condition` is true, or where it is false."""

    condition: Value
    fills_where: bool
    number: float


Stages = Sequence[Added | Filled]
"""The masking of a model's scores, in order."""


def masks_of(match: Match) -> Stages:
    """The stages of a match of the rule, from its captures and the tags `mask` and `outer mask`."""
    stages: list[Added | Filled] = []
    for tag, prefix in (("mask", ""), ("outer mask", "outer_")):
        kind = match.tags[tag]
        if kind == "added":
            stages.append(Added(match[f"{prefix}bias"]))
        elif kind != "none":
            fill = number_of(match[f"{prefix}fill"])
            stages.append(Filled(match[f"{prefix}condition"], kind == "dropped", fill))
    return stages


def number_of(constant: Value | None) -> float:
    """The number that all elements of a matched constant equal."""
    assert constant is not None
    assert constant.constant is not None
    return float(constant.constant.reshape(-1)[0])


# ---- whether the mask computes the same --------------------------------------------------------------


def no_score_is_below(stages: Stages, element: str, bound: float) -> bool:
    """Whether no score can be below a number that takes the place of others.

    Args:
        stages: the masking of the scores.
        element: the name of the type in which the scores are masked.
        bound: the largest magnitude of a score before the first stage.
    """
    for index, stage in enumerate(stages):
        if isinstance(stage, Filled):
            unbounded = any(isinstance(earlier, Added) for earlier in stages[:index])
            if not stage.number <= -(LARGEST[element] if unbounded else min(bound, LARGEST[element])):
                return False
    return True


def rows_keep_their_weights(stages: Stages, element: str) -> bool:
    """Whether rows with all keys hidden have the same weights in the composite as in the model."""
    numbers = [stage.number for stage in stages if isinstance(stage, Filled) and stage.number > -math.inf]
    if all(number == -LARGEST[element] for number in numbers):
        # in float16 the sum of its smallest number and another one depends on both
        return not numbers or element != "f16" or not any(isinstance(stage, Added) for stage in stages)
    return len(stages) == 1


# ---- the mask ----------------------------------------------------------------------------------------


def mask_of(stages: Stages, element: Attribute) -> Value | None:
    """The mask of the composite: bool where it only drops scores, else of numbers; None without a stage.

    Args:
        stages: the masking of the scores.
        element: the type in which the scores are masked; a mask of numbers is added in it.
    """
    finite = any(isinstance(stage, Filled) and stage.number > -math.inf for stage in stages)
    if finite and element_name(element) == "f16":
        element = element_type("f32")
    mask: Value | None = None
    for stage in stages:
        mask = _added(mask, stage, element) if isinstance(stage, Added) else _filled(mask, stage, element)
    return mask


def _added(mask: Value | None, stage: Added, element: Attribute) -> Value:
    numbers = stage.numbers
    cast = arguments_of(numbers, "_to_copy") if numbers.dtype == "f32" != element_name(element) else None
    if cast is not None and cast["self"].element_type == element:
        numbers = cast["self"]  # the cast of a half type to float32 is exact
    if numbers.element_type != element:
        numbers = aten._to_copy(tensor(numbers.shape, element), numbers, dtype=element)
    if mask is None:
        return numbers
    mask = _as_numbers(mask, element)
    shape = broadcast_shapes(mask.shape, numbers.shape)
    return aten.add.Tensor(tensor(shape, element), mask, numbers)


def _filled(mask: Value | None, stage: Filled, element: Attribute) -> Value:
    if stage.number == -math.inf and (mask is None or mask.dtype == "i1"):
        condition = stage.condition
        keep = aten.logical_not(condition.type, condition) if stage.fills_where else condition
        if mask is None:
            return keep
        shape = broadcast_shapes(mask.shape, keep.shape)
        return aten.logical_and(tensor(shape, "i1"), mask, keep)
    kept = coreai.constant(0.0, element) if mask is None else _as_numbers(mask, element)
    number = -math.inf if stage.number == -math.inf else -LARGEST[element_name(element)]
    fill = coreai.constant(number, element)
    return _where(stage.condition, fill, kept) if stage.fills_where else _where(stage.condition, kept, fill)


def _as_numbers(mask: Value, element: Attribute) -> Value:
    """A mask as numbers to add."""
    if mask.dtype != "i1":
        return mask
    return _where(mask, coreai.constant(0.0, element), coreai.constant(-math.inf, element))


def _where(condition: Value, yes: Value, no: Value) -> Value:
    shape = broadcast_shapes(condition.shape, yes.shape, no.shape)
    return aten.where.self(tensor(shape, yes.element_type), condition, yes, other=no)

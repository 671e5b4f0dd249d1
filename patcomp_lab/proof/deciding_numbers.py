"""Numbers that decide whether a pair of programs is equal, where symbols do not reach them.

- **Whole numbers**: the floats of the inputs are small whole numbers, or eighths if they have a range of values. Sums
  and products of them are exact, so that two formulas that are equal over the reals give equal numbers, and two
  different polynomials hardly ever do. A quotient or a root may differ in the last digits. Decompositions compute in 64
  bits.
- **Every number**: an element-wise op of one operand is run on every number of float16 and of bfloat16, or on every
  integer of its type of 8 or 16 bits; one of two operands on every pair of numbers of the 8-bit types. For floats the
  answer is a bound, in units in the last place, of the distance from PyTorch's op in 64 bits, and the few numbers at
  which it does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.eager import is_pointwise
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.patterns.example_types import ExampleType, limits_of
from patcomp_lab.proof.calls import DecomposedCall
from patcomp_lab.proof.counterexample import WrongRuleError
from patcomp_lab.proof.op_calls import OpDrawing
from patcomp_lab.proof.open_aspects import is_result_open
from patcomp_lab.proof.pairs import RulePair, RunInput, made_of

_DRAWS = 6
"""On how many draws of whole numbers a pair is compared, of numbers that may be equal, and of different ones."""


def decision(
    pair: RulePair, pair_of: Callable[[Any], RulePair | None], bounds: dict[str, DistanceBound | None]
) -> DistanceBound | bool:
    """The bound of a pair on every number, or whether its results are equal on whole numbers.

    Args:
        pair: a call of an op, before and after its rule, or another pair without open sizes.
        pair_of: makes the pair of another drawing.
        bounds: those that are known, by drawing; the function adds to them.
    """
    if (flat := _flat(pair)) is not None:
        key = str(flat[0])
        if key not in bounds:
            bounds[key] = _bound_of(*flat, pair_of)
        if (bound := bounds[key]) is not None and bound.is_proof:
            return bound
    return equal_on_whole_numbers(pair)


# ---- whole numbers -------------------------------------------------------------------------------


def equal_on_whole_numbers(pair: RulePair) -> bool:
    """Whether the results of a pair are equal on whole numbers, for a decomposition in 64 bits.

    Where some numbers of an input are equal, integer results may differ if PyTorch leaves open which one comes first.
    """
    for wide in (True, False) if isinstance(pair, DecomposedCall) else (False,):
        drawn = [_equal_in_draw(pair, seed, distinct, wide) for distinct in (False, True) for seed in range(_DRAWS)]
        if known := [answer for answer in drawn if answer is not None]:
            return all(known)
    return False  # PyTorch refuses them


def _equal_in_draw(pair: RulePair, seed: int, distinct: bool, wide: bool) -> bool | None:
    """Whether the results are equal in one draw; None if PyTorch or the program refuses the numbers."""
    run = pair.runs[0]
    inputs = {name: _whole(each, 100 * seed + index, distinct) for index, (name, each) in enumerate(run.items())}
    if wide:
        inputs = {name: value.double() if value.dtype == torch.float32 else value for name, value in inputs.items()}
    try:
        expected, given = pair.before(inputs), pair.after(inputs)
    except (RuntimeError, IndexError, ValueError):  # an EvaluationError is a RuntimeError
        return None
    pairs = enumerate(zip(expected, given, strict=False))
    return all(_equal(a, b) or (not distinct and is_result_open(pair, index, a, b, inputs)) for index, (a, b) in pairs)


def _whole(given: RunInput, seed: int, distinct: bool) -> Tensor:
    """A tensor of small whole numbers, all of them different if there are no equal ones.

    Integers, and tensors of which only one makes sense, are those of other comparisons.
    """
    made = made_of(given, (), seed)
    if given.given is not None or not (made.is_floating_point() or made.is_complex()):
        return made
    limits = limits_of(given.type)
    generator, shape = torch.Generator().manual_seed(seed), made.shape
    if made.is_complex():
        parts = torch.randint(-4, 5, (2, *shape), generator=generator).double()
        return torch.complex(parts[0], parts[1]).to(made.dtype)
    if limits is not None:
        low, high = math.ceil(limits[0] * 8), math.floor(limits[1] * 8)
        return made if low > high else (torch.randint(low, high + 1, shape, generator=generator) / 8).to(made.dtype)
    if distinct:
        count = made.numel()
        first = torch.randint(-count, 1, (), generator=generator)
        return (torch.randperm(count, generator=generator) + first).reshape(shape).to(made.dtype)
    first = torch.randint(-8, 5, (), generator=generator)
    return (torch.randint(0, 5, shape, generator=generator) + first).to(made.dtype)


def _equal(expected: Tensor, actual: Tensor) -> bool:
    if expected.shape != actual.shape:
        return False
    if not (expected.is_floating_point() or expected.is_complex()):
        return torch.equal(expected.to(torch.int64), actual.to(torch.int64))
    wide = torch.complex128 if expected.is_complex() else torch.float64
    slack = _LAST_DIGITS * torch.finfo(actual.dtype).eps
    a, b = expected.to(wide), actual.to(wide)
    largest = max(1.0, float(a[a.isfinite()].abs().amax())) if bool(a.isfinite().any()) else 1.0
    return torch.allclose(a, b, rtol=0, atol=slack * largest, equal_nan=True)


_LAST_DIGITS = 32
"""How far the results of two formulas of quotients and roots may be apart, in units in the last place."""


# ---- every number --------------------------------------------------------------------------------


@dataclass(frozen=True)
class DistanceBound:
    """How far a function is from another one that computes in 64 bits, on every number but a few."""

    numbers: int
    """On how many numbers, or pairs of numbers, the functions were run."""
    units: float = 0.0
    """The largest distance in units in the last place of the result, or of 1 if the result is smaller. It is 0 where a
    result has the bits of PyTorch's kernel of the same type."""
    at: tuple[Any, ...] = ()
    """The operands with the largest distance."""
    exceptions: int = 0
    """On how many of the numbers the results are farther apart than `FAR`, or only one is NaN, or infinite."""
    excepted: tuple[Any, ...] = ()
    """The operands of an exception."""

    @property
    def is_proof(self) -> bool:
        """Whether the exceptions are few."""
        return self.exceptions <= self.numbers * _FEW

    def __str__(self) -> str:
        how = f"within {self.units:.1f} units in the last place" if self.units else "to the bit"
        text = f"{how} on {self.numbers:,} numbers"
        at = ", ".join(f"{number:.6g}" for number in self.excepted)
        return f"{text} but {self.exceptions:,}, such as {at}" if self.exceptions else text


FAR = 64
"""From this distance on, results are not those of the same function."""

_FEW = 0.05
"""Which part of the numbers may be exceptions."""


def _flat(pair: RulePair) -> tuple[OpDrawing, dict[str, Tensor]] | None:
    """An elementwise call on flat tensors, and every number for them; None for other calls, or for too many."""
    drawing = pair.drawing
    if not isinstance(drawing, OpDrawing) or not is_pointwise(drawing.op):
        return None
    inputs = every_number([each.type for each in pair.runs[0].values()])
    tensors = [name for name, value in drawing.example.items() if ExampleType.parsed(value)]
    if inputs is None or len(tensors) != len(inputs):
        return None
    types = [ExampleType.parsed(drawing.example[name]) for name in tensors]
    shape = (len(inputs[0]),)
    example = {
        name: str(replace(type_, sizes=shape, limits=None)) for name, type_ in zip(tensors, types, strict=True) if type_
    }
    flat = OpDrawing(drawing.rule, drawing.op, {**drawing.example, **example}, "every number")
    return flat, dict(zip(pair.runs[0], inputs, strict=True))


def every_number(types: Sequence[str]) -> list[Tensor] | None:
    """Flat tensors with every number of their type, or every pair of 8-bit numbers; None if there are too many."""
    parsed = [ExampleType.parsed(text) for text in types]
    elements = {type_.element if type_ else "" for type_ in parsed}
    if len(elements) != 1 or elements == {""}:
        return None
    dtype = TORCH_DTYPES[elements.pop()]
    columns = _columns(dtype, len(parsed) * (2 if dtype.is_complex else 1))
    if columns is None:
        return None
    if dtype.is_complex:
        columns = [torch.complex(*columns)]
    return [column.to(dtype) for column in columns]


def _columns(dtype: torch.dtype, operands: int) -> list[Tensor] | None:
    of_floats = dtype.is_floating_point or dtype.is_complex
    if operands == 1 and of_floats:
        return [_all_of(dtype) if dtype.itemsize == 2 else _all_of(torch.float16, torch.bfloat16)]
    if operands == 1 and dtype.itemsize <= 2:
        return [_all_of(dtype)]
    if operands == 2 and (of_floats or dtype.itemsize == 1):
        few = _all_of(torch.float8_e5m2, torch.float8_e4m3fn) if of_floats else _all_of(dtype)
        return [column.flatten() for column in torch.meshgrid(few, few, indexing="ij")]
    return None


def _all_of(*dtypes: torch.dtype) -> Tensor:
    """Every number of some types; of several types in 32 bits."""
    if torch.bool in dtypes:
        return torch.tensor([False, True])
    parts = []
    for dtype in dtypes:
        bits = torch.int16 if dtype.itemsize == 2 else torch.int8
        parts.append(torch.arange(2 ** (8 * dtype.itemsize)).to(bits).view(dtype))
    return torch.cat([part.float() for part in parts]) if len(parts) > 1 else parts[0]


def _bound_of(
    drawing: OpDrawing, inputs: Mapping[str, Tensor], pair_of: Callable[[Any], RulePair | None]
) -> DistanceBound | None:
    """The bound of the first result; None if the rule or PyTorch refuses the call, or if integers or bools differ."""
    try:
        pair = pair_of(drawing)
        return None if pair is None else bound_on_every_number(pair, inputs)
    except (
        RuntimeError,
        IndexError,
        ValueError,
        WrongRuleError,
    ):  # the comparison of the plain call says what is wrong
        return None


def bound_on_every_number(pair: RulePair, inputs: Mapping[str, Tensor]) -> DistanceBound | None:
    """How far the first result is from that of PyTorch's op in 64 bits; None if integers or bools differ."""
    given, plain, count = pair.after(inputs)[0], pair.before(inputs)[0], len(next(iter(inputs.values())))
    if not (given.is_floating_point() or given.is_complex()):
        same = torch.equal(plain.to(torch.int64), given.to(torch.int64))
        return DistanceBound(count) if same else None
    truth = pair.before({name: _in_64_bits(value) for name, value in inputs.items()})[0]
    if given.is_complex():
        truth, given, plain = (torch.view_as_real(value) for value in (truth, given, plain))
    shape = (count, -1)
    return _bound(truth.double().reshape(shape), given.reshape(shape), plain.reshape(shape), [*inputs.values()])


def _in_64_bits(value: Tensor) -> Tensor:
    return value.to(torch.complex128) if value.is_complex() else value.double()


def _bound(truth: Tensor, given: Tensor, plain: Tensor, operands: Sequence[Tensor]) -> DistanceBound:
    """The bound of results, each of a row for a number.

    Args:
        truth: the results in 64 bits.
        given: those of the rule.
        plain: those of PyTorch in the type of the rule's results.
        operands: the numbers.
    """
    narrow = torch.float32 if given.dtype == torch.float64 else given.dtype  # 64-bit floats become those of 32 bits
    given, known = given.to(narrow), [truth.to(narrow), plain.to(narrow)]
    # PyTorch itself may overflow where 64 bits do not
    same = torch.stack([(each == given) | (each.isnan() & given.isnan()) for each in known]).any(0)
    _, exponent = torch.frexp(truth.abs().clamp_min(1.0))
    unit = torch.ldexp(torch.full_like(truth, torch.finfo(narrow).eps), exponent - 1)
    apart = torch.where(same, 0.0, (truth - given.double()).abs() / unit)
    distance = apart.nan_to_num(nan=FAR, posinf=FAR).amax(-1)
    exceptions = distance >= FAR
    distance = torch.where(exceptions, 0.0, distance)

    def operands_at(row: int) -> tuple[Any, ...]:
        return tuple(operand[row].item() for operand in operands)

    largest, count = int(distance.argmax()), int(exceptions.sum())
    excepted = operands_at(int(exceptions.nonzero()[0, 0])) if count else ()
    return DistanceBound(len(truth), float(distance[largest]), operands_at(largest), count, excepted)

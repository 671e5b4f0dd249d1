"""Numbers that decide whether two functions of tensors are equal, where symbols do not reach the functions.

- **Whole numbers**: the floats of the inputs are small whole numbers, or eighths if they have a range of values. Sums
  and products of them are exact, so that two formulas that are equal over the reals give equal numbers, and two
  different polynomials hardly ever do. A quotient or a root may differ in the last digits.
- **Every number**: an element-wise function of one operand is run on every number of float16 and of bfloat16, or on
  every integer of its type of 8 or 16 bits; one of two operands on every pair of numbers of the 8-bit types. For floats
  the answer is a bound, in units in the last place, of the distance from the same function in 64 bits, and the few
  numbers at which it does not hold.

A function gets its inputs by name and gives its results; the functions of a pair must share no code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.eager import random_tensor
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.patterns.example_types import ExampleType, limits_of, parse_type

Function = Callable[[Mapping[str, Any]], Sequence[Tensor]]

DRAWS = 4
"""On how many draws of whole numbers a pair is compared, of numbers that may be equal, and of different ones."""


# ---- whole numbers -------------------------------------------------------------------------------


def whole_numbers(types: Mapping[str, str], seed: int, distinct: bool) -> dict[str, Tensor]:
    """Inputs of their types with small whole numbers.

    Args:
        types: the static type of each input by name, with its range of values if it has one.
        seed: another seed gives other numbers.
        distinct: whether the floats of each input without a range of values are all different.
    """
    return {name: _whole(text, 100 * seed + index, distinct) for index, (name, text) in enumerate(types.items())}


def _whole(text: str, seed: int, distinct: bool) -> Tensor:
    limits = limits_of(text)
    made = random_tensor(parse_type(text), limits, seed)
    generator, shape = torch.Generator().manual_seed(seed), made.shape
    if made.is_complex():
        parts = torch.randint(-4, 5, (2, *shape), generator=generator).double()
        return torch.complex(parts[0], parts[1]).to(made.dtype)
    if not made.is_floating_point():
        return made
    if limits is not None:
        low, high = -int(-limits[0] * 8 // 1), int(limits[1] * 8 // 1)
        return made if low > high else (torch.randint(low, high + 1, shape, generator=generator) / 8).to(made.dtype)
    if distinct:
        count = made.numel()
        return (torch.randperm(count, generator=generator) - count // 2).reshape(shape).to(made.dtype)
    return torch.randint(-4, 5, shape, generator=generator).to(made.dtype)


def equal_on_whole_numbers(types: Mapping[str, str], before: Function, after: Function, count: int) -> bool | None:
    """Whether the first `count` results of two functions are equal on whole numbers; None if they refuse them all.

    If they differ only where two numbers of an input are equal, they are equal: PyTorch leaves open which of equal
    numbers comes first.
    """
    answers = []
    for distinct in (False, True):
        drawn = [_equal_in_draw(types, before, after, count, seed, distinct) for seed in range(DRAWS)]
        known = [answer for answer in drawn if answer is not None]
        answers += [all(known)] if known else []
    return any(answers) if answers else None


def _equal_in_draw(
    types: Mapping[str, str], before: Function, after: Function, count: int, seed: int, distinct: bool
) -> bool | None:
    inputs = whole_numbers(types, seed, distinct)
    try:
        expected = list(before(inputs))
    except (RuntimeError, IndexError, ValueError):  # EvaluationError is a RuntimeError
        return None
    given = list(after(inputs))
    return all(_equal(a, b) for a, b in zip(expected[:count], given[:count], strict=True))


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
class Bound:
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
        return self.exceptions <= self.numbers * FEW

    def __str__(self) -> str:
        how = f"within {self.units:.1f} units in the last place" if self.units else "to the bit"
        text = f"{how} on {self.numbers:,} numbers"
        at = ", ".join(f"{number:.6g}" for number in self.excepted)
        return f"{text} but {self.exceptions:,}, such as {at}" if self.exceptions else text


FAR = 64
"""From this distance on, results are not those of the same function."""

FEW = 0.05
"""Which part of the numbers may be exceptions."""


def every_number(types: Mapping[str, str]) -> dict[str, Tensor] | None:
    """Flat inputs with every number of their type, or every pair of 8-bit numbers; None if there are too many."""
    parsed = [ExampleType.parsed(text) for text in types.values()]
    elements = {type_.element if type_ else "" for type_ in parsed}
    if len(elements) != 1 or elements == {""}:
        return None
    dtype = TORCH_DTYPES[elements.pop()]
    columns = _columns(dtype, len(parsed) * (2 if dtype.is_complex else 1))
    if columns is None:
        return None
    if dtype.is_complex:
        columns = [torch.complex(*columns)]
    return {name: column.to(dtype) for name, column in zip(types, columns, strict=True)}


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


def bound_on_every_number(inputs: Mapping[str, Tensor], before: Function, after: Function) -> Bound | None:
    """How far the first result of `after` is from that of `before` in 64 bits; None if integers or bools differ.

    Args:
        inputs: those of `every_number`.
        before: the function that also computes in 64 bits.
        after: the function that computes in the type of the inputs.
    """
    given, plain, count = after(inputs)[0], before(inputs)[0], next(iter(inputs.values())).numel()
    if not (given.is_floating_point() or given.is_complex()):
        same = torch.equal(plain.to(torch.int64), given.to(torch.int64))
        return Bound(count) if same else None
    truth = before({name: _in_64_bits(value) for name, value in inputs.items()})[0]
    if given.is_complex():
        truth, given, plain = (torch.view_as_real(value) for value in (truth, given, plain))
    shape = (count, -1)
    return _bound(truth.double().reshape(shape), given.reshape(shape), plain.reshape(shape), [*inputs.values()])


def _in_64_bits(value: Tensor) -> Tensor:
    return value.to(torch.complex128) if value.is_complex() else value.double()


def _bound(truth: Tensor, given: Tensor, plain: Tensor, operands: Sequence[Tensor]) -> Bound:
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
    unit = torch.ldexp(torch.tensor(torch.finfo(narrow).eps, dtype=torch.float64), exponent - 1)
    apart = torch.where(same, 0.0, (truth - given.double()).abs() / unit)
    distance = apart.nan_to_num(nan=FAR, posinf=FAR).amax(-1)
    exceptions = distance >= FAR
    distance = torch.where(exceptions, 0.0, distance)

    def operands_at(row: int) -> tuple[Any, ...]:
        return tuple(operand[row].item() for operand in operands)

    largest, count = int(distance.argmax()), int(exceptions.sum())
    excepted = operands_at(int(exceptions.nonzero()[0, 0])) if count else ()
    return Bound(len(truth), float(distance[largest]), operands_at(largest), count, excepted)

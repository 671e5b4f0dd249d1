"""Compare an output of a program with PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.element_types import ELEMENT_OF_DTYPE
from patcomp.evaluate.twin import HALF, Twin
from patcomp.evaluate.verification import PARTIAL_SUMS, OutputError
from patcomp.ir.half import STANDS_FOR_MINUS_INFINITY

TOLERANCES = {"f64": 1e-8, "f32": 1e-4, "complex<f64>": 1e-8, "complex<f32>": 1e-4}
"""The largest error that passes, relative to the magnitude of the output, by the element type of the program's output.
Integers and bools must be equal. Floats of less than 32 bits are compared with a float32 twin of the model, or by their
rounding."""

_ROUNDING_STEPS = 4
"""How many rounding steps, at the largest magnitude of an output, a float of less than 32 bits may differ."""

_OF_HALF = 0.02
"""How much of its largest magnitude an output of a float32 model may differ in a program that a target made float16."""

_TIMES_EAGER = 3
"""How many times farther from the twin than eager PyTorch's own output a program's output may be."""

_EXPLAINED_STEPS = 20
"""How many rounding steps, at the largest magnitude of an output, half precision explains: 2 % of it in float16. A
larger distance of eager PyTorch's own output from the float32 model is reported."""

_SAYS_LITTLE = 0.1
"""A tolerance that is a larger part of the output's magnitude is noted."""


@dataclass(frozen=True)
class _Limits:
    """The limits within which an output passes: its largest error, the magnitude by which this error is divided (0 for
    an absolute error), and the median error relative to the median magnitude."""

    largest: float
    relative_to: float = 0.0
    median: float = math.inf


def compare(
    name: str,
    backend: str,
    expected: Tensor,
    given: Tensor,
    tolerance: float | None = None,
    twin: Callable[[], Twin | None] = lambda: None,
) -> OutputError:
    """The difference of one output from the expected one.

    Without a given tolerance, a float passes if its largest error is small beside the largest finite magnitude of the
    output (beside 1 if the output is zero). In float32 and float64, the median error must be small beside the median
    magnitude too, because one large element hides the errors of many small ones from the largest error and the PSNR. An
    output that fails may still be as exact as eager PyTorch's: after cancellation, or behind half precision. It passes
    if it is little farther from the twin than eager's own output. NaN and infinity never pass where half precision made
    them, also if eager PyTorch has them in half precision, too.

    Args:
        name, backend: of the output.
        expected: eager PyTorch's output.
        given: the program's.
        tolerance: the largest absolute difference that passes; by default that of the program's element type.
        twin: computes the same output of the model in a wider type, see `patcomp.evaluate.twin`. It is called for an
            output of half precision, and for any other float that would fail or is not finite.

    Raises:
        EvaluationError: the shapes differ, or one output has floats where the other has integers, say. How wide the
            elements are is for a target and for options to choose.
    """
    if tuple(expected.shape) != tuple(given.shape):
        raise EvaluationError(f"output {name!r} has shape {tuple(given.shape)}, eager's has {tuple(expected.shape)}")
    if _kind(expected) != _kind(given):
        elements, eagers = _element(given), _element(expected)
        raise EvaluationError(f"output {name!r} has elements of type {elements}, eager's has {eagers}")
    is_float = given.is_floating_point() or given.is_complex()
    limits = _limits(expected, given) if tolerance is None and is_float else _Limits(tolerance or 0.0)
    error = _error(name, backend, expected, expected, given, limits)
    if not is_float:
        return error
    if not error.is_finite and (found := _beside_float32(error, expected, given, tolerance, twin)) is not None:
        return found
    if tolerance is not None or (error.passed and expected.dtype not in HALF):
        return error
    wide = twin()
    if wide is None or wide.value.shape != expected.shape:
        return error
    own = _difference(wide.value, expected)
    if not bool(own.isfinite().all()):  # where eager overflows, the twin says nothing about the program
        return error
    limits = _limits_of_twin(limits, own, wide)
    against_twin = _error(name, backend, expected, wide.value, given, limits, wide.name)
    against_twin = replace(against_twin, half_loss=_half_loss(own, wide))
    return against_twin if against_twin.passed or expected.dtype in HALF else error


def _beside_float32(
    error: OutputError, expected: Tensor, given: Tensor, tolerance: float | None, twin: Callable[[], Twin | None]
) -> OutputError | None:
    """The error of an output if half precision makes it NaN or infinite, in the program or in eager PyTorch.

    Args:
        error: of the output beside eager PyTorch's.
        expected, given, tolerance, twin: as for `compare`.

    Returns:
        None if half precision does not: the output beside eager PyTorch's says enough.
    """
    if given.dtype in HALF and expected.dtype not in HALF:  # a target made the program float16
        return replace(error, overflows=count) if (count := overflows_beside(given, expected)) else None
    wide = twin()
    if wide is None:
        note = f"{error.nan} elements are NaN and {error.inf} infinite, and the model does not run in float32"
        return replace(error, note=note) if given.dtype in HALF and error.passed else None
    if wide.of not in HALF or wide.value.shape != given.shape:
        return None
    if count := overflows_beside(given, wide.value):
        return replace(error, overflows=count)
    if not overflows_beside(expected, wide.value):
        return None
    scale = _scale(wide.value)
    explained = _EXPLAINED_STEPS * torch.finfo(wide.of).eps * scale
    limits = _Limits(explained if tolerance is None else tolerance, scale)
    found = _error(error.name, error.backend, expected, wide.value, given, limits, wide.name)
    return replace(found, note=_note(wide.value, limits))


def overflows_beside(value: Tensor, reference: Tensor) -> int:
    """How many elements are NaN or infinite where they are finite in float32; a mask may be infinite."""
    masked = (value == -math.inf) & (reference < STANDS_FOR_MINUS_INFINITY)
    return int((reference.isfinite() & ~value.isfinite() & ~masked).sum())


def _half_loss(own: Tensor, twin: Twin) -> float:
    """The largest difference of eager PyTorch's output from the float32 model, relative to the largest magnitude, if
    the rounding of half precision does not explain it; otherwise 0."""
    if twin.of not in HALF or not own.numel():
        return 0.0
    loss = float(own.max()) / (_scale(twin.value) or 1.0)
    return loss if loss > _EXPLAINED_STEPS * torch.finfo(twin.of).eps else 0.0


def _limits(expected: Tensor, given: Tensor) -> _Limits:
    """The limits of a float output without a twin, by its type and magnitude."""
    scale, tolerance = _scale(expected), TOLERANCES.get(_element(given))
    if tolerance is not None:
        scale = scale or 1.0
        return _Limits(max(tolerance * scale, torch.finfo(given.dtype).tiny), scale, tolerance)
    if expected.dtype == torch.float32:
        return _Limits(_OF_HALF * scale, scale)
    return _Limits(_ROUNDING_STEPS * torch.finfo(given.dtype).eps * scale, scale)


def _limits_of_twin(limits: _Limits, own: Tensor, twin: Twin) -> _Limits:
    """The limits of an output beside a twin, by the difference of eager PyTorch's own output from the twin."""
    scale, median = _scale(twin.value), _TIMES_EAGER * _median_error(own, twin.value)
    largest = _TIMES_EAGER * float(own.max()) if own.numel() else 0.0
    if largest and twin.of in HALF:  # the output comes from half precision, whatever its own type is
        steps = _ROUNDING_STEPS * torch.finfo(twin.of).eps
        largest, median = max(largest, steps * scale), max(median, steps)
    return _Limits(max(limits.largest, largest), limits.relative_to, max(limits.median, median))


def _kind(tensor: Tensor) -> tuple[bool, bool, bool]:
    """Whether a tensor has bools, floats, or complex numbers; otherwise it has integers."""
    return tensor.dtype == torch.bool, tensor.is_floating_point(), tensor.is_complex()


def _element(tensor: Tensor) -> str:
    return ELEMENT_OF_DTYPE.get(tensor.dtype, str(tensor.dtype))


def _error(
    name: str, backend: str, expected: Tensor, reference: Tensor, given: Tensor, limits: _Limits, by: str = "eager"
) -> OutputError:
    """The difference of an output from a reference: eager PyTorch's output, or the twin's."""
    difference = _difference(reference, given)
    counts = {
        f"{prefix}{kind}": int(getattr(tensor, f"is{kind}")().sum())
        for prefix, tensor in (("", given), ("expected_", expected))
        for kind in ("nan", "inf")
    }
    common: dict[str, Any] = {
        "tolerance": limits.largest,
        "element_type": _element(given),
        "reference": by,
        "relative_to": limits.relative_to,
        "median_tolerance": limits.median,
        "note": _note(expected, limits),
        **counts,
    }
    if difference.numel() == 0:
        return OutputError(name, backend, 0.0, 0.0, math.inf, **common)
    worst, scale, psnr = float(difference.max()), _scale(reference), _psnr(difference, reference)
    relative = worst / scale if scale else worst
    return OutputError(name, backend, worst, relative, psnr, median_rel=_median_error(difference, reference), **common)


def psnr_of(reference: Tensor, given: Tensor) -> float:
    """The peak signal-to-noise ratio of an output in dB; infinite if it is exact."""
    return _psnr(_difference(reference, given), reference)


def _psnr(difference: Tensor, reference: Tensor) -> float:
    error = float((difference**2).mean()) if difference.numel() else 0.0
    if error == 0:
        return math.inf
    scale = max(_scale(reference), 1e-300)
    return 20 * math.log10(scale) - 10 * math.log10(error)


def _median_error(difference: Tensor, reference: Tensor) -> float:
    """The median difference, relative to the median magnitude, of the elements that are finite and not zero."""
    magnitude = _exact(reference).abs()
    counts = magnitude.isfinite() & (magnitude != 0)
    return float(difference[counts].median() / magnitude[counts].median()) if bool(counts.any()) else 0.0


def _note(expected: Tensor, limits: _Limits) -> str:
    """Why a comparison with an output says little; empty if it does not."""
    flat = expected.detach().reshape(-1)
    if flat.numel() and bool(((flat == flat[0]) | (flat.isnan() & flat[0].isnan())).all()):
        if flat.numel() > 1 or flat[0] == 0 or bool(flat.isnan().all()):
            return f"every element is {flat[0].item()!r} in PyTorch"
    elif limits.relative_to and limits.largest > _SAYS_LITTLE * limits.relative_to:
        return f"rounding moves PyTorch's own result by {limits.largest / _TIMES_EAGER:.1e}"
    return ""


def _difference(expected: Tensor, given: Tensor) -> Tensor:
    """The absolute difference of each element; infinite where only one side is NaN, 0 where both are."""
    left, right = _exact(expected), _exact(given)
    same = (left == right) | (left.isnan() & right.isnan())
    difference = torch.where(same, torch.zeros(()), (left - right).abs())
    difference = torch.where(difference.isnan(), torch.full((), math.inf), difference)
    if not (given.is_floating_point() or given.is_complex()):
        # float64 rounds integers of more than 53 bits
        difference = difference.clamp(min=(expected.long() != given.long()).double())
    return difference


def _scale(tensor: Tensor) -> float:
    """The largest finite magnitude of a tensor; 0 without elements."""
    return float(_exact(tensor).abs().nan_to_num(0.0, 0.0, 0.0).max()) if tensor.numel() else 0.0


def _exact(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def beside_partial_sums(
    error: OutputError, given: Tensor, rounded: Tensor, twin: Callable[[], Twin | None] = lambda: None
) -> OutputError:
    """The error of an output of the runtime that fails, where the runtime's own rounding may explain it.

    Behind several products, one bit of another op lets later sums round otherwise. So the output may be three times as
    far from the rounded one as that is from the twin.

    Args:
        error: of the output beside PyTorch.
        given: the output on the runtime.
        rounded: the output on the evaluator, with the rounding of the runtime.
        twin: as for `compare`.

    Returns:
        The difference of the two, if that is within the tolerance; else the error.
    """
    if not given.is_floating_point() or rounded.shape != given.shape or not math.isfinite(error.max_abs):
        return error
    limits, wide = _limits(rounded, given), twin()
    if wide is not None and wide.value.shape == rounded.shape and bool(rounded.isfinite().all()):
        limits = _limits_of_twin(limits, _difference(wide.value, rounded), wide)
    beside = _error(error.name, error.backend, rounded, rounded, given, limits, PARTIAL_SUMS)
    return replace(beside, partial_sums=error.max_abs) if beside.passed else error

"""Convert inputs to a program's types, and compare its outputs with the results of the PyTorch model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from patcomp.errors import EvaluationError
from patcomp.evaluate.calling import arguments_by_name, is_model_call
from patcomp.evaluate.draws import drawing
from patcomp.evaluate.element_types import ELEMENT_OF_DTYPE, TORCH_DTYPES, to_tensor
from patcomp.evaluate.machine import check_value
from patcomp.evaluate.twin import HALF, Twin, Wider, twins_of
from patcomp.evaluate.verification import OutputError, Verification
from patcomp.ir.types import TensorType, element_name
from patcomp.pytorch import pytree


def prepare_input(value: Any, type_: TensorType, name: str, what: str = "input") -> Tensor:
    """An input or state in the dtype that the program takes: 64-bit values become 32-bit when none is lost, and float32
    becomes float16, which a target may compute in, when none overflows.

    Args:
        value: a tensor, array or number.
        type_: what the program takes.
        name, what: for messages.

    Raises:
        EvaluationError: the value has another dtype or shape, or a number does not fit 32 bits.
    """
    tensor = _as_tensor(value, f"{what} {name!r}")
    wanted = TORCH_DTYPES[element_name(type_.element_type)]
    if (tensor.dtype, wanted) in ((torch.float64, torch.float32), (torch.float32, torch.float16)):
        narrow = tensor.to(wanted)
        if bool((narrow.isinf() & ~tensor.isinf()).any()):
            raise EvaluationError(f"{what} {name!r} has values that do not fit {wanted}")
        tensor = narrow
    elif tensor.dtype in (torch.int64, torch.uint64) and wanted in (torch.int32, torch.uint32):
        narrow = tensor.to(wanted)
        if not torch.equal(narrow.to(tensor.dtype), tensor):
            raise EvaluationError(f"{what} {name!r} has values that do not fit {wanted}")
        tensor = narrow
    if tensor.dtype != wanted:
        raise EvaluationError(f"{what} {name!r} must be of dtype {wanted}, got {tensor.dtype}")
    check_value(tensor, type_, f"{what} {name!r}")
    return tensor


def _as_tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor | np.ndarray):
        return to_tensor(value)
    kind = type(value).__name__
    if any(isinstance(leaf, Tensor | np.ndarray) for leaf in pytree.tree_leaves(value)):
        raise EvaluationError(f"{what} must be a tensor, got a {kind} that holds tensors; give the tensor itself")
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise EvaluationError(f"{what} must be a tensor, an array or a number, got a {kind}") from error


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

_SAYS_LITTLE = 0.1
"""A tolerance that is a larger part of the output's magnitude is noted."""


@dataclass(frozen=True)
class _Limits:
    """The limits of an output that passes: the largest error, the magnitude that it is relative to (0 for none), and
    the median error relative to the median magnitude."""

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
    if it is little farther from the twin than eager's own output.

    Args:
        name, backend: of the output.
        expected: eager PyTorch's output.
        given: the program's.
        tolerance: the largest absolute difference that passes; by default that of the program's element type.
        twin: computes the same output of the model in a wider type, see `patcomp.evaluate.twin`. It is called for an
            output of half precision, and for any other float that would fail.

    Raises:
        EvaluationError: the shapes differ.
    """
    if tuple(expected.shape) != tuple(given.shape):
        raise EvaluationError(f"output {name!r} has shape {tuple(given.shape)}, eager's has {tuple(expected.shape)}")
    is_float = given.is_floating_point() or given.is_complex()
    limits = _limits(expected, given) if tolerance is None and is_float else _Limits(tolerance or 0.0)
    error = _error(name, backend, expected, expected, given, limits)
    if tolerance is not None or not is_float or (error.passed and expected.dtype not in HALF):
        return error
    wide = twin()
    if wide is None or wide.value.shape != expected.shape:
        return error
    own = _difference(wide.value, expected)
    if not bool(own.isfinite().all()):  # where eager overflows, the twin says nothing about the program
        return error
    limits = _limits_of_twin(limits, own, wide)
    against_twin = _error(name, backend, expected, wide.value, given, limits, wide.name)
    return against_twin if against_twin.passed or expected.dtype in HALF else error


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
    worst, scale, error = float(difference.max()), _scale(reference), float((difference**2).mean())
    psnr = (
        math.inf
        if error == 0
        else 20 * math.log10(max(scale, 1e-300)) - 10 * math.log10(error)
        if math.isfinite(error)
        else -math.inf
    )
    relative = worst / scale if scale else worst
    return OutputError(name, backend, worst, relative, psnr, median_rel=_median_error(difference, reference), **common)


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
    if not (expected.is_floating_point() or expected.is_complex() or given.is_floating_point() or given.is_complex()):
        # float64 rounds integers of more than 53 bits
        difference = difference.clamp(min=(expected.long() != given.long()).double())
    return difference


def _scale(tensor: Tensor) -> float:
    """The largest finite magnitude of a tensor; 0 without elements."""
    return float(_exact(tensor).abs().nan_to_num(0.0, 0.0, 0.0).max()) if tensor.numel() else 0.0


def _exact(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


Run = Callable[[Mapping[str, Any], dict[str, Any]], Mapping[str, Any]]
"""Runs a program on inputs and states by name; it puts the new content into the states."""


def verify_outputs(
    model: Callable[..., Any],
    inputs: Tensor | np.ndarray | Sequence[Any] | Mapping[str, Any],
    backends: Mapping[str, Run],
    signature: Any,
    tolerance: float | None = None,
    draw: Callable[[Mapping[str, Any]], Any] = dict,
) -> Verification:
    """Run the model eagerly and the program on each backend, and compare outputs and states.

    Args:
        model: the PyTorch module or function; the buffers that it writes to are replaced while it runs.
        inputs: its arguments, positional or by keyword; a tensor or array is the only argument.
        backends: what runs the program, by name.
        signature: the program's, a `patcomp.emit.signature.EntrySignature`.
        tolerance: largest absolute difference that passes; by default that of each output's type.
        draw: as for `Expectation.of`.

    Raises:
        EvaluationError: the model's arguments or results do not correspond to the program's.
    """
    expectation = Expectation.of(model, inputs, signature, draw)
    errors = (each for backend, run in backends.items() for each in expectation.errors(backend, run, tolerance))
    return Verification(tuple(errors), tolerance)


@dataclass(frozen=True)
class Expectation:
    """The inputs of a verification and eager PyTorch's outputs for them, by the program's names."""

    model: Callable[..., Any]
    """The PyTorch model."""
    given: Mapping[str, Any]
    """The inputs."""
    states: Mapping[str, Tensor]
    """The contents of the model's buffers before the call."""
    references: Mapping[str, Tensor]
    """The outputs, and the contents of the states after the call."""
    run_twins: Callable[[], Mapping[str, Twin]]
    """Computes the same by the model in a wider type."""

    @classmethod
    def of(
        cls, model: Callable[..., Any], inputs: Any, signature: Any, draw: Callable[[Mapping[str, Any]], Any] = dict
    ) -> Expectation:
        """Run a model.

        Args:
            model, inputs, signature: as for `verify_outputs`.
            draw: the inputs that are random numbers and are not among those that it is called with.

        Raises:
            EvaluationError: the model's arguments or results do not correspond to the program's.
        """
        positional, keywords = call_arguments(inputs)
        distributions = {spec.name: spec.distribution for spec in signature.inputs if spec.distribution}
        noise = {name: keywords.pop(name) for name in distributions if name in keywords}
        given = named_arguments(signature, positional, keywords)
        if distributions:
            noise |= draw({**given, **noise})
            given |= noise
        drawn = [(name, distribution, noise[name]) for name, distribution in distributions.items()]
        states, references = _run_model(model, positional, keywords, signature, drawn)

        def run_twins() -> Mapping[str, Twin]:
            return twins_of(lambda wider: _run_model(model, positional, keywords, signature, drawn, wider)[1])

        return cls(model, given, states, references, run_twins)

    @cached_property
    def twins(self) -> Mapping[str, Twin]:
        """The outputs and states of the model in a wider type; none if it does not run so."""
        return self.run_twins()

    def errors(self, backend: str, run: Run, tolerance: float | None) -> list[OutputError]:
        """The error of each output and state of a program."""
        contents: dict[str, Any] = dict(self.states)
        outputs = {**run(self.given, contents), **contents}
        errors = []
        for name, reference in self.references.items():
            value = outputs[name]
            value = value if isinstance(value, Tensor) else to_tensor(np.array(value))
            errors.append(compare(name, backend, reference, value, tolerance, partial(self._twin, name)))
        return errors

    def _twin(self, name: str) -> Twin | None:
        return self.twins.get(name)


def _run_model(
    model: Callable[..., Any],
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    signature: Any,
    drawn: Sequence[tuple[str, str, Tensor]] = (),
    wider: Wider | None = None,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The contents of a model's buffers before a call, and its outputs and the contents of states after it, by name.

    Args:
        model, positional, keywords, signature: as for `verify_outputs`.
        drawn: name, distribution and noise of each draw of random numbers, in order.
        wider: computes in wider types.

    Raises:
        EvaluationError: the model's results do not correspond to the program's.
    """
    call = signature.call

    def prepare(leaf: Any) -> Any:
        """A copy, because a model may write to its arguments and buffers."""
        copied = leaf.clone() if isinstance(leaf, Tensor) else leaf
        return copied if wider is None else wider.widened(copied)

    args, kwargs = pytree.tree_map(prepare, (tuple(positional), dict(keywords)))
    buffers = {} if call is None or not isinstance(model, nn.Module) else call.buffers
    states = {name: attrgetter(path)(model).detach().clone() for name, path in buffers.items()}
    new = {path: prepare(states[name]) for name, path in buffers.items()}
    if wider is not None and isinstance(model, nn.Module):
        weights = (*model.named_parameters(), *model.named_buffers())
        new = {name: wide for name, value in weights if (wide := wider.widened(value)) is not value} | new
    with torch.no_grad(), wider or nullcontext(), drawing(drawn) if drawn else nullcontext():
        result = functional_call(model, new, args, kwargs) if new else model(*args, **kwargs)  # type: ignore[arg-type]
    leaves = pytree.tree_leaves(result)
    varies = [isinstance(leaf, Tensor) for leaf in leaves]
    if call is not None and len(call.results) == len(leaves):
        varies = [isinstance(name, str) for name in call.results]  # sizes, too
    expected = [torch.as_tensor(leaf) for leaf, given in zip(leaves, varies, strict=True) if given]
    names = [leaf for leaf in call.results if isinstance(leaf, str)] if call else [s.name for s in signature.outputs]
    if len(expected) != len(names):
        raise EvaluationError(
            f"the model returned {len(expected)} tensors, but the program has {len(names)} outputs: {', '.join(names)}"
        )
    if call is not None and len(call.results) == len(leaves):
        for leaf, result in zip(leaves, call.results, strict=True):
            if not isinstance(result, str) and not (leaf is result.value or leaf == result.value):
                raise EvaluationError(f"the model returned {leaf!r}, which was {result.value!r} when it was exported")
    updated = named_arguments(signature, args, kwargs)
    stated = {s.name: new[buffers[s.name]] if s.name in buffers else updated.get(s.name) for s in signature.states}
    written = {name: value for name, value in stated.items() if value is not None}
    return states, dict(zip(names, expected, strict=True)) | written


def call_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A model's arguments, positional and by keyword, that are given as a sequence, by keyword, or as one tensor."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return ((inputs,) if isinstance(inputs, Tensor | np.ndarray) else tuple(inputs)), {}


def named_arguments(signature: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors among a model's arguments by the program's names."""
    if signature.call is not None and is_model_call(signature.call, args, kwargs):
        return arguments_by_name(signature.call, args, kwargs)
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    leaves = signature.call.arguments if signature.call else [spec.name for spec in signature.inputs]
    names = [leaf for leaf in leaves if isinstance(leaf, str)]
    known = {*names, *(spec.name for spec in signature.states)}
    if not args and set(names) <= kwargs.keys() <= known:
        return dict(kwargs)
    if len(tensors) != len(names):
        wanted = ", ".join(str(spec) for spec in (*signature.inputs, *signature.states) if spec.name in names)
        raise EvaluationError(
            f"the number of tensors among the inputs is {len(tensors)}, but the program takes {len(names)} ({wanted}); "
            "give a tuple of the model's arguments"
        )
    return dict(zip(names, tensors, strict=True))

"""Convert inputs to a program's types, and compare its outputs with the results of the PyTorch model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from patcomp.errors import EvaluationError
from patcomp.ir.evaluate.calling import arguments_by_name, is_model_call
from patcomp.ir.evaluate.element_types import ELEMENT_OF_DTYPE, TORCH_DTYPES, to_tensor
from patcomp.ir.evaluate.machine import check_value
from patcomp.ir.evaluate.verification import OutputError, Verification
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
"""The largest absolute difference that passes, by the element type of the program's output. Integers and bools must be
equal. Floats of less than 32 bits are compared with a float32 twin of the model, or by their rounding."""

_ROUNDING_STEPS = 4
"""How many rounding steps, at the largest magnitude of an output, a float of less than 32 bits may differ."""

_OF_HALF = 0.02
"""How much of its largest magnitude an output of a float32 model may differ in a program that a target made float16."""

_TIMES_EAGER = 3
"""How many times farther from the float32 twin than eager PyTorch's own output a program's output may be."""


def compare(
    name: str,
    backend: str,
    expected: Tensor,
    given: Tensor,
    tolerance: float | None = None,
    twin: Tensor | None = None,
) -> OutputError:
    """The difference of one output from the expected one.

    Args:
        name, backend: of the output.
        expected: eager PyTorch's output.
        given: the program's.
        tolerance: the largest absolute difference that passes; by default that of the program's element type.
        twin: the same output of the model in float32. A half-precision output without a given tolerance passes if it
            is little farther from the twin than eager's own.

    Raises:
        EvaluationError: the shapes differ.
    """
    if tuple(expected.shape) != tuple(given.shape):
        raise EvaluationError(f"output {name!r} has shape {tuple(given.shape)}, eager's has {tuple(expected.shape)}")
    element = ELEMENT_OF_DTYPE.get(given.dtype, str(given.dtype))
    reference, reference_name = expected, "eager"
    if tolerance is None and given.is_floating_point() and element not in TOLERANCES:
        tolerance = _ROUNDING_STEPS * torch.finfo(given.dtype).eps * _scale(expected)
        if expected.dtype == torch.float32:
            tolerance = _OF_HALF * _scale(expected)
        if twin is not None and twin.shape == expected.shape:
            own = _difference(twin, expected)
            if bool(own.isfinite().all()):  # where eager overflows, the twin says nothing about the program
                reference, reference_name = twin, "float32 twin"
                tolerance = max(tolerance, _TIMES_EAGER * float(own.max()) if own.numel() else 0.0)
    difference = _difference(reference, given)
    counts = {
        f"{prefix}{kind}": int(getattr(tensor, f"is{kind}")().sum())
        for prefix, tensor in (("", given), ("expected_", expected))
        for kind in ("nan", "inf")
    }
    common: dict[str, Any] = {
        "tolerance": TOLERANCES.get(element, 0.0) if tolerance is None else tolerance,
        "element_type": element,
        "reference": reference_name,
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
    return OutputError(name, backend, worst, worst / scale if scale else worst, psnr, **common)


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
) -> Verification:
    """Run the model eagerly and the program on each backend, and compare outputs and states.

    Args:
        model: the PyTorch module or function; the buffers that it writes to are replaced while it runs.
        inputs: its arguments, positional or by keyword; a tensor or array is the only argument.
        backends: what runs the program, by name.
        signature: the program's, a `patcomp.emit.signature.EntrySignature`.
        tolerance: largest absolute difference that passes; by default that of each output's type.

    Raises:
        EvaluationError: the model's arguments or results do not correspond to the program's.
    """
    expectation = Expectation.of(model, inputs, signature, twin=tolerance is None)
    errors = (each for backend, run in backends.items() for each in expectation.errors(backend, run, tolerance))
    return Verification(tuple(errors), tolerance)


@dataclass(frozen=True)
class Expectation:
    """The inputs of a verification, and what eager PyTorch computes of them, by the program's names."""

    model: Callable[..., Any]
    """The PyTorch model."""
    given: Mapping[str, Any]
    """The inputs."""
    states: Mapping[str, Tensor]
    """The contents of the model's buffers before the call."""
    references: Mapping[str, Tensor]
    """The outputs, and the contents of the states after the call."""
    twins: Mapping[str, Tensor]
    """The same of the model in float32, if it computes in half precision."""

    @classmethod
    def of(cls, model: Callable[..., Any], inputs: Any, signature: Any, *, twin: bool = True) -> Expectation:
        """Run a model.

        Args:
            model, inputs, signature: as for `verify_outputs`.
            twin: whether to run a model of half precision in float32, too.

        Raises:
            EvaluationError: the model's arguments or results do not correspond to the program's.
        """
        positional, keywords = call_arguments(inputs)
        given = named_arguments(signature, positional, keywords)
        states, references = _run_model(model, positional, keywords, signature)
        twins: Mapping[str, Tensor] = {}
        if twin and any(reference.dtype in _HALF for reference in references.values()):
            try:
                _, twins = _run_model(model, positional, keywords, signature, in_float32=True)
            except (RuntimeError, TypeError, ValueError):
                twins = {}  # a model that itself casts to half precision; its outputs are compared by their rounding
        return cls(model, given, states, references, twins)

    def errors(self, backend: str, run: Run, tolerance: float | None) -> list[OutputError]:
        """The error of each output and state of a program."""
        contents: dict[str, Any] = dict(self.states)
        outputs = {**run(self.given, contents), **contents}
        errors = []
        for name, reference in self.references.items():
            value = outputs[name]
            value = value if isinstance(value, Tensor) else to_tensor(np.array(value))
            errors.append(compare(name, backend, reference, value, tolerance, self.twins.get(name)))
        return errors


_HALF = (torch.float16, torch.bfloat16)


def _run_model(
    model: Callable[..., Any],
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    signature: Any,
    *,
    in_float32: bool = False,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The contents of a model's buffers before a call, and its outputs and the contents of states after it, by name.

    Raises:
        EvaluationError: the model's results do not correspond to the program's.
    """
    call = signature.call
    prepare = _in_float32 if in_float32 else _copied  # a model may write to its arguments and buffers
    args, kwargs = pytree.tree_map(prepare, (tuple(positional), dict(keywords)))
    buffers = {} if call is None or not isinstance(model, nn.Module) else call.buffers
    states = {name: attrgetter(path)(model).detach().clone() for name, path in buffers.items()}
    new = {path: prepare(states[name]) for name, path in buffers.items()}
    if in_float32 and isinstance(model, nn.Module):
        weights = (*model.named_parameters(), *model.named_buffers())
        new = {name: _in_float32(value.detach()) for name, value in weights if value.dtype in _HALF} | new
    with torch.no_grad():
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
    if not args and kwargs.keys() == set(names):
        return dict(kwargs)
    if len(tensors) != len(names):
        wanted = ", ".join(str(spec) for spec in (*signature.inputs, *signature.states) if spec.name in names)
        raise EvaluationError(
            f"the number of tensors among the inputs is {len(tensors)}, but the program takes {len(names)} ({wanted}); "
            "give a tuple of the model's arguments"
        )
    return dict(zip(names, tensors, strict=True))


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _in_float32(leaf: Any) -> Any:
    return leaf.float() if isinstance(leaf, Tensor) and leaf.dtype in _HALF else _copied(leaf)

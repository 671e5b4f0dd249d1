"""Inputs as a program takes them, and its outputs beside those of the PyTorch model it came from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from patcomp.errors import EvaluationError
from patcomp.ir.evaluate.element_types import TORCH_DTYPES, to_tensor
from patcomp.ir.types import TensorType, element_name


def prepare_input(value: Any, type_: TensorType, name: str) -> torch.Tensor:
    """An input in the dtype that the program takes: 64-bit values become 32-bit when none is lost.

    Raises:
        EvaluationError: the value has another dtype, or an integer does not fit 32 bits.
    """
    tensor = to_tensor(value) if isinstance(value, torch.Tensor | np.ndarray) else torch.as_tensor(value)
    wanted = TORCH_DTYPES[element_name(type_.element_type)]
    if tensor.dtype == wanted:
        return tensor
    if tensor.dtype == torch.float64 and wanted == torch.float32:
        return tensor.to(wanted)
    if tensor.dtype in (torch.int64, torch.uint64) and wanted in (torch.int32, torch.uint32):
        narrow = tensor.to(wanted)
        if not torch.equal(narrow.to(tensor.dtype), tensor):
            raise EvaluationError(f"input {name!r} has values that do not fit {wanted}")
        return narrow
    raise EvaluationError(f"input {name!r} must be of dtype {wanted}, got {tensor.dtype}")


@dataclass(frozen=True)
class OutputError:
    """How far one output is from eager PyTorch's."""

    name: str
    backend: str
    max_abs: float
    """Largest absolute difference; NaN at one side only counts as infinite."""
    max_rel: float
    """Largest difference relative to the larger magnitude of the output."""
    psnr: float
    """Peak signal-to-noise ratio in dB, infinite when equal."""


@dataclass(frozen=True)
class Verification:
    """The comparison of a program with eager PyTorch, output by output and backend by backend."""

    errors: tuple[OutputError, ...]
    tolerance: float

    @property
    def max_abs(self) -> float:
        """The largest absolute difference of any output on any backend."""
        return max((error.max_abs for error in self.errors), default=0.0)

    @property
    def passed(self) -> bool:
        """Whether every output is within the tolerance on every backend."""
        return self.max_abs <= self.tolerance


def compare(name: str, backend: str, expected: torch.Tensor, given: torch.Tensor) -> OutputError:
    """The difference of one output from what is expected.

    Raises:
        EvaluationError: the shapes differ.
    """
    if tuple(expected.shape) != tuple(given.shape):
        raise EvaluationError(f"output {name!r} has shape {tuple(given.shape)}, eager's has {tuple(expected.shape)}")
    left, right = (x.detach().to(torch.complex128 if x.is_complex() else torch.float64) for x in (expected, given))
    same = (left == right) | (left.isnan() & right.isnan())
    difference = torch.where(same, torch.zeros(()), (left - right).abs())
    difference = torch.where(difference.isnan(), torch.full((), math.inf), difference)
    if difference.numel() == 0:
        return OutputError(name, backend, 0.0, 0.0, math.inf)
    worst = float(difference.max())
    scale = float(left.abs().nan_to_num(0.0, 0.0, 0.0).max())
    error = float((difference**2).mean())
    psnr = (
        math.inf
        if error == 0
        else 10 * math.log10(max(scale, 1e-300) ** 2 / error)
        if math.isfinite(error)
        else -math.inf
    )
    return OutputError(name, backend, worst, worst / scale if scale else worst, psnr)


def verify_outputs(
    model: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    backends: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]],
    input_names: Sequence[str],
    output_names: Sequence[str],
    tolerance: float,
) -> Verification:
    """Runs the model eagerly and the program on each backend, and compares.

    Args:
        model: the PyTorch module or function.
        inputs: its arguments, positional or by keyword.
        backends: by name, a function from inputs by name to outputs by name.
        input_names, output_names: the program's, in order.
        tolerance: largest absolute difference that passes.

    Raises:
        EvaluationError: the model's arguments or results do not correspond to the program's.
    """
    keywords = dict(inputs) if isinstance(inputs, Mapping) else {}
    positional = () if isinstance(inputs, Mapping) else tuple(inputs)
    with torch.no_grad():
        # a model may write to its arguments
        result = model(*pytree.tree_map(_copied, positional), **pytree.tree_map(_copied, keywords))
    expected = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    tensors = [leaf for leaf in pytree.tree_leaves((positional, keywords)) if isinstance(leaf, torch.Tensor)]
    if len(tensors) != len(input_names) or len(expected) != len(output_names):
        raise EvaluationError(
            f"the model took {len(tensors)} and gave {len(expected)} tensors, the program takes {len(input_names)} "
            f"and gives {len(output_names)}"
        )
    named = dict(zip(input_names, tensors, strict=True))
    errors = []
    for backend, run in backends.items():
        outputs = run(named)
        for name, reference in zip(output_names, expected, strict=True):
            given = outputs[name]
            given = given if isinstance(given, torch.Tensor) else torch.from_numpy(np.array(given))
            errors.append(compare(name, backend, reference, given))
    return Verification(tuple(errors), tolerance)


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf

"""Convert inputs to a program's types, and compare its outputs with the results of the PyTorch model."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from patcomp.errors import EvaluationError, MismatchError
from patcomp.ir.evaluate.calling import arguments_by_name, is_model_call
from patcomp.ir.evaluate.element_types import TORCH_DTYPES, to_tensor
from patcomp.ir.evaluate.machine import check_value
from patcomp.ir.types import TensorType, element_name
from patcomp.pytorch import pytree

if TYPE_CHECKING:
    from rich.table import Table


def prepare_input(value: Any, type_: TensorType, name: str, what: str = "input") -> Tensor:
    """An input or state in the dtype that the program takes: 64-bit values become 32-bit when none is lost.

    Args:
        value: a tensor, array or number.
        type_: what the program takes.
        name, what: for messages.

    Raises:
        EvaluationError: the value has another dtype or shape, or a number does not fit 32 bits.
    """
    tensor = _as_tensor(value, f"{what} {name!r}")
    wanted = TORCH_DTYPES[element_name(type_.element_type)]
    if tensor.dtype == torch.float64 and wanted == torch.float32:
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


@dataclass(frozen=True)
class OutputError:
    """How far one output is from eager PyTorch's."""

    name: str
    backend: str
    max_abs: float
    """Largest absolute difference; infinite where only one side is NaN or infinite."""
    max_rel: float
    """`max_abs` divided by the largest finite magnitude of PyTorch's output."""
    psnr: float
    """Peak signal-to-noise ratio in dB, infinite when equal."""


@dataclass(frozen=True)
class Verification:
    """The comparison of a program with eager PyTorch, output by output and backend by backend.

        program.verify_against(model, inputs).check()

    It is true when it passed, and prints as a table.
    """

    errors: tuple[OutputError, ...]
    """The error of each output and state on each backend."""
    tolerance: float
    """The largest absolute difference that passes."""

    @property
    def max_abs(self) -> float:
        """The largest absolute difference of any output on any backend."""
        return max((error.max_abs for error in self.errors), default=0.0)

    @property
    def passed(self) -> bool:
        """Whether there are outputs, and every one is within the tolerance on every backend."""
        return bool(self.errors) and all(error.max_abs <= self.tolerance for error in self.errors)

    def __bool__(self) -> bool:
        return self.passed

    def check(self) -> Verification:
        """Return the verification if it passed.

        Raises:
            MismatchError: it did not pass; the message names the worst output, its error and the tolerance.
        """
        if self.passed:
            return self
        if not self.errors:
            raise MismatchError("nothing was compared: the program has neither outputs nor states")
        worst = max(self.errors, key=lambda error: error.max_abs)
        failed = sum(error.max_abs > self.tolerance for error in self.errors)
        difference = (
            f"by {worst.max_abs:.3g}, which is more than the tolerance of {self.tolerance:g}"
            if math.isfinite(worst.max_abs)
            else f"infinitely, since only one of both is NaN or infinite (the tolerance is {self.tolerance:g})"
        )
        raise MismatchError(
            f"output {worst.name!r} on the {worst.backend} differs from eager PyTorch {difference}; "
            f"{failed} of {len(self.errors)} comparisons failed"
        )

    def __str__(self) -> str:
        from rich.console import Console

        stream = io.StringIO()
        Console(file=stream, width=240, color_system=None).print(self.__rich__(), markup=False)
        return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())

    def __rich__(self) -> Table:
        from rich.box import ASCII2
        from rich.table import Table

        result = "passed" if self.passed else "FAILED"
        title = f"against eager PyTorch: {result} at tolerance {self.tolerance:g}"
        table = Table("output", "backend", title=title, title_justify="left", box=ASCII2)
        for column in ("max abs error", "max rel error", "PSNR (dB)", "result"):
            table.add_column(column, justify="right")
        for error in self.errors:
            result = "passed" if error.max_abs <= self.tolerance else "FAILED"
            numbers = (f"{error.max_abs:.1e}", f"{error.max_rel:.1e}", f"{error.psnr:.0f}")
            table.add_row(error.name, error.backend, *numbers, result)
        return table


def compare(name: str, backend: str, expected: Tensor, given: Tensor) -> OutputError:
    """The difference of one output from the expected one.

    Raises:
        EvaluationError: the shapes differ.
    """
    if tuple(expected.shape) != tuple(given.shape):
        raise EvaluationError(f"output {name!r} has shape {tuple(given.shape)}, eager's has {tuple(expected.shape)}")
    left, right = (x.detach().to(torch.complex128 if x.is_complex() else torch.float64) for x in (expected, given))
    same = (left == right) | (left.isnan() & right.isnan())
    difference = torch.where(same, torch.zeros(()), (left - right).abs())
    difference = torch.where(difference.isnan(), torch.full((), math.inf), difference)
    if not (expected.is_floating_point() or expected.is_complex() or given.is_floating_point() or given.is_complex()):
        # float64 rounds integers of more than 53 bits
        difference = difference.clamp(min=(expected.long() != given.long()).double())
    if difference.numel() == 0:
        return OutputError(name, backend, 0.0, 0.0, math.inf)
    worst = float(difference.max())
    scale = float(left.abs().nan_to_num(0.0, 0.0, 0.0).max())
    error = float((difference**2).mean())
    psnr = (
        math.inf
        if error == 0
        else 20 * math.log10(max(scale, 1e-300)) - 10 * math.log10(error)
        if math.isfinite(error)
        else -math.inf
    )
    return OutputError(name, backend, worst, worst / scale if scale else worst, psnr)


Run = Callable[[Mapping[str, Any], dict[str, Any]], Mapping[str, Any]]
"""Runs a program on inputs and states by name; it puts the new content into the states."""


def verify_outputs(
    model: Callable[..., Any],
    inputs: Tensor | np.ndarray | Sequence[Any] | Mapping[str, Any],
    backends: Mapping[str, Run],
    signature: Any,
    tolerance: float,
) -> Verification:
    """Run the model eagerly and the program on each backend, and compare outputs and states.

    Args:
        model: the PyTorch module or function; the buffers that it writes to are replaced while it runs.
        inputs: its arguments, positional or by keyword; a tensor or array is the only argument.
        backends: what runs the program, by name.
        signature: the program's, a `patcomp.emit.signature.EntrySignature`.
        tolerance: largest absolute difference that passes.

    Raises:
        EvaluationError: the model's arguments or results do not correspond to the program's.
    """
    if isinstance(inputs, Tensor | np.ndarray):
        inputs = (inputs,)
    keywords = dict(inputs) if isinstance(inputs, Mapping) else {}
    positional = () if isinstance(inputs, Mapping) else tuple(inputs)
    call = signature.call
    given = _named(signature, positional, keywords)
    # a model may write to its arguments and buffers
    args, kwargs = pytree.tree_map(_copied, (positional, keywords))
    buffers = {} if call is None or not isinstance(model, nn.Module) else call.buffers
    states = {name: attrgetter(path)(model).detach().clone() for name, path in buffers.items()}
    with torch.no_grad():
        new = {path: states[name].clone() for name, path in buffers.items()}
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
    updated = _named(signature, args, kwargs)
    stated = {s.name: new[buffers[s.name]] if s.name in buffers else updated.get(s.name) for s in signature.states}
    references = [*zip(names, expected, strict=True), *((n, value) for n, value in stated.items() if value is not None)]
    errors = []
    for backend, run in backends.items():
        contents = dict(states)
        outputs = {**run(given, contents), **contents}
        for name, reference in references:
            value = outputs[name]
            value = value if isinstance(value, Tensor) else to_tensor(np.array(value))
            errors.append(compare(name, backend, reference, value))
    return Verification(tuple(errors), tolerance)


def _named(signature: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
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

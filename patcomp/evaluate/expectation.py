"""What a PyTorch model computes of inputs, and the comparison of a program on each backend with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from patcomp.errors import EvaluationError
from patcomp.evaluate.comparison import beside_partial_sums, compare
from patcomp.evaluate.draws import drawing
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.inputs import call_arguments, named_arguments
from patcomp.evaluate.machine import Machine
from patcomp.evaluate.machine import evaluate as run_program
from patcomp.evaluate.partial_sums import PartialSumMachine
from patcomp.evaluate.twin import HALF, IN_FLOAT32, Twin, Wider, twins_of, twins_of_program
from patcomp.evaluate.verification import OutputError, Verification
from patcomp.ir.module import IRModule
from patcomp.pytorch import callers_defaults, pytree

Run = Callable[[Mapping[str, Any], dict[str, Any]], Mapping[str, Any]]
"""Runs a program on inputs and states by name; it puts the new content into the states."""


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
        cls,
        model: Callable[..., Any],
        inputs: Any,
        signature: Any,
        draw: Callable[[Mapping[str, Any]], Any] = dict,
        float32_model: Callable[..., Any] | None = None,
    ) -> Expectation:
        """Run a model.

        Args:
            model: the PyTorch module or function; the buffers that it writes to are replaced while it runs.
            inputs: its arguments, positional or by keyword; a tensor or array is the only argument.
            signature: the program's, a `patcomp.interface.signature.EntrySignature`.
            draw: the inputs that are random numbers and are not among those that it is called with.
            float32_model: the model before it was converted to half precision, which is then its twin. It runs with the
                inputs in float32.

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
            if float32_model is None:
                return twins_of(lambda wider: _run_model(model, positional, keywords, signature, drawn, wider)[1])
            wider = Wider(IN_FLOAT32)
            args, kwargs = pytree.tree_map(wider.widened, (tuple(positional), dict(keywords)))
            of = wider.narrowest or _narrowest(references.values()) or torch.float16
            values = _run_model(float32_model, args, kwargs, signature, drawn)[1]
            return {name: Twin(value, of) for name, value in values.items()}

        return cls(model, given, states, references, run_twins)

    @classmethod
    def of_program(
        cls, module: IRModule, inputs: Mapping[str, Any], states: Mapping[str, Any], entrypoint: str
    ) -> Expectation:
        """Run a program on the evaluator, to compare the runtime with it.

        Args:
            module: the program.
            inputs, states: arrays or tensors by name, of the types that the program takes.
            entrypoint: the name of the graph.

        Raises:
            EvaluationError: an input or state has another type, or the program does not run.
        """
        given, start = ({name: to_tensor(value) for name, value in each.items()} for each in (inputs, states))
        contents = {name: value.clone() for name, value in start.items()}
        model = partial(run_program, module, entry=entrypoint)
        references = {**model(given, state=contents), **contents}
        return cls(model, given, start, references, partial(twins_of_program, module, given, start, entrypoint))

    @cached_property
    def is_half(self) -> bool:
        """Whether the model has weights, inputs or outputs of half precision."""
        weights = self.model.parameters() if isinstance(self.model, nn.Module) else ()
        values = (*self.given.values(), *self.states.values(), *self.references.values(), *weights)
        return _narrowest(value for value in values if isinstance(value, Tensor)) is not None

    @cached_property
    def twins(self) -> Mapping[str, Twin]:
        """The outputs and states of the model in a wider type; none if it does not run so."""
        return self.run_twins()

    def verification(
        self,
        backends: Mapping[str, Run],
        tolerance: float | None,
        evaluate: Callable[[type[Machine]], Run] | None = None,
    ) -> Verification:
        """Compare a program on each backend.

        Args:
            backends: what runs the program, by name.
            tolerance: the largest absolute difference that passes; by default that of each output's type.
            evaluate: what runs the program on the evaluator, on a machine. With it, an output of the runtime that is
                too far from PyTorch's passes if the runtime's own rounding of partial sums explains it, and if the
                evaluator, which sums as PyTorch does, is close enough to PyTorch.
        """
        errors: list[OutputError] = []
        for backend, run in backends.items():
            explains = backend == "runtime" and tolerance is None
            errors += self.errors(backend, run, tolerance, evaluate if explains else None)
        return Verification(tuple(errors), tolerance)

    def errors(
        self,
        backend: str,
        run: Run,
        tolerance: float | None,
        evaluate: Callable[[type[Machine]], Run] | None = None,
    ) -> list[OutputError]:
        """The error of each output and state of a program.

        Args:
            backend, run, tolerance: as for `verification`.
            evaluate: as for `verification`, if the backend is the runtime.
        """
        values = self._values(run)
        errors = [
            self._beside_choices(compare(name, backend, reference, values[name], tolerance, partial(self._twin, name)))
            for name, reference in self.references.items()
        ]
        if evaluate is None or all(error.passed for error in errors):
            return errors
        right = {error.name for error in self.errors("evaluator", evaluate(Machine), tolerance) if error.passed}
        rounded = self._values(evaluate(PartialSumMachine))
        return [
            error
            if error.passed or error.name not in right
            else beside_partial_sums(error, values[error.name], rounded[error.name], partial(self._twin, error.name))
            for error in errors
        ]

    def _values(self, run: Run) -> dict[str, Tensor]:
        """The outputs and the new contents of states of a program."""
        contents: dict[str, Any] = dict(self.states)
        outputs = {**run(self.given, contents), **contents}
        return {
            name: value if isinstance(value := outputs[name], Tensor) else to_tensor(np.array(value))
            for name in self.references
        }

    def _twin(self, name: str) -> Twin | None:
        return self.twins.get(name)

    def _beside_choices(self, error: OutputError) -> OutputError:
        """The error of an output, with the share of its integers or bools that half precision changes in the model."""
        reference = self.references[error.name]
        if reference.is_floating_point() or reference.is_complex() or not reference.numel() or not self.is_half:
            return error
        twin = self.twins.get(error.name)
        if twin is None or twin.of not in HALF or twin.value.shape != reference.shape:
            return error
        return replace(error, half_loss=float((twin.value != reference).double().mean()))


def _narrowest(values: Iterable[Tensor]) -> torch.dtype | None:
    """The type of half precision among some tensors; None if there is none."""
    return next((value.dtype for value in values if value.dtype in HALF), None)


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
        model, positional, keywords, signature: as for `Expectation.of`.
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
    with callers_defaults(), torch.no_grad(), wider or nullcontext(), drawing(drawn) if drawn else nullcontext():
        result = functional_call(model, new, args, kwargs) if new else model(*args, **kwargs)  # type: ignore[arg-type]
    leaves = pytree.tree_leaves(result)
    varies = [isinstance(leaf, Tensor) for leaf in leaves]
    if call is not None and len(call.results) == len(leaves):
        varies = [isinstance(name, str) for name in call.results]  # sizes, too
        for leaf, known in zip(leaves, call.results, strict=True):
            if not isinstance(known, str) and leaf != known.value:
                raise EvaluationError(f"the model returned {leaf!r}, which was {known.value!r} when it was exported")
    expected = [torch.as_tensor(leaf) for leaf, given in zip(leaves, varies, strict=True) if given]
    names = [leaf for leaf in call.results if isinstance(leaf, str)] if call else [s.name for s in signature.outputs]
    if len(expected) != len(names):
        raise EvaluationError(
            f"the model returned {len(expected)} tensors, but the program has {len(names)} outputs: {', '.join(names)}"
        )
    updated = named_arguments(signature, args, kwargs)
    stated = {s.name: new[buffers[s.name]] if s.name in buffers else updated.get(s.name) for s in signature.states}
    written = {name: value for name, value in stated.items() if value is not None}
    return states, dict(zip(names, expected, strict=True)) | written

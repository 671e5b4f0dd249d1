"""Use example inputs for the compression of a program: to round weights, and to measure the loss of each output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from patcomp.compression import Weight, weights_of
from patcomp.compression.compress import float_dtype_of
from patcomp.compression.measures import OutputSignal
from patcomp.compression.scheme import Scheme, Stored
from patcomp.evaluate.comparison import psnr_of
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.inputs import call_arguments, named_arguments
from patcomp.evaluate.machine import evaluate_graph, operands_of
from patcomp.evaluate.resumed import Resumed
from patcomp.ir.module import IRModule
from patcomp.program.calibration import Calibration, calibrated
from patcomp.program.running import prepared, run_program

if TYPE_CHECKING:
    from patcomp.program.data import ProgramData

_MOST_ALONE = 4
"""The most examples on which each weight alone is measured."""
_WORK = 2**33
"""The elements that are read, in all runs for one example, by as many examples as are measured."""
_MOST_WORK = 2**36
"""Programs in which the weights read more elements for one example are measured by their weights."""


@dataclass(frozen=True)
class Examples:
    """Example inputs of an entry point, and the program's outputs for each."""

    program: ProgramData
    entrypoint: str
    values: Sequence[Mapping[str, Any]]
    outputs: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, program: ProgramData, inputs: Any, entrypoint: str) -> Examples:
        """Examples from one or a list of them, as `AIProgram.compress` takes them."""
        is_list = isinstance(inputs, list) and all(isinstance(each, tuple | dict) for each in inputs)
        several = inputs if is_list else [inputs]
        signature = program.signature(entrypoint)
        values = [named_arguments(signature, *call_arguments(each)) for each in several]
        return cls(program, entrypoint, values, [_outputs(program, each, entrypoint) for each in values])

    def rounded(self, scheme_of: Callable[[Weight], Scheme | None]) -> Calibration:
        """The weights, rounded by what the examples show."""
        return calibrated(
            self.program.module, self.entrypoint, scheme_of, [self.operands(each) for each in self.values]
        )

    def operands(self, values: Mapping[str, Any]) -> Callable[[], Sequence[Any]]:
        """Gives the operands of the graph for an example, new ones at every call."""
        graph = self.program.module.graph(self.entrypoint)
        return lambda: operands_of(graph, *prepared(self.program, values, self.entrypoint, {}))

    def signal(self, *, always: bool) -> OutputSignal | None:
        """Measures what the outputs lose by each weight alone: on fewer examples in larger programs, and in very large
        ones not at all, unless it is done always."""
        weights = list(weights_of(self.program.module))
        work = len(weights) * sum(weight.count for weight in weights)
        if work > _MOST_WORK and not always:
            return None
        return Alone(self, max(1, min(_MOST_ALONE, _WORK // max(work, 1)))).signal

    def psnr(self, module: IRModule) -> dict[str, float]:
        """How far each output of a changed program is from the program's own, in dB, on the evaluator; of several
        examples, the worst."""
        worst: dict[str, float] = {}
        for values, outputs in zip(self.values, self.outputs, strict=True):
            made = _outputs(replace(self.program, module=module), values, self.entrypoint)
            for name, exact in outputs.items():
                found = psnr_of(to_tensor(exact), to_tensor(made[name]))
                worst[name] = min(found, worst.get(name, found))
        return worst


def _outputs(program: ProgramData, values: Mapping[str, Any], entrypoint: str) -> Mapping[str, Any]:
    """The outputs of a program on the evaluator."""
    result: Mapping[str, Any] = run_program(program, (values,), {}, entrypoint, None, "evaluator", None)
    return result


class Alone:
    """What the outputs lose if one weight alone has a stored form, on the first examples.

    The program before a weight's first reader runs once for all weights (`evaluate.resumed`).
    """

    def __init__(self, examples: Examples, count: int):
        self.module, entry = examples.program.module, examples.entrypoint
        self.graph, given = self.module.graph(entry), [examples.operands(each) for each in examples.values[:count]]
        self.runs = [Resumed(self.module, self.graph, each) for each in given]
        self.exact = [evaluate_graph(self.graph, each(), self.module) for each in given]

    def signal(self, weight: Weight, stored: Stored) -> float | None:
        """The least PSNR of an output, in dB; None if the graph does not read the weight."""
        changed = copy(self.module)
        changed.blobs = self.module.blobs.with_values(weight.key, stored.floats().astype(float_dtype_of(weight)))
        least: float | None = None
        for run, exact in zip(self.runs, self.exact, strict=True):
            results = run.results(changed, weight.key)
            if results is None:
                return None
            for before, after in zip(exact, results, strict=True):
                if isinstance(before, Tensor):
                    found = psnr_of(before, after)
                    least = found if least is None else min(least, found)
        return least

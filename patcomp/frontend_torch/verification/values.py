"""Compare the values of a program and its model on the same inputs: inner values, and outputs of modules.

The exported program runs by PyTorch. The program after any stage runs on the evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from patcomp.errors import EvaluationError
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.evaluate.expectation import Expectation
from patcomp.evaluate.machine import Machine, evaluate
from patcomp.evaluate.twin import Twin, Wider, twins_of
from patcomp.evaluate.verification import ModuleError, OutputError
from patcomp.frontend_torch.fx.provenance import Origins
from patcomp.frontend_torch.fx.running import Visit, left_modules
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.importing.value_names import value_names
from patcomp.frontend_torch.verification.reference_run import run_exported
from patcomp.frontend_torch.verification.unlowered import implementation
from patcomp.ir.module import IRModule, names_of
from patcomp.ir.types import HandleType, TensorType, element_name
from patcomp.ir.xdsl import Operation

Watch = Callable[[Operation, Any], object]


class WrongValueError(Exception):
    """The first node with other numbers."""

    def __init__(self, node: Node, error: OutputError, expected: Tensor, given: Tensor):
        super().__init__(node.name)
        self.node, self.error, self.expected, self.given = node, error, expected, given


@dataclass
class ValueComparison:
    """Compare the values of programs with the values of their exported program.

    Args:
        item: the exported program of the entry point.
        final: the converted program.
        expectation: the inputs, and what the model computes of them.
        initial: the initial contents of states that the model does not have.
        tolerance: the largest absolute difference that passes, as for `verify_against`. For values inside the program
            it applies to a magnitude of 1 or less, and is multiplied with the magnitude of others.
    """

    item: Staged
    final: IRModule
    expectation: Expectation
    initial: Mapping[str, Tensor]
    tolerance: float | None

    @cached_property
    def values(self) -> dict[str, Any]:
        """The inputs and the contents of states by run-time name."""
        return {**self.initial, **self.expectation.states, **self.expectation.given}

    def run_export(self, visit: Visit, wider: Wider | None = None) -> None:
        """Run the exported program, in wider types if asked for."""
        run_exported(self.item, self.values, visit, wider)

    def export_outputs(self, given: object, contents: dict[str, Any]) -> dict[str, Tensor]:
        """The outputs of the exported program by run-time name; the new contents of states take their places."""
        found: dict[str, Any] = {}
        self.run_export(lambda node, value: found.__setitem__(node.name, value))
        names, signature = self.item.names, self.item.signature
        outputs = {
            name: torch.as_tensor(found[result])
            for name, result in zip((*names.states, *names.outputs), signature.results, strict=True)
        }
        contents.update((name, outputs[name]) for name in names.states)
        return outputs

    def run(self, module: IRModule, watch: Watch | None, given: object, contents: dict[str, Any]) -> dict[str, Any]:
        """The outputs of a program after any stage by run-time name; the new contents of states take their places."""
        module.kernels.update(self.final.kernels)
        graph = module.graph(self.item.name)
        inputs: dict[str, Any] = {}
        states: dict[str, Any] = {}
        for argument, name in zip(graph.regions[0].block.args, names_of(graph, "arg_attrs"), strict=True):
            assert name is not None
            if isinstance(argument.type, HandleType):
                content: TensorType = argument.type.tensor_type  # type: ignore[assignment]
                states[name] = _of_type(self.values[name], content).clone()
            else:
                inputs[name] = _of_type(self.values[name], argument.type)  # type: ignore[arg-type]
        machine = Machine(module, partial(implementation, module), watch)
        outputs = evaluate(module, inputs, entry=self.item.name, state=states, machine=machine)
        contents.update(states)
        contents.update((name, outputs[name]) for name in self.item.names.states if name in outputs)
        return outputs

    def agrees(self, module: IRModule) -> bool | None:
        """Whether the outputs of a program are the model's; None if the evaluator cannot run it."""
        try:
            return all(error.passed for error in self.errors(module))
        except EvaluationError:
            return None

    def errors(self, module: IRModule, watch: Watch | None = None) -> list[OutputError]:
        """The error of each output and state of a program after any stage."""
        return self.expectation.errors("evaluator", partial(self.run, module, watch), self.tolerance)

    def names(self, node: Node) -> tuple[str, ...]:
        return value_names(node, self.item.expansions)

    @cached_property
    def origins(self) -> Origins:
        return Origins(self.item.program.graph)

    def first_wrong_node(self, module: IRModule) -> WrongValueError | None:
        """The first node of the exported program whose value in a program after some stage is not PyTorch's."""
        named = {node: self.names(node) for node in self.item.program.graph.nodes}
        values = self.named_values(module, {name for names in named.values() for name in names})

        def visit(node: Node, value: Any) -> None:
            name = next((name for name in named[node] if name in values), None)
            if name is not None and isinstance(value, Tensor) and values[name].shape == value.shape:
                error = self.inner_error(name, node, value, values[name])
                if not error.passed:
                    raise WrongValueError(node, error, value, values[name])

        try:
            self.run_export(visit)
        except WrongValueError as found:
            return found
        return None

    def named_values(self, module: IRModule, wanted: Collection[str]) -> dict[str, Tensor]:
        """The values of an entry point by their names in the IR; without names that several values have."""
        block = module.graph(self.item.name).regions[0].block
        found: dict[str, Tensor] = {}
        repeated: set[str] = set()

        def watch(op: Operation, results: Any) -> None:
            if op.parent is not block:
                return
            for result, value in zip(op.results, results, strict=True):
                name = result.name_hint
                if name in wanted and isinstance(value, Tensor):
                    assert name is not None
                    (repeated.add(name) if name in found else found.setdefault(name, value))

        self.errors(module, watch)
        return {name: value for name, value in found.items() if name not in repeated}

    @cached_property
    def twins(self) -> Mapping[Node, Twin]:
        """The values of the exported program in a wider type; none if it does not run so."""

        def run(wider: Wider) -> dict[Node, Tensor]:
            found: dict[Node, Tensor] = {}

            def visit(node: Node, value: Any) -> None:
                if isinstance(value, Tensor) and self.names(node):
                    found[node] = value.clone()  # a later node may write to it

            self.run_export(visit, wider)
            return found

        return twins_of(run)

    def inner_error(self, name: str, node: Node, expected: Tensor, given: Tensor) -> OutputError:
        """The error of a value inside the program; a given tolerance grows with its magnitude."""
        error = compare(name, "evaluator", expected, given, self.tolerance, lambda: self.twins.get(node))
        if self.tolerance is not None and given.is_floating_point() and error.max_rel:
            scale = error.max_abs / error.max_rel if error.max_abs < float("inf") else 1.0
            error = replace(error, tolerance=error.tolerance * max(1.0, scale))
        return error

    @cached_property
    def leaving(self) -> dict[Node, list[str]]:
        """The nodes whose values leave modules, and these modules."""
        return {
            node: modules
            for node in self.item.program.graph.nodes
            if isinstance(node.meta.get("val"), Tensor) and self.names(node) and (modules := left_modules(node))
        }

    def module_errors(self) -> tuple[ModuleError, ...]:
        """The errors of the values that leave the modules of the model, in the order of the program.

        Only values that the program still has are compared.
        """
        leaving = self.leaving
        values = self.named_values(self.final, {name for node in leaving for name in self.names(node)})
        found: list[ModuleError] = []

        def visit(node: Node, value: Any) -> None:
            names = self.names(node) if node in leaving else ()
            name = next((name for name in names if name in values), None)
            if name is not None and values[name].shape == value.shape:
                error = self.inner_error(name, node, value, values[name])
                source = self.origins[node].source
                found.extend(ModuleError(path, node.name, source, error) for path in leaving[node])

        self.run_export(visit)
        return tuple(found)


def _of_type(value: Any, type_: TensorType) -> Tensor:
    """A given input or state in the type that a program takes after some stage."""
    return torch.as_tensor(value).to(TORCH_DTYPES[element_name(type_.element_type)])

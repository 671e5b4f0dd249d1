"""Find where a program's numbers depart from the model's: the module, the stage, and the rule.

The exported program, the imported one and the program after each stage are run on the same inputs. The first one whose
outputs differ from the model's names the stage. In the stage, the rewrite is found by bisection: a conversion is
deterministic, so it can be repeated with only the first rewrites of the stage. The rewrite has a rule and a location.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from patcomp.errors import EvaluationError, PatcompError
from patcomp.evaluate import Departure, Expectation, ModuleError, OutputError, compare, evaluate
from patcomp.evaluate.element_types import TORCH_DTYPES, to_tensor
from patcomp.evaluate.machine import Machine
from patcomp.evaluate.twin import Twin, Wider, twins_of
from patcomp.frontend_torch.conversion import Conversion, Staged
from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.frontend_torch.fx.provenance import Origins
from patcomp.frontend_torch.fx.reference import Visit, left_modules, run_graph
from patcomp.frontend_torch.importing.value_names import value_names
from patcomp.frontend_torch.verification.near_ties import distance
from patcomp.frontend_torch.verification.other_model import how_it_differs
from patcomp.frontend_torch.verification.unlowered import implementation
from patcomp.ir.locations import Origin, origins
from patcomp.ir.module import IRModule, names_of, with_outputs
from patcomp.ir.types import HandleType, TensorType, element_name
from patcomp.ir.verify import verify
from patcomp.ir.xdsl import Operation
from patcomp.patterns.budget import Budget
from patcomp.rewrites import STAGES, collector_paused
from patcomp.rewrites.pipeline import Pass

RunOn = Callable[[IRModule, str], Mapping[str, Any]]
"""Runs a module on a backend; returns the outputs by name."""
Watch = Callable[[Operation, Any], object]


class _FoundError(Exception):
    """The first node with other numbers."""

    def __init__(self, node: Node, error: OutputError, expected: Tensor, given: Tensor):
        super().__init__(node.name)
        self.node, self.error, self.expected, self.given = node, error, expected, given


@dataclass
class DepartureSearch:
    """Compares a program with its model, value by value and stage by stage.

    Args:
        conversion: the conversion that made the program.
        final: the program.
        entrypoint, expectation: the inputs, and what the model computes of them.
        initial: the initial contents of states that the model does not have.
        tolerance: the largest absolute difference that passes, as for `verify_against`. For values inside the program
            it applies to a magnitude of 1 or less, and is multiplied with the magnitude of others.
    """

    conversion: Conversion
    final: IRModule
    entrypoint: str
    expectation: Expectation
    initial: Mapping[str, Tensor]
    tolerance: float | None

    @cached_property
    def item(self) -> Staged:
        """The exported program of the entry point.

        Raises:
            LookupError: the entry point was made after the conversion.
        """
        found = {item.name: item for item in self.conversion.staged}
        if self.entrypoint not in found:
            raise LookupError(
                f"by='module' needs an entry point that was converted ({', '.join(found)}); {self.entrypoint!r} was "
                "made of one later"
            )
        return found[self.entrypoint]

    @cached_property
    def values(self) -> dict[str, Any]:
        """The inputs and the contents of states by run-time name."""
        return {**self.initial, **self.expectation.states, **self.expectation.given}

    # ---- running ----------------------------------------------------------------------------------

    def run_export(self, visit: Visit, wider: Wider | None = None) -> None:
        """Run the exported program, in wider types if asked for."""
        signature = self.item.signature
        own = self.item.names.of_arguments(signature)
        given = {
            **signature.fixed_inputs,
            **{name: value for name, (_, value) in signature.constants.items()},
            **{name: self.values[named] for name, named in own.items()},
        }
        given = {name: torch.as_tensor(v) if hasattr(v, "__array__") else v for name, v in given.items()}
        run_graph(self.item.program.graph_module, given, visit, wider)

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
        graph = module.graph(self.entrypoint)
        inputs: dict[str, Any] = {}
        states: dict[str, Any] = {}
        for index, argument in enumerate(graph.regions[0].block.args):
            name = names_of(graph, "arg_attrs")[index] or str(index)
            if isinstance(argument.type, HandleType):
                content: TensorType = argument.type.tensor_type  # type: ignore[assignment]
                states[name] = _of_type(self.values[name], content).clone()
            elif isinstance(argument.type, TensorType):
                inputs[name] = _of_type(self.values[name], argument.type)
        machine = Machine(module, partial(implementation, module), watch)
        outputs = evaluate(module, inputs, entry=self.entrypoint, state=states, machine=machine)
        contents.update(states)
        contents.update((name, outputs[name]) for name in self.item.names.states if name in outputs)
        return outputs

    def agrees(self, module: IRModule) -> bool | None:
        """Whether the outputs of a program are the model's; None if the evaluator cannot run it."""
        try:
            return all(error.passed for error in self.errors(module))
        except EvaluationError:
            return None

    def errors(self, module: IRModule) -> list[OutputError]:
        return self.expectation.errors("evaluator", partial(self.run, module, None), self.tolerance)

    # ---- the stage --------------------------------------------------------------------------------

    @collector_paused()
    def departure(self) -> Departure | None:
        """Where the numbers of the program first depart from the model's on the evaluator; None if they do not."""
        errors = self.expectation.errors("exported program", self.export_outputs, self.tolerance)
        if wrong := [error for error in errors if not error.passed]:
            return Departure("export", detail=(
                f"output {wrong[0].name!r} of the exported program, run by PyTorch, differs by {wrong[0].max_abs:.3g}; "
                f"{how_it_differs(self.expectation.model, self.item.signature.constants.values())}"
            ))  # fmt: skip
        module = self.conversion.imported()
        if self.agrees(module) is False:
            return self.near_tie("import", module) or self.in_import(module)
        for stage in STAGES:
            after = self.after(stage, module, None)
            if self.agrees(after) is False:
                return self.near_tie(stage.name, after) or self.in_stage(stage, module, after)
            module = after
        if self.agrees(self.final) is False:
            return Departure("specialize", detail="the program was changed after its conversion")
        return None

    def near_tie(self, stage: str, module: IRModule) -> Departure | None:
        """The departure if the first wrong value of a program is a choice between values that differ by rounding."""
        found = self.first_wrong_node(module)
        return None if found is None else self.tie_at(stage, found.node, found.expected, found.given)

    def tie_at(self, stage: str, node: Node, expected: Tensor, given: Tensor) -> Departure | None:
        """The departure at a node with two results, if it chose between values that differ by rounding."""
        values: dict[Node, Any] = {}
        producer = node.args[0] if node.target is getitem else node
        sources = producer.all_input_nodes if isinstance(producer, Node) else []
        self.run_export(lambda each, value: each in sources and values.update({each: _copied(value)}))
        found = distance(node, expected, given, lambda each: values[each] if isinstance(each, Node) else each)
        if found is None:
            return None
        apart, operand = found
        rounding = compare("", "", operand, operand, self.tolerance).tolerance
        if not apart <= rounding:
            return None
        assert isinstance(producer, Node)
        detail = (
            f"{operator_name(producer)} decides between values that differ by {apart:.3g}, and the tolerance of such "
            f"values is {rounding:.3g}. So rounding decides, and this does not show a wrong rule; verify with other "
            "inputs, or compare the values instead of the choice"
        )
        return replace(self.made(stage, "", self.origins[node], detail), near_tie=apart)

    def after(self, stage: Pass, before: IRModule, budget: Budget | None) -> IRModule:
        """A copy of a program, after a stage."""
        conversion, module = self.conversion, before.clone()
        stage.run(module, conversion.rules.stage(stage.name), replace(conversion.options, budget=budget))
        return module

    # ---- the rule ---------------------------------------------------------------------------------

    def in_stage(self, stage: Pass, before: IRModule, after: IRModule) -> Departure:
        """The departure in a stage: the rewrite after which the outputs are wrong, and before which they are right."""

        def with_rewrites(count: int | None) -> tuple[bool, Budget]:
            budget = Budget(count)
            return self.agrees(self.after(stage, before, budget)) is not False, budget

        _, budget = with_rewrites(None)
        right, wrong = 0, len(budget.spent)
        if wrong == 0 or not with_rewrites(0)[0]:
            return Departure(stage.name, detail="without any rewrite of a rule the outputs are wrong, too")
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if with_rewrites(middle)[0]:
                right = middle
            else:
                wrong = middle
        record = budget.spent[wrong - 1]
        detail = f"the outputs are right with the first {right} of {len(budget.spent)} rewrites of the stage"
        same = (origins(each.location) for each in budget.spent if each.rule == record.rule)
        place = self.first_of(after, {place for places in same for place in places[:1]})
        place = place or next(iter(origins(record.location)), Origin(""))
        return self.made(stage.name, record.rule, place, f"{detail}, and wrong with the next")

    def first_of(self, module: IRModule, places: Collection[Origin]) -> Origin | None:
        """The place, of those that a rule rewrote, with the first wrong value; None if it is not known."""
        found = self.first_wrong_node(module)
        place = None if found is None else self.origins[found.node]
        return place if place in places else None

    def in_import(self, imported: IRModule) -> Departure:
        """The departure in the import: the first node whose imported value is not PyTorch's."""
        found = self.first_wrong_node(imported)
        if found is None:
            return Departure("import", detail="the outputs differ, and no single node of the program does")
        node = found.node.args[0] if found.node.target is getitem else found.node
        assert isinstance(node, Node)
        rule, how = self.decomposition(node)
        detail = f"{operator_name(node)}{how} differs by {found.error.max_abs:.3g} from PyTorch's"
        return self.made("import", rule, self.origins[node], detail)

    def decomposition(self, node: Node) -> tuple[str, str]:
        """The rule that decomposes a node, and how the node is imported."""
        if node not in self.item.expansions:
            return "", ""
        op, rules = operator_name(node), self.conversion.rules
        declared = rules.decompositions().get(op) or rules.decompositions(of_complex=True).get(op)
        return (declared.name, ", decomposed by the rule,") if declared else ("", ", decomposed by PyTorch,")

    def made(self, stage: str, name: str, place: Origin, detail: str) -> Departure:
        rule = next((rule for rule in self.conversion.rules if rule.name == name), None)
        return Departure(
            stage=stage,
            rule=name,
            rule_source=rule.source if rule else "",
            rule_doc=rule.doc if rule else "",
            module=place.module_path,
            node=place.node,
            source=place.source,
            detail=detail,
        )

    # ---- values inside the program ----------------------------------------------------------------

    def names(self, node: Node) -> tuple[str, ...]:
        return value_names(node, self.item.expansions)

    @cached_property
    def origins(self) -> Origins:
        return Origins(self.item.program.graph)

    def first_wrong_node(self, module: IRModule) -> _FoundError | None:
        """The first node of the exported program whose value in a program after some stage is not PyTorch's."""
        named = {node: names for node in self.item.program.graph.nodes if (names := self.names(node))}
        values = self.named_values(module, {name for names in named.values() for name in names})

        def visit(node: Node, value: Any) -> None:
            name = next((name for name in named.get(node, ()) if name in values), None)
            if name is not None and isinstance(value, Tensor) and values[name].shape == value.shape:
                error = self.inner_error(name, node, value, values[name])
                if not error.passed:
                    raise _FoundError(node, error, value, values[name])

        try:
            self.run_export(visit)
        except _FoundError as found:
            return found
        return None

    def named_values(self, module: IRModule, wanted: Collection[str]) -> dict[str, Tensor]:
        """The values of an entry point by their names in the IR; without names that several values have."""
        block = module.graph(self.entrypoint).regions[0].block
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

        self.expectation.errors("evaluator", partial(self.run, module, watch), self.tolerance)
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

    def runtime_departure(self, run: RunOn) -> Departure:
        """Where the Core AI runtime departs from the evaluator: the values that leave modules become outputs, too.

        Args:
            run: runs a module with the same inputs.
        """
        wanted = {name: node for node in self.leaving for name in self.names(node)}
        module, added = with_outputs(self.final, self.entrypoint, wanted)
        detail = "the Core AI runtime computes other numbers than the evaluator for the same IR"
        try:
            verify(module, runtime=True)
            expected, given = run(module, "evaluator"), run(module, "runtime")
        except PatcompError as refusal:  # a rule of the runtime about outputs
            return Departure("runtime", detail=f"{detail}; inner values cannot be outputs: {refusal}")
        names = self.item.names
        results = dict(zip(self.item.signature.results, (*names.states, *names.outputs), strict=True))
        nodes = {each.name: each for each in self.item.program.graph.nodes}
        places = {output: (name, wanted[name]) for output, name in added.items()}
        places |= {output: (name, nodes[name]) for name, output in results.items() if output in expected}
        for output, (name, node) in places.items():
            found = torch.as_tensor(given[output]) if isinstance(given[output], Tensor) else to_tensor(given[output])
            error = self.inner_error(name, node, expected[output], found)
            if not error.passed:
                if tie := self.tie_at("runtime", node, expected[output], found):
                    return tie
                place = self.origins[node]
                place = replace(place, module_path=next(iter(self.leaving.get(node, ())), place.module_path))
                return self.made("runtime", "", place, f"{detail}; %{name} differs by {error.max_abs:.3g}")
        return Departure("runtime", detail=detail)

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


def _copied(value: Any) -> Any:
    """A value that a later node of the program does not write to."""
    return value.clone() if isinstance(value, Tensor) else value


def _of_type(value: Any, type_: TensorType) -> Tensor:
    """A given input or state in the type that a program takes after some stage."""
    return torch.as_tensor(value).to(TORCH_DTYPES[element_name(type_.element_type)])

"""Find where a program's numbers depart from the model's: the module, the stage, and the rule.

The exported program, the imported one and the program after each stage are run on the same inputs. The first one whose
outputs differ from the model's names the stage. In the stage, the rewrite is found by bisection: a conversion is
deterministic, so it can be repeated with only the first rewrites of the stage. The rewrite has a rule and a location.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from patcomp.collector import collector_paused
from patcomp.errors import PatcompError
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.verification import Departure, HalfLoss, ModuleError
from patcomp.frontend_torch.fx.nodes import operator_name, producer_of
from patcomp.frontend_torch.verification.half import most_lost
from patcomp.frontend_torch.verification.near_ties import distance
from patcomp.frontend_torch.verification.other_model import how_it_differs
from patcomp.frontend_torch.verification.values import ValueComparison
from patcomp.ir.locations import Origin, origins
from patcomp.ir.module import IRModule, with_outputs
from patcomp.ir.verify import verify
from patcomp.patterns.context import UNLIMITED, Budget
from patcomp.program.history import History
from patcomp.rewrites import STAGES
from patcomp.rewrites.pipeline import Pass

RunOn = Callable[[IRModule, str], Mapping[str, Any]]
"""Runs a module on a backend; returns the outputs by name."""


@dataclass
class DepartureSearch:
    """Finds where a program departs from its model.

    Args:
        history: how the program was made.
        values: compares the program with the model.
    """

    history: History
    values: ValueComparison

    @collector_paused()
    def departure(self) -> Departure | None:
        """Where the numbers of the program first depart from the model's on the evaluator; None if they do not."""
        errors = self.values.expectation.errors("exported program", self.values.export_outputs, self.values.tolerance)
        if wrong := [error for error in errors if not error.passed]:
            return Departure("export", detail=(
                f"output {wrong[0].name!r} of the exported program, run by PyTorch, differs by {wrong[0].max_abs:.3g}; "
                f"{how_it_differs(self.values.expectation.model, self.values.item.signature.constants.values())}"
            ))  # fmt: skip
        module = self.history.imported()
        if self.values.agrees(module) is False:
            return self.near_tie("import", module) or self.in_import(module)
        for stage in STAGES:
            after = self.after(stage, module)
            if self.values.agrees(after) is False:
                return self.near_tie(stage.name, after) or self.in_stage(stage, module, after)
            module = after
        for name, later in self.history.later.items():
            if self.values.agrees(later) is False:
                return Departure(name, detail="the program before this stage, which followed the conversion, is right")
        if self.values.agrees(self.values.final) is False:
            return Departure("", detail="the conversion is right, and the program was changed after it")
        return None

    def half_loss(self) -> HalfLoss | None:
        """The node where the exported program in half precision loses most beside itself in float32."""
        found = most_lost(self.values)
        if found is None:
            return None
        node, before, after = found
        place = self.values.origins[node]
        return HalfLoss(place.module_path, place.node, place.source, before, after)

    def near_tie(self, stage: str, module: IRModule) -> Departure | None:
        """The departure if the first wrong value of a program is a choice between values that differ by rounding."""
        found = self.values.first_wrong_node(module)
        return None if found is None else self.tie_at(stage, found.node, found.expected, found.given)

    def tie_at(self, stage: str, node: Node, expected: Tensor, given: Tensor) -> Departure | None:
        """The departure at a node with two results, if it chose between values that differ by rounding."""
        values: dict[Node, Any] = {}
        producer = producer_of(node)
        sources = producer.all_input_nodes
        self.values.run_export(lambda each, value: each in sources and values.update({each: _copied(value)}))
        found = distance(node, expected, given, lambda each: values[each] if isinstance(each, Node) else each)
        if found is None:
            return None
        apart, operand = found
        rounding = compare("", "", operand, operand, self.values.tolerance).tolerance
        if not apart <= rounding:
            return None
        detail = (
            f"{operator_name(producer)} decides between values that differ by {apart:.3g}, and the tolerance of such "
            f"values is {rounding:.3g}. So rounding decides, and this does not show a wrong rule; verify with other "
            "inputs, or compare the values instead of the choice"
        )
        return replace(self.made(stage, "", self.values.origins[node], detail), near_tie=apart)

    def after(self, stage: Pass, before: IRModule, budget: Budget = UNLIMITED) -> IRModule:
        """A copy of a program, after a stage."""
        history, module = self.history, before.clone()
        stage.run(module, history.rules.stage(stage.name), replace(history.options, budget=budget))
        return module

    # ---- the rule ---------------------------------------------------------------------------------

    def in_stage(self, stage: Pass, before: IRModule, after: IRModule) -> Departure:
        """The departure in a stage: the rewrite that makes right outputs wrong, found by bisection."""

        def with_rewrites(count: int) -> tuple[bool, Budget]:
            budget = Budget(count)
            return self.values.agrees(self.after(stage, before, budget)) is not False, budget

        _, budget = with_rewrites(sys.maxsize)
        right, wrong = 0, len(budget.spent)
        if not with_rewrites(0)[0]:
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
        """The place of the first wrong value, if a rule rewrote this place (it is in `places`); None if it is not
        known."""
        found = self.values.first_wrong_node(module)
        place = None if found is None else self.values.origins[found.node]
        return place if place in places else None

    def in_import(self, imported: IRModule) -> Departure:
        """The departure in the import: the first node whose imported value is not PyTorch's."""
        found = self.values.first_wrong_node(imported)
        if found is None:
            return Departure("import", detail="the outputs differ, and no single node of the program does")
        node = producer_of(found.node)
        rule, how = self.decomposition(node)
        detail = f"{operator_name(node)}{how} differs by {found.error.max_abs:.3g} from PyTorch's"
        return self.made("import", rule, self.values.origins[node], detail)

    def decomposition(self, node: Node) -> tuple[str, str]:
        """The rule that decomposes a node, and how the node is imported."""
        if node not in self.values.item.expansions:
            return "", ""
        op, rules = operator_name(node), self.history.rules
        declared = rules.decompositions().get(op) or rules.decompositions(of_complex=True).get(op)
        return (declared.name, ", decomposed by the rule,") if declared else ("", ", decomposed by PyTorch,")

    def made(self, stage: str, name: str, place: Origin, detail: str) -> Departure:
        rule = next((rule for rule in self.history.rules if rule.name == name), None)
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

    def runtime_departure(self, run: RunOn) -> Departure:
        """Where the Core AI runtime departs from the evaluator: the values that leave modules become outputs, too.

        Args:
            run: runs a module with the same inputs.
        """
        wanted = {name: node for node in self.values.leaving for name in self.values.names(node)}
        module, added = with_outputs(self.values.final, self.values.item.name, wanted)
        detail = "the Core AI runtime computes other numbers than the evaluator for the same IR"
        try:
            verify(module, runtime=True)
            expected, given = run(module, "evaluator"), run(module, "runtime")
        except PatcompError as refusal:  # a rule of the runtime about outputs
            return Departure("runtime", detail=f"{detail}; inner values cannot be outputs: {refusal}")
        names = self.values.item.names
        results = dict(zip(self.values.item.signature.results, (*names.states, *names.outputs), strict=True))
        nodes = {each.name: each for each in self.values.item.program.graph.nodes}
        places = {output: (name, wanted[name]) for output, name in added.items()}
        places |= {output: (name, nodes[name]) for name, output in results.items() if output in expected}
        for output, (name, node) in places.items():
            found = torch.as_tensor(given[output]) if isinstance(given[output], Tensor) else to_tensor(given[output])
            error = self.values.inner_error(name, node, expected[output], found)
            if not error.passed:
                if tie := self.tie_at("runtime", node, expected[output], found):
                    return tie
                place = self.values.origins[node]
                place = replace(place, module_path=next(iter(self.values.leaving.get(node, ())), place.module_path))
                return self.made("runtime", "", place, f"{detail}; %{name} differs by {error.max_abs:.3g}")
        return Departure("runtime", detail=detail)

    def module_errors(self) -> tuple[ModuleError, ...]:
        """The errors of the values that leave the modules of the model."""
        return self.values.module_errors()


def _copied(value: Any) -> Any:
    """A value that a later node of the program does not write to."""
    return value.clone() if isinstance(value, Tensor) else value

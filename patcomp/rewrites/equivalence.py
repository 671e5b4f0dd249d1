"""Whether a declarative rule computes the same as what it replaces, in numbers.

    check_equivalence(rule, default_rules())

draws programs of the rule's source (`patterns.drawing`), applies the rule alone, compiles what it gives with the
rest of the catalog, and compares with what eager PyTorch computes for the untouched source. PyTorch is imported
when a check is made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.errors import EvaluationError, RuleError, UnsupportedError
from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.module import IRModule, create_graph, signature_of
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import TensorType, element_name
from patcomp.ir.value import Value, set_name
from patcomp.ir.xdsl import Block, SSAValue, dead_code
from patcomp.patterns import Rule, RuleSet, run
from patcomp.patterns.drawing import ASPECTS, Choose, Drawing, draw
from patcomp.patterns.language import AnyOf, ResultNode
from patcomp.patterns.selftest import Variant, variants
from patcomp.rewrites.normalize import normalize
from patcomp.rewrites.pipeline import run_pipeline

Runner = Callable[[IRModule, Mapping[str, Any]], Mapping[str, Any]]
"""Runs a compiled program on inputs by name: the runtime's way, or the evaluator's."""

TOLERANCES = {"f16": 4e-3, "bf16": 3e-2}
"""Absolute, or relative to the largest magnitude of a result, by the narrowest type of the source; f32 has 2e-5."""

_ATTEMPTS = 16
"""How many programs are drawn for each that the rule should match."""


class NotEquivalentError(AssertionError):
    """A rule computes something else than what it replaces; the counterexample is in the attributes."""

    def __init__(self, trial: Trial, where: str, output: str, actual: Any, remark: str):
        self.source_ir, self.rewritten_ir = trial.source_ir, trial.rewritten_ir
        self.inputs, self.expected, self.actual = trial.inputs, trial.expected[output], actual
        rule = trial.drawing.rule
        inputs = "\n".join(f"{name} = {value}" for name, value in trial.inputs.items())
        super().__init__(
            f"rule {rule.name} ({rule.source}) computes something else than what it replaces, on the {where}\n"
            f"drawn: {trial.drawing}\n\n-- source\n{self.source_ir}\n\n-- rewritten\n{self.rewritten_ir}\n\n"
            f"-- inputs\n{inputs}\n\n-- expected {output}\n{self.expected}\n\n-- actual\n{actual}\n\n{remark}"
        )


@dataclass(frozen=True, eq=False)
class Trial:
    """A program that a rule matched, before and after, with inputs and eager PyTorch's results."""

    drawing: Drawing
    source: IRModule
    source_ir: str
    rewritten: IRModule
    """The compiled program that the rule was applied to."""
    rewritten_ir: str
    """The text right after the rule."""
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    tolerance: float

    def check(self, catalog: RuleSet, run: Runner | None = None, where: str = "evaluator") -> None:
        """Runs the rewritten program and compares.

        Args:
            catalog: the rules that compile the untouched source, to say in a failure which one is wrong.
            run: what runs it, by default the reference evaluator.
            where: the name of that in messages.

        Raises:
            NotEquivalentError: a result is another.
        """
        from patcomp.ir.evaluate import evaluate

        runner: Runner = run or (lambda module, inputs: evaluate(module, dict(inputs)))
        outputs = self._run(self.rewritten, runner)
        for name in self.expected:
            if not self._agrees(name, outputs[name]):
                compiled = run_pipeline(self.source.clone(), _others(catalog, self.drawing.rule), composites=()).module
                same = self._agrees(name, self._run(compiled, runner)[name])
                remark = (
                    "The source gives the expected numbers when the rest of the catalog compiles it: the rule is wrong."
                    if same
                    else "The source without the rule does not give the expected numbers either: look at its lowering."
                )
                raise NotEquivalentError(self, where, name, outputs[name], remark)

    def _run(self, module: IRModule, runner: Runner) -> dict[str, Any]:
        from patcomp.ir.evaluate import prepare_input
        from patcomp.ir.evaluate.element_types import to_tensor

        arguments = module.graph("main").regions[0].block.args
        inputs: dict[str, Any] = {}
        for (name, value), argument in zip(self.inputs.items(), arguments, strict=True):
            assert isinstance(argument.type, TensorType)
            inputs[name] = prepare_input(value, argument.type, name)
        return {name: to_tensor(value) for name, value in runner(module, inputs).items()}

    def _agrees(self, name: str, actual: Any) -> bool:
        from patcomp.ir.evaluate import compare

        error = compare(name, "", self.expected[name], actual)
        return min(error.max_abs, error.max_rel) <= self.tolerance


def check_equivalence(
    rule: Rule, catalog: RuleSet, *, draws: int = 40, seed: int = 0, runtime: Runner | None = None
) -> int:
    """Compares a rule with what it replaces on drawn programs; gives back on how many.

    Args:
        catalog: the rules that lower the programs; `rule` need not be one of them.
        draws: the number of programs. Half are those of the example, in alternatives and operand orders that are
            spread over all; in the others something differs from the example.
        seed: another one draws other programs.
        runtime: runs compiled programs on the Core AI runtime too.

    Raises:
        NotEquivalentError: the rule is wrong.
        RuleError: it has no example, or matches no program that runs.
    """
    generator = random.Random(seed)
    known, matched, plain = variants(rule), 0, (draws + 1) // 2
    for index in range(draws):
        if index < plain:
            trial = find_trial(rule, catalog, generator.choice, [known[index * len(known) // plain]], ())
        else:
            aspects = ASPECTS[1 + (index - plain) % (len(ASPECTS) - 1)]
            trial = find_trial(rule, catalog, generator.choice, known, aspects)
        if trial is None:
            continue
        matched += 1
        trial.check(catalog)
        if runtime is not None:
            trial.check(catalog, runtime, "runtime")
    if not matched:
        spelling = ", in the spelling that the normalize stage gives it" if rule.stage == "recover" else ""
        raise RuleError(f"rule {rule.name} ({rule.source}) matches no program that runs of its example{spelling}")
    return matched


def find_trial(
    rule: Rule, catalog: RuleSet, choose: Choose, known: Sequence[Variant], aspects: Sequence[str]
) -> Trial | None:
    """A program of some variant of a rule that PyTorch runs and that the rule matches, None if none was drawn.

    Args:
        aspects: what differs from the example (`drawing.ASPECTS`), and the sizes where a variant needs others.
    """
    for number in range(_ATTEMPTS):
        differing = aspects if number < _ATTEMPTS // 2 else (*aspects, "sizes")
        trial = attempt(draw(rule, choose(known), choose, differing), catalog, choose(range(1000)))
        if trial is not None:
            return trial
    return None


def attempt(drawing: Drawing, catalog: RuleSet, seed: int = 0) -> Trial | None:
    """A drawn program before and after its rule; None where PyTorch or the catalog refuses the program, or the rule
    does not match it.

    Raises:
        RuleError, StageError: the rule made an invalid program.
    """
    from patcomp.ir.evaluate import evaluate
    from patcomp.ir.evaluate.eager import random_tensor, run_eagerly

    source, captures = _program(drawing)
    graph = source.graph("main")
    block = graph.regions[0].block
    inputs: dict[str, Any] = {}
    for argument in block.args:
        limits = drawing.range_of(captures[argument]) if argument in captures else None
        inputs[argument.name_hint or ""] = random_tensor(argument.type, limits, seed + argument.index)
    try:
        if drawing.rule.view is aten_namespace:
            results = run_eagerly(block, list(inputs.values()), source.blobs)
        else:
            results = list(evaluate(source, dict(inputs)).values())
    except EvaluationError:
        return None
    graph.properties["function_type"] = signature_of(block)
    tolerance = _tolerance(block)
    if drawing.rule.stage == "recover":
        # recover rules may count on promotions that are explicit
        normalize(source, catalog.stage("normalize"))
    rewritten = source.clone()
    if drawing.rule.name not in run(rewritten.graph("main"), RuleSet([drawing.rule]), blobs=rewritten.blobs).fired:
        return None
    dead_code(rewritten.graph("main").regions[0])
    text, others = rewritten.text(), _others(catalog, drawing.rule)
    try:
        run_pipeline(rewritten, others)
    except UnsupportedError:
        try:
            run_pipeline(source.clone(), others, composites=())
        except UnsupportedError:
            return None
        raise
    expected = {f"y{index}": value for index, value in enumerate(results)}
    return Trial(drawing, source, source.text(), rewritten, text, inputs, expected, tolerance)


def _others(catalog: RuleSet, rule: Rule) -> RuleSet:
    """The catalog without the rule, and without what would recover the same composite in another way."""
    return catalog.filter(
        lambda other: other.name != rule.name and not (isinstance(other, Rule) and other.stage == "recover")
    )


def _program(drawing: Drawing) -> tuple[IRModule, dict[SSAValue, str]]:
    """A drawn source as a program that returns what the rule replaces, and the capture of each input."""
    module, built = IRModule(), drawing.sample()
    root = drawing.rule.root
    while isinstance(root, AnyOf):
        root = root.alternatives[drawing.variant.choices[id(root)]]
    replaced = [built.root.results[root.index]] if isinstance(root, ResultNode) else list(built.root.results)
    with Builder(built.block, blobs=module.blobs):
        coreai.output(*map(Value, replaced))
    captures = {value: name for name, value in built.inputs.items()}
    for argument in built.block.args:
        set_name(argument, captures.get(argument, f"any_{argument.index}"))
    names = [argument.name_hint or "" for argument in built.block.args]
    outputs = [f"y{index}" for index in range(len(replaced))]
    module.op.body.block.add_op(create_graph("main", built.block, argument_names=names, result_names=outputs))
    return module, captures


def _tolerance(block: Block) -> float:
    values = [*block.args, *(result for op in block.ops for result in op.results)]
    elements = {element_name(value.type.element_type) for value in values if isinstance(value.type, TensorType)}
    return max(TOLERANCES.get(element, 2e-5) for element in elements)

"""Everything that `patcomp rule test` tests of a rule: what it matches, its proof, and its examples compiled.

for check in examine(rule, default_rules()):
    print(check.name, check.runs, check.failure)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from patcomp.errors import RuleError, StageError, UnsupportedError
from patcomp.ir.module import IRModule
from patcomp.patterns import Context, Rule, RuleSet, Stage
from patcomp.questions.ops import closest_attempt_in
from patcomp.questions.reach import check_reach, namespace_of
from patcomp.rewrites import Options, run_pipeline
from patcomp_lab.proof.calls import DecomposedCall
from patcomp_lab.proof.counterexample import (
    AssetRunner,
    InvalidRewriteError,
    agrees,
    failure_text,
    with_rule_in_front,
    without_rule,
)
from patcomp_lab.proof.near_misses import self_tests
from patcomp_lab.proof.op_calls import OpDrawing, called, program_of_call
from patcomp_lab.proof.pairs import Rewritten, RulePair, made_of
from patcomp_lab.proof.programs import Programs
from patcomp_lab.proof.rounding import ROUNDING_LIMIT
from patcomp_lab.proof.verdict import PROGRAMS, Strength, Verdict, prove_rule

_COMPILED = 4
"""How many variants of a declarative rule's example are compiled."""


@dataclass
class CheckOutcome:
    """The outcome of one kind of tests."""

    name: str
    runs: int = 0
    """The programs that passed."""
    failure: Exception | None = None
    """The error of the first program that failed; a `WrongRuleError` has the counterexample."""
    unspecified: str = ""
    """The rule's reason why nothing is compared, or only the first result if it is a `FurtherResults`."""
    verdict: Verdict | None = None
    """What the proof says, for the check that is one."""


def examine(
    rule: Rule,
    catalog: RuleSet,
    runtime: AssetRunner | None = None,
    programs: int = PROGRAMS,
    *,
    compiles: bool = True,
) -> list[CheckOutcome]:
    """Test a rule in every way that its declaration and its examples imply.

    Args:
        rule: any rule; it need not be part of the catalog.
        catalog: the rules that compile the test programs with it.
        runtime: runs compiled programs on the Core AI runtime too.
        programs: the largest number of programs of each kind that the proof compares.
        compiles: whether what the rule builds becomes Core AI; rules for `patcomp.rewrite` may build any op of PyTorch.
    """
    try:
        check_reach(rule)
    except RuleError as error:
        return [CheckOutcome("can fire", failure=error)]
    checks: dict[str, CheckOutcome] = {}
    try:
        for name, test in _tests(rule, catalog, runtime, compiles):
            check = checks.setdefault(name, CheckOutcome(name))
            if check.failure is None:
                try:
                    check.runs += test()
                except (AssertionError, RuleError) as error:
                    check.failure = error
    except RuleError as error:  # there is nothing to test
        checks["examples"] = CheckOutcome("examples", 0, error)
    if all(check.failure is None for check in checks.values()):
        checks["proof"] = _proof(rule, catalog, programs)
    left_open = [CheckOutcome(name, unspecified=reason) for name, reason in rule.unspecified.items()]
    return [*checks.values(), *left_open]


def _tests(
    rule: Rule, catalog: RuleSet, runtime: AssetRunner | None, compiles: bool
) -> Iterator[tuple[str, Callable[[], int]]]:
    """The name of each test's kind, and the function that runs the test and returns how many programs passed."""
    if rule.is_drawn:
        for test in self_tests(rule):
            yield test.kind, lambda test=test: (test.run(), 1)[1]  # type: ignore[misc]
    if not compiles:
        return
    listed = Programs(rule, catalog, _COMPILED)
    for drawing in listed.examples():
        yield "the examples, compiled", lambda drawing=drawing: _compiled(listed, drawing, runtime)  # type: ignore[misc]


def _proof(rule: Rule, catalog: RuleSet, programs: int) -> CheckOutcome:
    verdict = prove_rule(rule, catalog, programs=programs)
    check = CheckOutcome("proof", verdict.compared, verdict.counterexample, verdict=verdict)
    if (
        verdict.strength is Strength.UNREACHED
        and not verdict.missed
        and any(not item.program for item in rule.examples)
    ):
        spelling = ", in the spelling that the normalize stage gives it" if rule.stage is Stage.RECOVER else ""
        message = f"rule {rule.name} ({rule.source}) matches no program that runs of its example{spelling}"
        check.failure = RuleError(message)
    if verdict.ulps is not None and verdict.ulps >= ROUNDING_LIMIT:
        check.failure = RuleError(
            f"rule {rule.name} ({rule.source}) loses digits: a search found inputs on which the results in 32 bits "
            f"are {verdict.ulps:.0f} units in the last place apart, and {ROUNDING_LIMIT:.0f} are too many; use a "
            "formula that does not subtract large numbers that are nearly equal"
        )
    return check


def _compiled(listed: Programs, drawing: Any, runtime: AssetRunner | None) -> int:
    """Compare an example as the whole catalog compiles it; 1 if it is one that this rule takes."""
    pair = listed.pair_of(drawing)
    if pair is None:
        if isinstance(drawing, OpDrawing) and not listed.rule.of_complex:
            raise RuleError(_refusal(listed.rule, drawing, listed.catalog))
        return 0
    check_compiled(pair, listed.catalog)
    if runtime is not None:
        check_compiled(pair, listed.catalog, runtime, "runtime")
    return 1


def _refusal(rule: Rule, drawing: OpDrawing, catalog: RuleSet) -> str:
    start = f"rule {rule.name} ({rule.source})"
    if rule.stage is Stage.DECOMPOSE:
        return f"{start}: PyTorch or the rule refuses its example, {drawing}"
    if (call := called(drawing)) is None:
        return f"{start} rejects its own example: {drawing}; PyTorch refuses it, too"
    source = program_of_call(drawing, call.types, 1)
    attempt = closest_attempt_in(rule, source.op, Context(namespace=namespace_of(rule)))
    if attempt.applies and (other := _taker(rule, drawing.op, source, catalog)) is not None:
        return (
            f"{start} never sees its op: rule {other.name} ({other.source}) of the stage {other.stage} takes "
            f"{drawing.op} first. Declare yours for the stage {other.stage}, or give it the name {other.name!r}, which "
            f"replaces that rule: {drawing}"
        )
    return f"{start} rejects its own example: {drawing}; {attempt.text}"


def _taker(rule: Rule, op: str, source: IRModule, catalog: RuleSet) -> Rule | None:
    """The other rule that takes the op of a call before a rule is tried at it."""
    rules = with_rule_in_front(catalog, rule)
    try:
        compilation = run_pipeline(source.clone(), rules, Options())
    except (UnsupportedError, StageError):
        return None
    for report in compilation.reports:
        for name, count in report.statistics.fired.items():
            if count and name != rule.name and op in rules[name].ops:
                return rules[name]
    return None


def check_compiled(pair: RulePair, catalog: RuleSet, run: AssetRunner | None = None, where: str = "evaluator") -> None:
    """Compile a program after its rule with the rest of the catalog, run it, and compare the results with the source's.

    Args:
        pair: the program before and after the rule; nothing is done with a decomposition.
        catalog: the rules that compile it.
        run: runs the program; by default the reference evaluator.
        where: the name of the evaluator or runtime in messages.

    Raises:
        WrongRuleError: a result differs, or the program is not compiled or does not run.
    """
    if isinstance(pair, DecomposedCall):
        return
    rules = with_rule_in_front(catalog, pair.rule)
    if isinstance(pair, Rewritten):
        rules = without_rule(catalog, pair.rule)
    try:
        module = run_pipeline(pair.module.clone(), rules, Options()).module  # type: ignore[attr-defined]
    except (UnsupportedError, StageError) as error:
        if isinstance(error, UnsupportedError) and _compiled_source(pair, catalog) is None:
            return
        raise InvalidRewriteError(pair.drawing, failure_text(error), pair.source_ir, pair.rewritten_ir) from error
    inputs = {name: made_of(each, (), index) for index, (name, each) in enumerate(pair.runs[0].items())}
    try:
        outputs = _run(module, inputs, run)
    except RuntimeError as error:
        message = f"made a program that does not run on the {where}: {error}"
        raise InvalidRewriteError(pair.drawing, message, pair.source_ir, pair.rewritten_ir) from error
    for index, (expected, actual) in enumerate(zip(pair.before(inputs), outputs, strict=True)):
        if not agrees(expected, actual, pair.tolerance, pair.rule.approximation):
            message = f"computes something else than what it replaces, on the {where}"
            wrong = pair.wrong(message, inputs, **{f"expected_y{index}": expected, f"actual_y{index}": actual})
            wrong.headline += f". {_blame(pair, catalog, inputs, index, expected, run)}"
            raise wrong


def _blame(pair: RulePair, catalog: RuleSet, inputs: Mapping[str, Any], index: int, expected: Any, run: Any) -> str:
    """A sentence that says whether the rest of the catalog computes the expected numbers."""
    plain = _compiled_source(pair, catalog)
    if plain is None:
        return "The rest of the catalog does not compile the source."
    if agrees(expected, _run(plain, inputs, run)[index], pair.tolerance, pair.rule.approximation):
        return "The source gives the expected numbers when the rest of the catalog compiles it: the rule is wrong."
    return "The source without the rule does not give the expected numbers either: look at its lowering."


def _compiled_source(pair: Any, catalog: RuleSet) -> IRModule | None:
    try:
        rules = without_rule(catalog, pair.rule)
        return run_pipeline(pair.source.clone(), rules, Options(composites=())).module
    except UnsupportedError:
        return None


def _run(module: IRModule, inputs: Mapping[str, Any], run: AssetRunner | None) -> list[Any]:
    from patcomp.evaluate.element_types import to_tensor
    from patcomp.evaluate.machine import evaluate
    from patcomp_lab.proof.calls import compiled_inputs

    names = [argument.name_hint or "" for argument in module.graph("main").regions[0].block.args]
    given = dict(zip(names, compiled_inputs(module, inputs), strict=True))
    return [to_tensor(value) for value in (run or evaluate)(module, given).values()]

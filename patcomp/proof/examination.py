"""Run all tests that follow from a rule's declaration and examples, and keep the first counterexample of each kind.

for check in examine(rule, default_rules()):
    print(check.name, check.runs, check.failure)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from patcomp.errors import RuleError
from patcomp.patterns import Context, Rule, RuleSet, Stage
from patcomp.patterns.aspects import RANKS, SPECIAL, is_left_open
from patcomp.proof.drawing import draw, smaller
from patcomp.proof.equivalence import attempt, drawn_trials, rank_trials
from patcomp.proof.op_equivalence import attempt_op, check_decomposition, op_drawings, source_of_op
from patcomp.proof.selftest import self_tests, variants
from patcomp.proof.trials import Runner, Trial, WrongRuleError
from patcomp.proof.variations import OpDrawing
from patcomp.questions.ops import why_not
from patcomp.questions.reach import check_reach, namespace_of

DRAWS = 40
"""How many programs are drawn for a declarative rule."""

_RANKS = 3
"""In how many variants the ranks and lengths of a declarative rule are varied."""

_SPECIAL = 4
"""In how many variants a declarative rule is run on special values."""


@dataclass
class Check:
    """The outcome of one kind of tests."""

    name: str
    runs: int = 0
    """The programs that passed."""
    failure: Exception | None = None
    """The error of the first program that failed; a `WrongRuleError` has the counterexample."""
    unspecified: str = ""
    """The rule's reason why nothing is compared, or only the first result if it is a `FurtherResults`."""


def examine(rule: Rule, catalog: RuleSet, runtime: Runner | None = None) -> list[Check]:
    """Test a rule in every way that its declaration and its examples imply.

    Args:
        rule: any rule; it need not be part of the catalog.
        catalog: the rules that compile the test programs with it.
        runtime: runs compiled programs on the Core AI runtime too.
    """
    try:
        check_reach(rule)
    except RuleError as error:
        return [Check("can fire", failure=error)]
    tests = _declared(rule, catalog, runtime) if rule.is_declarative else _of_ops(rule, catalog, runtime)
    checks: dict[str, Check] = {}
    try:
        for name, test in tests:
            check = checks.setdefault(name, Check(name, unspecified=rule.unspecified.get(name, "")))
            if check.failure is None and not is_left_open(rule.unspecified, name):
                try:
                    check.runs += test()
                except (AssertionError, RuleError) as error:
                    check.failure = error
    except RuleError as error:  # there is nothing to test
        checks["examples"] = Check("examples", 0, error)
    return list(checks.values())


Test = tuple[str, Callable[[], int]]
"""The name of a test's kind, and the function that runs the test and returns how many programs passed."""


def _declared(rule: Rule, catalog: RuleSet, runtime: Runner | None) -> Iterator[Test]:
    for test in self_tests(rule):
        yield test.kind, lambda test=test: (test.run(), 1)[1]  # type: ignore[misc]

    def compare(drawing: Any) -> int:
        return _compared(attempt(drawing, catalog), catalog, runtime)

    def passed(trials: Iterable[Trial]) -> int:
        try:
            return sum(_compared(trial, catalog, runtime) for trial in trials)
        except WrongRuleError as error:
            raise _shrunk(error, compare) from None

    def numbers() -> int:
        if count := passed(drawn_trials(rule, catalog, random.Random(0).choice, DRAWS)):
            return count
        raise RuleError(f"rule {rule.name} ({rule.source}) matches no program that runs of its example")

    yield "numbers, on drawn programs", numbers
    yield RANKS, lambda: passed(rank_trials(rule, catalog, random.Random(0).choice, _RANKS))
    known = variants(rule)
    for aspect, special in SPECIAL.items():
        for variant in known[:: -(-len(known) // _SPECIAL)]:
            drawing = draw(rule, variant, random.Random(0).choice, ())
            yield aspect, _shrinking(compare, replace(drawing, special=special, aspect=aspect))


def _of_ops(rule: Any, catalog: RuleSet, runtime: Runner | None) -> Iterator[Test]:
    def compare(drawing: Any) -> int:
        if rule.stage is Stage.IMPORT:
            count = check_decomposition(drawing)
            if not count and drawing.aspect == "the example" and drawing.compared and not rule.of_complex:
                raise RuleError(f"rule {rule.name} ({rule.source}): PyTorch or the rule refuses its example, {drawing}")
            return count
        trial = attempt_op(drawing, catalog)
        if trial is None and drawing.aspect == "the example":
            reason = _reason(rule, drawing)
            raise RuleError(f"rule {rule.name} ({rule.source}) rejects its own example: {drawing}; {reason}")
        return _compared(trial, catalog, runtime)

    for drawing in op_drawings(rule):
        yield drawing.aspect, _shrinking(compare, drawing)


def _reason(rule: Rule, drawing: OpDrawing) -> str:
    """Why a rule refuses a call."""
    source = source_of_op(drawing)
    if source is None:
        return "PyTorch refuses it, too"
    return why_not(rule, source.op, Context(namespace=namespace_of(rule)))


def _compared(trial: Trial | None, catalog: RuleSet, runtime: Runner | None) -> int:
    """1 if a program computes the right numbers, 0 if there is no program."""
    if trial is None:
        return 0
    trial.check(catalog)
    if runtime is not None:
        trial.check(catalog, runtime, "runtime")
    return 1


def _shrinking(compare: Callable[[Any], int], drawing: Any) -> Callable[[], int]:
    def run() -> int:
        try:
            return compare(drawing)
        except WrongRuleError as error:
            raise _shrunk(error, compare) from None

    return run


def _shrunk(error: WrongRuleError, compare: Callable[[Any], int]) -> WrongRuleError:
    """The same mistake on the smallest program that shows it."""
    drawing: Any = error.drawing
    for example in smaller(drawing.example):
        try:
            compare(replace(drawing, example=example))
        except WrongRuleError as found:
            if type(found) is type(error):
                return _shrunk(found, compare)
        except RuleError:
            continue  # the rule does not take this one
    return error

"""Whether a declarative rule computes the same as what it replaces, in numbers.

    check_equivalence(rule, default_rules())

draws programs of the rule's source (`proof.drawing`) and applies the rule alone. It compiles the result with the rest
of the catalog, and compares the numbers with those of the untouched source in eager PyTorch. PyTorch is imported when a
check is made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from patcomp.errors import EvaluationError, RuleError, StageError, UnsupportedError, VerifyError
from patcomp.ir.cleanup import remove_dead_ops
from patcomp.ir.infer import InferenceError
from patcomp.ir.module import function_type
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.region import RegionOp
from patcomp.ir.verify import verify
from patcomp.patterns import Context, Rule, RuleSet, run
from patcomp.proof.drawing import ASPECTS, Choose, Drawing, draw, other_ranks
from patcomp.proof.selftest import Variant, variants
from patcomp.proof.sources import program_of
from patcomp.proof.trials import (
    InvalidRewriteError,
    NotEquivalentError,
    Runner,
    Trial,
    failure_text,
    tolerance_of,
    without_rule,
)
from patcomp.rewrites import Options, run_pipeline
from patcomp.rewrites.normalize import normalize

__all__ = [
    "InvalidRewriteError",
    "NotEquivalentError",
    "Runner",
    "Trial",
    "attempt",
    "check_equivalence",
    "find_trial",
]

_ATTEMPTS = 16
"""How many programs are drawn, at most, until the rule matches one."""


def check_equivalence(
    rule: Rule, catalog: RuleSet, *, draws: int = 40, seed: int = 0, runtime: Runner | None = None
) -> int:
    """Compare a rule with the ops that it replaces, on drawn programs.

    Args:
        catalog: the rules that lower the programs; `rule` need not be one of them.
        draws: the number of programs. Half of them are the example, in alternatives and operand orders spread over all;
            the others differ from the example in an aspect.
        seed: another seed draws other programs.
        runtime: runs compiled programs on the Core AI runtime too.

    Returns:
        The number of compared programs.

    Raises:
        WrongRuleError: the rule is wrong.
        RuleError: the rule has no example, or matches no valid program.
    """
    matched = 0
    for trial in drawn_trials(rule, catalog, random.Random(seed).choice, draws):
        matched += 1
        trial.check(catalog)
        if runtime is not None:
            trial.check(catalog, runtime, "runtime")
    if not matched:
        spelling = ", in the spelling that the normalize stage gives it" if rule.stage == "recover" else ""
        raise RuleError(f"rule {rule.name} ({rule.source}) matches no program that runs of its example{spelling}")
    return matched


def drawn_trials(rule: Rule, catalog: RuleSet, choose: Choose, draws: int) -> Iterator[Trial]:
    """Programs that a rule matches. Half of them are the example, in alternatives and operand orders spread over all;
    the others differ from the example in an aspect."""
    known, plain = variants(rule), (draws + 1) // 2
    for index in range(draws):
        if index < plain:
            trial = find_trial(rule, catalog, choose, [known[index * len(known) // plain]], ())
        else:
            aspects = ASPECTS[1 + (index - plain) % (len(ASPECTS) - 1)]
            trial = find_trial(rule, catalog, choose, known, aspects)
        if trial is not None:
            yield trial


def rank_trials(rule: Rule, catalog: RuleSet, choose: Choose, count: int) -> Iterator[Trial]:
    """Programs that a rule matches, with other ranks and lengths of lists than the example's.

    Args:
        count: how many variants of the rule are varied.

    Raises:
        InvalidRewriteError: a condition or the target fails on another rank or length.
    """
    known = variants(rule)
    for part in range(min(count, len(known))):
        plain = find_trial(rule, catalog, choose, known[part :: min(count, len(known))], ())
        if plain is None:
            continue
        assert isinstance(plain.drawing, Drawing)
        for drawing in other_ranks(plain.drawing):
            trial = attempt(drawing, catalog)
            if trial is not None:
                yield trial


def find_trial(
    rule: Rule, catalog: RuleSet, choose: Choose, known: Sequence[Variant], aspects: Sequence[str]
) -> Trial | None:
    """A program of some variant of a rule that PyTorch runs and that the rule matches, None if none was drawn.

    Args:
        aspects: the aspects that differ from the example (`drawing.ASPECTS`). If no program is found, sizes differ,
            too, because some variants need other sizes.
    """
    for number in range(_ATTEMPTS):
        differing = aspects if number < _ATTEMPTS // 2 else (*aspects, "sizes")
        trial = attempt(draw(rule, choose(known), choose, differing), catalog, choose(range(1000)))
        if trial is not None:
            return trial
    return None


def attempt(drawing: Drawing, catalog: RuleSet, seed: int = 0) -> Trial | None:
    """A drawn program before and after its rule; None if PyTorch or the catalog refuses the program, or the rule does
    not match it.

    Args:
        drawing: the program.
        catalog: the rules that compile it.
        seed: for the inputs.

    Raises:
        InvalidRewriteError: the rule raises an exception, or its result is an invalid program.
    """
    from patcomp.evaluate import evaluate
    from patcomp.evaluate.eager import random_tensor, run_eagerly, with_special_values

    try:
        source, captures = program_of(drawing)
        if drawing.rule.graph.dialect is not aten_namespace:  # eager PyTorch refuses the others
            verify(source, runtime=False)
    except (InferenceError, VerifyError):
        return None  # sizes or element types that do not fit each other
    graph = source.graph("main")
    block = graph.regions[0].block
    inputs: dict[str, Any] = {}
    for argument in block.args:
        limits = drawing.range_of(captures[argument]) if argument in captures else None
        made = random_tensor(argument.type, limits, seed + argument.index)
        inputs[argument.name_hint or ""] = with_special_values(
            made, () if limits else drawing.special, seed + argument.index
        )
    try:
        if drawing.rule.graph.dialect is aten_namespace:
            results = run_eagerly(block, list(inputs.values()), source.blobs)
        else:
            results = list(evaluate(source, dict(inputs)).values())
    except EvaluationError:
        return None
    graph.properties["function_type"] = function_type(block)
    if any(isinstance(op, RegionOp) for op in block.ops):
        try:
            verify(source, runtime=False)
        except VerifyError:
            return None  # the composite takes no such element types together
    tolerance = tolerance_of(block)
    if drawing.rule.stage == "recover":
        # recover rules may count on promotions that are explicit
        normalize(source, catalog.stage("normalize"), Options(strict=True))
    rewritten, source_ir = source.clone(), source.text()
    try:
        fired = run(rewritten.graph("main"), RuleSet([drawing.rule]), Context(rewritten.blobs)).fired
    except Exception as error:  # a rule's functions may raise any exception
        raise InvalidRewriteError(drawing, failure_text(error), source_ir) from error
    if drawing.rule.name not in fired:
        return None
    remove_dead_ops(rewritten.graph("main"))
    text, others = rewritten.text(), without_rule(catalog, drawing.rule)
    try:
        run_pipeline(rewritten, others, Options())
    except UnsupportedError as error:
        try:
            run_pipeline(source.clone(), others, Options(composites=()))
        except UnsupportedError:
            return None
        raise InvalidRewriteError(drawing, failure_text(error), source_ir, text) from error
    except StageError as error:
        raise InvalidRewriteError(drawing, failure_text(error), source_ir, text) from error
    expected = {f"y{index}": value for index, value in enumerate(results)}
    return Trial(drawing, source, source_ir, rewritten, text, inputs, expected, tolerance)

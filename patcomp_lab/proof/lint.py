"""Find suspicious rules: rules without a test or a proof, rules that another rule hides, rules that no program fires,
and rules that rewrite each other's results without end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from patcomp.errors import PatcompError, StageError
from patcomp.ir.module import IRModule
from patcomp.patterns import Context, Rule, RuleSet, Stage, run
from patcomp.patterns.driver import EndlessRewritesError
from patcomp.questions.reach import namespace_of
from patcomp.rewrites import Options, run_pipeline
from patcomp.targets import Target
from patcomp_lab.proof.counterexample import WrongRuleError
from patcomp_lab.proof.op_calls import of_absent_library
from patcomp_lab.proof.programs import Programs


@dataclass(frozen=True)
class _Finding:
    """One suspicious thing about a rule."""

    kind: str
    """`no example`, `no description`, `not proved`, `overlap`, `shadowed`, `cycle` or `never fires`."""
    rule: str
    message: str

    @property
    def key(self) -> str:
        """The name of the finding in a list of explained findings."""
        return f"{self.kind}: {self.rule}"


def lint(rules: Iterable[Rule], catalog: RuleSet, fired: Collection[str], where: str) -> Iterator[_Finding]:
    """The findings about some rules of a catalog.

    Args:
        rules: the rules in question.
        catalog: all rules, in the order in which a conversion has them.
        fired: the names of the rules that some program of a corpus fires.
        where: the name of that corpus in messages.
    """
    for rule in rules:
        if not rule.doc:
            yield _Finding("no description", rule.name, f"{rule.source} has no docstring that says what it does")
        has_example = bool(rule.examples)
        if not has_example:
            yield _Finding("no example", rule.name, f"{rule.source} has no example, so that nothing tests it")
        elif rule.stage is not Stage.DECOMPOSE:
            try:
                yield from (_hidden if rule.is_drawn else _hidden_op_rule)(rule, catalog)
            except (StageError, WrongRuleError) as error:
                endless = _endless(error)
                if endless is None:
                    raise
                if any(rule.name in cycle for cycle in endless.cycles):
                    yield _Finding("cycle", rule.name, f"{rule.source}: {endless}")
        if has_example:
            yield from _unproved(rule, catalog)
        if can_fire(rule) and rule.name not in fired:
            yield _Finding("never fires", rule.name, f"no program of {where} fires it")


def can_fire(rule: Rule) -> bool:
    """Whether a stage may apply a rule here: it is no decomposition, and its library is installed."""
    return rule.stage is not Stage.DECOMPOSE and not of_absent_library(rule)


_PROGRAMS = 3
"""With how many programs of each kind a rule is proved that the table of verdicts does not have."""


def _unproved(rule: Rule, catalog: RuleSet) -> Iterator[_Finding]:
    """The finding if a rule has no proof: in its package's table of verdicts, or on a few programs if that has none."""
    from patcomp_lab.proof import table
    from patcomp_lab.proof.verdict import prove_rule

    folder = table.folder_of(rule)
    if folder is None or not (rows := table.read_table(folder)):
        verdict = prove_rule(rule, catalog, programs=_PROGRAMS)
        if not verdict.strength.is_proof:
            yield _Finding("not proved", rule.name, f"{rule.source}: {verdict}")
        return
    row = rows.get(rule.name)
    if row is None or not table.is_current(row, rule):
        message = f"{rule.source} changed since its proof: patcomp catalog verdicts --update"
        yield _Finding("not proved", rule.name, message)
    elif not row.is_proof:
        yield _Finding("not proved", rule.name, f"{rule.source}: {row.verdict}; {row.remark}")


def fired_by_examples(
    catalog: RuleSet, rules: Iterable[Rule], advance: Callable[[int, int], object] = lambda done, size: None
) -> set[str]:
    """The rules that the examples of all rules fire, when the whole catalog compiles them.

    Args:
        catalog: all rules.
        rules: those in question. Their own examples come first, and no more are compiled when all of them have fired.
        advance: is called with the number of rules whose examples are compiled, and with all.
    """
    first = {rule.name: rule for rule in rules}
    ordered = [*first.values(), *(rule for rule in catalog if rule.name not in first)]
    wanted = {rule.name for rule in first.values() if can_fire(rule)}
    fired: set[str] = set()
    for done, rule in enumerate(ordered):
        if wanted <= fired:
            break
        advance(done, len(ordered))
        try:
            for source in _sources(rule, catalog):
                fired |= _fired(source, catalog, rule)
        except (StageError, WrongRuleError) as error:
            if _endless(error) is None:
                raise
    return fired


def _endless(error: BaseException | None) -> EndlessRewritesError | None:
    """The error of endless rewrites that caused another one."""
    return error if error is None or isinstance(error, EndlessRewritesError) else _endless(error.__cause__)


def _sources(rule: Rule, catalog: RuleSet) -> Iterator[IRModule]:
    """The programs of a rule's examples; for a declarative rule, one valid program."""
    if not can_fire(rule):
        return  # no program has its ops
    listed = Programs(rule, catalog, _PROGRAMS)
    pairs: Iterator[Any] = (pair for drawing in listed.examples() if (pair := listed.pair_of(drawing)) is not None)
    yield from (pair.source for pair in itertools.islice(pairs, 1 if rule.is_drawn else None))


def _fired(source: IRModule, catalog: RuleSet, rule: Rule) -> set[str]:
    """The rules that fire in a program; for one of the stage `target`, in a conversion for a target that has it."""
    alone = Target(rule.name, (rule.name,)) if rule.stage is Stage.TARGET and rule.name in catalog else None
    try:
        reports = run_pipeline(source.clone(), catalog, Options(strict=True, target=alone)).reports
    except PatcompError as error:
        if _endless(error) is not None:
            raise
        return set()
    return {name for report in reports for name in report.statistics.fired}


def _hidden(rule: Rule, catalog: RuleSet) -> Iterator[_Finding]:
    """The findings if other rules match a declarative rule's example, before it or as well."""
    for source in _sources(rule, catalog):
        stage = catalog.stage(rule.stage)
        statistics = run(source.graph("main"), stage.index, Context(source.blobs, namespace_of(rule)))
        if rule.name not in statistics.fired:
            others = ", ".join(statistics.fired) or "no rule"
            yield _Finding("shadowed", rule.name, f"{rule.source}: its own example is taken by {others}")
        for overlap in statistics.overlaps:
            if rule.name in (overlap.taken, overlap.other):
                yield _Finding("overlap", rule.name, str(overlap))


def _hidden_op_rule(rule: Rule, catalog: RuleSet) -> Iterator[_Finding]:
    """The same for a procedural rule."""
    rivals = {
        other.name
        for other in catalog.procedural()
        if other is not rule
        and (other.stage, other.size, other.priority) == (rule.stage, rule.size, rule.priority)
        and set(other.ops) & set(rule.ops)
    }
    for source in _sources(rule, catalog):
        fired = _fired(source, catalog, rule)
        if rule.name not in fired:
            others = ", ".join(sorted(fired & rivals)) or "no rule of the same op"
            yield _Finding("shadowed", rule.name, f"{rule.source}: its own example is taken by {others}")
        elif rivals and (both := _fired(source, catalog.without(rule.name), rule) & rivals - fired):
            message = f"{rule.source}: its example would be taken by {', '.join(sorted(both))} as well"
            yield _Finding("overlap", rule.name, message)

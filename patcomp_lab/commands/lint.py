"""`patcomp lint-catalog`: rules that overlap, hide each other, never fire or have no test."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from patcomp.commands.common import (
    ANSWER_IS_NO,
    Catalogs,
    Modules,
    counted,
    hide_export_warnings,
    import_modules,
    load_catalogs,
    rule_count,
    rules_with,
)
from patcomp.commands.models import ModelOptions, convert_model
from patcomp.commands.progress import working
from patcomp.commands.tables import print_table

if TYPE_CHECKING:
    from patcomp.patterns import Rule, RuleSet


def lint_catalog(
    catalog: Catalogs = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="A model, as for convert; by default the examples of all rules are the corpus."),
    ] = None,
    modules: Modules = None,
) -> None:
    """List suspicious rules; with --catalog, only those of the given catalogs.

    $ patcomp lint-catalog --catalog my_rules.py
    """
    from patcomp.patterns import RuleSet
    from patcomp.patterns.user_catalogs import rules_of

    hide_export_warnings()
    import_modules(modules)
    modules_of = load_catalogs(catalog)
    everything = rules_with(catalog)
    from patcomp_lab.proof.lint import can_fire, fired_by_examples, lint

    given = (rule for module in modules_of for rule in rules_of(module))
    rules = RuleSet(everything[rule.name] for rule in (given if catalog else everything))
    fired: set[str] = set()
    for model in corpus or ():
        for report in convert_model(model, "lint-catalog", ModelOptions(catalog=catalog)).reports:
            fired |= {name for name, count in report.statistics.fired.items() if count}
    if not corpus:
        with working("compiling the examples of all rules", counts=True) as advance:
            fired = fired_by_examples(everything, rules, advance)
            if not {rule.name for rule in rules if can_fire(rule)} <= fired:
                fired = fired.union(*(_fired_by_programs(rule, modules_of) for rule in everything))
    where = "the corpus" if corpus else "the examples of all rules"
    explained = {} if corpus else _explained(rules)
    findings: dict[Any, None] = {}
    with working("looking for suspicious rules", counts=True) as advance:
        for done, rule in enumerate(rules):
            advance(done, len(rules))
            findings |= dict.fromkeys(lint([rule], everything, fired, where))
    open_findings = [finding for finding in findings if finding.key not in explained]
    if open_findings:
        rows = [(finding.kind, finding.rule, finding.message) for finding in open_findings]
        print_table(["finding", "rule", "why"], rows)
    known = f", {len(findings) - len(open_findings)} more are explained" if len(findings) > len(open_findings) else ""
    print(f"{rule_count(list(rules))}, {counted(len(open_findings), 'finding')}{known}")
    if open_findings:
        sys.exit(ANSWER_IS_NO)


def _fired_by_programs(rule: Rule, catalog: Sequence[ModuleType]) -> set[str]:
    """The rules that fire in the examples of a rule that are programs of several ops."""
    programs = [item for item in rule.examples if item.program]
    if not programs:
        return set()
    from patcomp_lab.proof.examples import convert_example, fired_in
    from patcomp_lab.proof.op_calls import of_absent_library

    if of_absent_library(rule):
        return set()
    return set().union(*(fired_in(convert_example(rule, item, catalog)[0]) for item in programs))


def _explained(rules: RuleSet) -> set[str]:
    """The findings that the packages of rules explain: `EXPLAINED` of their module `explained` has the reasons."""
    from patcomp_lab.proof.table import folder_of

    packages = {folder.name for rule in rules if (folder := folder_of(rule)) is not None}
    names = [f"{package}.explained" for package in sorted(packages) if package in sys.modules]
    return {key for name in names if find_spec(name) is not None for key in import_module(name).EXPLAINED}

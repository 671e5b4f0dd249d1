"""`patcomp catalog` and `patcomp ops`: list the rules and the ops that they take."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from inspect import cleandoc
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from patcomp.commands.common import (
    Catalogs,
    UsageError,
    counted,
    load_catalogs,
    rule_count,
    rules_with,
    say,
    wide_console,
)
from patcomp.errors import PatcompError

if TYPE_CHECKING:
    from patcomp.patterns import Rule


def list_rules(
    stage: Annotated[str | None, typer.Option(help="Only the rules of this stage.")] = None,
    markdown: Annotated[bool, typer.Option(help="Print a Markdown page, docs/catalog.md.")] = False,
    catalog: Catalogs = None,
) -> None:
    """Lists every rule: name, stage, matched ops, place of declaration and description."""
    rules = [rule for rule in rules_with(catalog) if stage in (None, rule.stage)]
    if not rules:
        raise UsageError(f"no rule has the stage {stage!r}; there are {', '.join(_stage_names())}")
    if markdown:
        print(catalog_page(rules))
        return
    table = Table("rule", "stage", "matches", "declared at", "does")
    for rule in rules:
        table.add_row(rule.name, rule.stage, _subject(rule), rule.source, _summary(rule))
    wide_console().print(table, markup=False)
    print(rule_count(list(rules)))


def show_rule(
    name: Annotated[str, typer.Argument(help="The rule's name, as `patcomp catalog list` shows it.")],
    catalog: Catalogs = None,
) -> None:
    """Shows a rule whole: what it says of itself, what it matches, its examples, its conditions."""

    rules = rules_with(catalog)
    try:
        rule = rules[name]
    except KeyError as error:
        raise UsageError(error.args[0]) from None
    print(f"{rule.name}: a rule of the {rule.stage} stage, declared at {rule.source}")
    print(f"\n{cleandoc(rule.doc) or 'It does not say what it does.'}\n")
    print(f"matches:    {_subject(rule)}")
    print(f"size:       {rule.size}, priority {rule.priority}")
    if not rule.is_declarative:
        for item in rule.examples:
            given = [*map(repr, item.args), *(f"{key}={value!r}" for key, value in item.kwargs.items())]
            print(f"example:    {item.op or rule.ops[0]}({', '.join(given)})")
        return
    print(f"becomes:    {shorten(str(rule.target), 200)}")
    for condition in rule.graph.conditions:
        print(f"where:      {shorten(condition.text, 200)}")
    for capture, value in (rule.example or {}).items():
        print(f"example:    {capture} = {value!r}")


def check_catalog(catalog: Catalogs = None) -> None:
    """Checks the declarations: unique names, targets that exist, rules that can fire and match their own examples."""
    from patcomp.patterns import collect
    from patcomp.proof.selftest import self_tests
    from patcomp.questions.reach import check_reach

    everything = rules_with(catalog)  # it loads patcomp's composites, too, which rules of users may build
    rules = collect(*load_catalogs(catalog)) if catalog else everything
    findings: list[str] = []
    for rule in rules:
        try:
            check_reach(rule)
            if rule.is_declarative:
                self_tests(rule)[0].run()
        except (PatcompError, AssertionError) as error:
            findings.append(str(error))
    print("\n".join([*findings, f"{rule_count(list(rules))}, {counted(len(findings), 'finding')}"]))
    if findings:
        sys.exit(1)


def list_composites(
    markdown: Annotated[bool, typer.Option(help="Print a Markdown page, docs/composites.md.")] = False,
    catalog: Catalogs = None,
) -> None:
    """Lists every composite: declaration, formula, how many rules recover it."""
    from patcomp.commands.composites_page import composites_page, recovered_by

    rules = rules_with(catalog)
    if markdown:
        print(composites_page(rules))
        return
    table = Table("composite", "inputs", "attributes", "rules", "computes")
    for item, recovering in recovered_by(rules).items():
        formula = item.doc.partition("\n")[0]
        table.add_row(item.name, ", ".join(item.inputs), ", ".join(item.attributes), str(len(recovering)), formula)
    wide_console().print(table, markup=False)


def catalog_page(rules: Iterable[Rule]) -> str:
    """The rules as a Markdown page, a table for each stage."""
    listed = list(rules)
    lines = ["# The rules", "", "Made by `patcomp catalog list --markdown > docs/catalog.md`."]
    for stage in _stage_names():
        chosen = [rule for rule in listed if rule.stage == stage]
        if not chosen:
            continue
        lines += ["", f"## {stage}: {len(chosen)} rules", "", "| rule | matches | file | does |", "|---|---|---|---|"]
        for rule in chosen:
            file = rule.source.partition(":")[0]
            summary = _summary(rule).replace("|", "\\|").replace("*", "\\*")
            lines.append(f"| {rule.name} | `{_subject(rule)}` | `{file}` | {summary} |")
    return "\n".join(lines)


def ops(
    pattern: Annotated[
        str, typer.Argument(help="One op with its overloads, aten.add, or a shell pattern of names: 'aten.add*'.")
    ] = "*",
    markdown: Annotated[bool, typer.Option(help="Print a Markdown page, docs/supported-ops.md.")] = False,
) -> None:
    """Lists the supported PyTorch ops: how they are converted, element types, ranks and limits."""
    from patcomp.commands.ops_page import ops_page, ranks_text
    from patcomp.frontend_torch.op_names import overloads_of
    from patcomp.frontend_torch.support import supported_ops, sweep_shares

    found = supported_ops()
    if markdown:
        print(ops_page(found, sweep_shares()))
        return
    if any(character in pattern for character in "*?["):
        found = [item for item in found if fnmatch(item.op, pattern) or fnmatch(item.op, f"aten.{pattern}")]
        if not found:
            raise PatcompError(f"no supported op has a name like {pattern}")
    else:
        overloads = overloads_of(pattern)
        found = [item for item in found if item.op in overloads]
        others = ", ".join(op for op in overloads if op not in [item.op for item in found])
        if not found:
            raise PatcompError(f"{others}: PyTorch has it, but no rule or decomposition takes it")
        if others:
            say(f"not converted: {others}")
    table = Table("op", "how", "element types", "ranks", "limits")
    for support in found:
        cells = (", ".join(support.how), ", ".join(support.dtypes), ranks_text(support.ranks))
        table.add_row(support.op, *cells, "; ".join(support.limits))
    wide_console().print(table, markup=False)
    print(counted(len(found), "op"))


def _subject(rule: Rule) -> str:
    """The ops that a procedural rule takes, or those in the pattern of a declarative one, its root first."""
    from patcomp.patterns.pattern import largest

    if not rule.is_declarative:
        return ", ".join(rule.ops)
    names = [node.spec.name for node in largest(rule.graph.root).values()]
    return " of ".join(dict.fromkeys(names))


def _summary(rule: Rule) -> str:
    return rule.doc.partition("\n")[0]


def _stage_names() -> list[str]:
    from patcomp.rewrites import STAGES

    return ["import", *(stage.name for stage in STAGES)]

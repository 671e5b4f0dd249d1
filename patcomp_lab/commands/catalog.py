"""`patcomp catalog` and `patcomp ops`: list the rules and the ops that they take."""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from inspect import cleandoc
from textwrap import shorten
from typing import Annotated

import typer

from patcomp.commands.common import (
    ANSWER_IS_NO,
    Catalogs,
    UsageError,
    counted,
    load_catalogs,
    rule_count,
    rules_with,
    say,
)
from patcomp.commands.tables import print_table
from patcomp.errors import PatcompError
from patcomp_lab.commands.pages import Markdown, write_pages


def list_rules(
    stage: Annotated[str | None, typer.Option(help="Only the rules of this stage.")] = None,
    markdown: Markdown = None,
    catalog: Catalogs = None,
) -> None:
    """List every rule: name, stage, matched ops, place of declaration and description.

    $ patcomp catalog list
    """
    from patcomp.patterns import Stage
    from patcomp_lab.commands.rules_page import rules_pages, subject, summary
    from patcomp_lab.proof.data_rules import is_data

    if stage is not None and stage not in list(Stage):
        raise UsageError(f"no rule has the stage {stage!r}; there are {', '.join(Stage)}")
    rules = [rule for rule in rules_with(catalog) if stage in (None, rule.stage)]
    if markdown is not None:
        write_pages(markdown, rules_pages(rules))
        return
    print_table(
        ["rule", "stage", "matches", "declared at", "does"],
        [(rule.name, rule.stage, subject(rule), rule.source, summary(rule)) for rule in rules],
    )
    rewriting = [rule for rule in rules if rule.stage is not Stage.DECOMPOSE]
    data = sum(map(is_data, rewriting))
    print(f"{rule_count(rules)}; {data} of {len(rewriting)} rules are data: a pattern or a formula without branches")


def show_rule(
    name: Annotated[str, typer.Argument(help="The rule's name, as `patcomp catalog list` shows it.")],
    catalog: Catalogs = None,
) -> None:
    """Show one rule: its description, what it matches, its examples, its conditions.

    $ patcomp catalog show rms_norm
    """
    from patcomp_lab.commands.rules_page import subject

    rules = rules_with(catalog)
    try:
        rule = rules[name]
    except KeyError as error:
        raise UsageError(error.args[0]) from None
    print(f"{rule.name}: a rule of the {rule.stage} stage, declared at {rule.source}")
    print(f"\n{cleandoc(rule.doc) or 'The rule has no description.'}\n")
    print(f"matches:    {subject(rule)}")
    print(f"size:       {rule.size}, priority {rule.priority}")
    for item in rule.examples if not rule.is_drawn else ():
        given = [*map(repr, item.args), *(f"{key}={value!r}" for key, value in item.kwargs.items())]
        print(f"example:    {item.op or rule.ops[0]}({', '.join(given)})")
    if not rule.is_declarative:
        return
    print(f"becomes:    {shorten(str(rule.to), 200)}")
    for condition in rule.graph.conditions:
        print(f"where:      {shorten(condition.text, 200)}")
    for capture, value in (rule.example or {}).items():
        print(f"example:    {capture} = {value!r}")


def check_catalog(catalog: Catalogs = None) -> None:
    """Check the declarations: unique names, targets that exist, rules that can fire and match their own examples."""
    from patcomp.patterns import RuleSet
    from patcomp.patterns.user_catalogs import rules_of
    from patcomp.questions.reach import check_reach
    from patcomp_lab.proof.near_misses import self_tests

    everything = rules_with(catalog)  # this also loads patcomp's composites, which rules of users may build
    given = load_catalogs(catalog)
    rules = RuleSet(rule for module in given for rule in rules_of(module)) if catalog else everything
    findings: list[str] = []
    for rule in rules:
        try:
            check_reach(rule)
            if rule.is_drawn:
                self_tests(rule)[0].run()
        except (PatcompError, AssertionError) as error:
            findings.append(str(error))
    print("\n".join([*findings, f"{rule_count(list(rules))}, {counted(len(findings), 'finding')}"]))
    if findings:
        sys.exit(ANSWER_IS_NO)


def list_composites(
    markdown: Markdown = None,
    catalog: Catalogs = None,
) -> None:
    """List every composite: declaration, formula, how many rules recover it."""
    from patcomp_lab.commands.composites_page import composites_pages, recovered_by

    rules = rules_with(catalog)
    if markdown is not None:
        write_pages(markdown, composites_pages(rules))
        return
    rows = [
        (item.name, ", ".join(item.inputs), ", ".join(item.attributes), str(len(found)), item.doc.partition("\n")[0])
        for item, found in recovered_by(rules).items()
    ]
    print_table(["composite", "inputs", "attributes", "rules", "computes"], rows)


def list_functions(
    pattern: Annotated[str, typer.Argument(help="A shell pattern of names: 'reduce_*'.")] = "*",
    markdown: Markdown = None,
) -> None:
    """List the functions that build Core AI ops, `c.NAME(...)`: parameters, meaning and an example."""
    from patcomp_lab.commands.functions_page import authoring_functions, example_of, functions_pages, signature_of

    if markdown is not None:
        write_pages(markdown, functions_pages())
        return
    found = {
        name: row
        for name, (row, names) in authoring_functions().items()
        if any(fnmatch(known, pattern) for known in (name, *names))
    }
    if not found:
        raise UsageError(f"no authoring function has a name like {pattern}")
    rows = [(f"c.{name}({signature_of(name, row)})", row.doc, example_of(name, row)) for name, row in found.items()]
    print_table(["function", "computes", "example"], rows)


def list_pattern_ops(
    markdown: Markdown = None,
    catalog: Catalogs = None,
) -> None:
    """List the ops in the patterns of rules, `a.NAME(...)`, each as a rule writes it."""
    from patcomp_lab.commands.matched_page import matched_pages, pattern_call, uses_of_ops

    rules = rules_with(catalog)
    if markdown is not None:
        write_pages(markdown, matched_pages(rules))
        return
    found = sorted(uses_of_ops(rules).items())
    print_table(
        ["op", "rules", "as a pattern"], [(op, str(len(uses)), pattern_call(uses[0][0])) for op, (_, uses) in found]
    )


def ops(
    pattern: Annotated[
        str, typer.Argument(help="One op with its overloads, aten.add, or a shell pattern of names: 'aten.add*'.")
    ] = "*",
    markdown: Markdown = None,
) -> None:
    """List the supported PyTorch ops: how they are converted, element types, ranks and limits.

    $ patcomp ops softmax
    """
    from patcomp.frontend_torch.op_names import may_draw, overloads_of
    from patcomp.frontend_torch.support import supported_ops, sweep_shares
    from patcomp_lab.commands.ops_page import ops_pages, ranks_text

    found = supported_ops()
    if markdown is not None:
        write_pages(markdown, ops_pages(found, sweep_shares()))
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
            drawn = "; --random inputs may make its random numbers inputs of a program" * any(map(may_draw, overloads))
            raise PatcompError(f"{others}: PyTorch has it, but no rule or decomposition converts it{drawn}")
        if others:
            say(f"not converted: {others}")
    print_table(
        ["op", "how", "element types", "ranks", "limits"],
        [
            (item.op, ", ".join(item.how), ", ".join(item.dtypes), ranks_text(item.ranks), "; ".join(item.limits))
            for item in found
        ],
    )
    print(counted(len(found), "op"))

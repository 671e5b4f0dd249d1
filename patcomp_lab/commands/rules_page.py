"""The pages of all rules: `docs/generated/catalog.md` and those that it lists."""

from __future__ import annotations

from collections.abc import Iterable

from patcomp.commands.tables import escaped, markdown_table
from patcomp.patterns import Rule, Stage
from patcomp.patterns.pattern import largest
from patcomp_lab.commands.pages import Section, page_rows, pages


def rules_pages(rules: Iterable[Rule]) -> dict[str, str]:
    """The pages of the rules, a table for each stage."""
    from patcomp_lab.proof.table import row_of  # imports PyTorch, which the terminal's table of rules does not need

    listed = list(rules)
    sections = []
    for stage in Stage:
        found = [rule for rule in listed if rule.stage == stage]
        cells = [
            (
                rule.name,
                f"`{subject(rule)}`",
                f"`{rule.source.partition(':')[0]}`",
                escaped(summary(rule)),
                row.verdict if (row := row_of(rule)) else "",
            )
            for rule in found
        ]
        if found:
            table = markdown_table(["rule", "matches", "file", "does", "proof"], cells)
            head, entries = page_rows(table, [rule.name for rule in found])
            sections.append(Section(stage, f"Rules of the {stage} stage", "rule", head, entries))
    opening = [
        "Made by `patcomp catalog list --markdown docs/generated`. [Proofs](../proofs.md) explains the proofs.",
    ]
    return pages("catalog", "The rules", opening, sections)


def subject(rule: Rule) -> str:
    """The ops of a procedural rule, or the ops in the pattern of a declarative rule, its root first."""
    if not rule.is_declarative:
        return ", ".join(rule.ops)
    names = [node.spec.name for node in largest(rule.graph.root).values()]
    return " of ".join(dict.fromkeys(names))


def summary(rule: Rule) -> str:
    """The first line of a rule's description."""
    return rule.doc.partition("\n")[0]

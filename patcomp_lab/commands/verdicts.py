"""`patcomp catalog verdicts`: what proofs say of each rule of patcomp's catalogs, or of a user's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from patcomp.commands.common import (
    Catalogs,
    Modules,
    UsageError,
    counted,
    hide_export_warnings,
    import_modules,
    load_catalogs,
    say,
)
from patcomp.commands.tables import print_table

if TYPE_CHECKING:
    from patcomp.patterns import Rule, RuleSet


def list_verdicts(
    stage: Annotated[str | None, typer.Option(help="Only the rules of this stage.")] = None,
    update: Annotated[bool, typer.Option(help="Prove the rules whose file changed, and write the table.")] = False,
    anew: Annotated[
        bool,
        typer.Option(
            help="With --update: prove all rules, also of files that did not change, but not those of absent libraries."
        ),
    ] = False,
    catalog: Catalogs = None,
    modules: Modules = None,
) -> None:
    """Say for each rule of patcomp's catalogs, or of those that are named, whether it is proved, and how."""
    from patcomp.patterns import RuleSet
    from patcomp.patterns.user_catalogs import rules_of
    from patcomp_lab.proof import table
    from patcomp_lab.proof.op_calls import of_absent_library
    from patterns_catalog import all_rules, default_rules

    import_modules(modules)
    rules, compiling = all_rules(), default_rules()
    if catalog:
        given = load_catalogs(catalog)
        for module in given:
            if not hasattr(module, "__path__") or "." in module.__name__:
                raise UsageError(
                    f"{module.__name__} is no package, so that it has no table of verdicts; patcomp rule test proves "
                    "the rules of a file"
                )
        rules = RuleSet(rule for module in given for rule in rules_of(module))
        compiling = compiling.preceded_by(rules, override=True)
    if update:
        hide_export_warnings()
        anew_of = {rule.name for rule in rules if stage in (None, rule.stage) and not of_absent_library(rule)}
        _update(rules, compiling, anew_of if anew else set())
    listed = [(rule, table.row_of(rule)) for rule in rules if stage in (None, rule.stage)]
    print_table(
        ["rule", "stage", "verdict", "programs", "remark"],
        [
            (rule.name, rule.stage, *((row.verdict, str(row.programs), row.remark) if row else ("", "", "")))
            for rule, row in listed
        ],
    )
    for name, count in Counter(row.verdict if row else "no verdict yet" for _, row in listed).most_common():
        print(f"{counted(count, 'rule')}: {name}")


def _update(rules: RuleSet, compiling: RuleSet, anew: set[str]) -> None:
    """Prove the rules whose file changed, or whose names are in `anew`, and write the table of each package."""
    from patcomp_lab.proof import table

    packages: dict[Path, list[Rule]] = {}
    for rule in rules:
        if (folder := table.folder_of(rule)) is not None:
            packages.setdefault(folder, []).append(rule)
    for folder, of_package in packages.items():
        kept = {name: row for name, row in table.read_table(folder).items() if name not in anew}
        rows = table.updated(of_package, compiling, kept, lambda row: say(f"{row.rule}: {row.verdict}"))
        table.write(folder, rows)

"""`patcomp catalog verdicts`: what proofs say of each rule of patcomp's catalog."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from patcomp.commands.common import Modules, counted, import_modules, quiet, say
from patcomp.commands.tables import print_table


def list_verdicts(
    stage: Annotated[str | None, typer.Option(help="Only the rules of this stage.")] = None,
    update: Annotated[bool, typer.Option(help="Prove the rules whose file changed, and write the table.")] = False,
    anew: Annotated[
        bool,
        typer.Option(
            help="With --update: prove all rules, also of files that did not change, but not those of absent libraries."
        ),
    ] = False,
    modules: Modules = None,
) -> None:
    """Say for each rule of patcomp's catalog whether it is proved, and how."""
    from patcomp_lab.proof import table
    from patcomp_lab.proof.op_calls import of_absent_library
    from patterns_catalog import all_rules, default_rules

    import_modules(modules)
    rows = table.read()
    if update:
        quiet()
        proved_anew = {rule.name for rule in all_rules() if stage in (None, rule.stage) and not of_absent_library(rule)}
        kept = {name: row for name, row in rows.items() if not (anew and name in proved_anew)}
        made = table.updated(list(all_rules()), default_rules(), kept, lambda row: say(f"{row.rule}: {row.verdict}"))
        table.PATH.write_text(table.text(made))
        rows = {row.rule: row for row in made}
    listed = [(rule, rows.get(rule.name)) for rule in all_rules() if stage in (None, rule.stage)]
    print_table(
        ["rule", "stage", "verdict", "programs", "remark"],
        [
            (rule.name, rule.stage, *((row.verdict, str(row.programs), row.remark) if row else ("", "", "")))
            for rule, row in listed
        ],
    )
    for name, count in Counter(row.verdict if row else "no verdict yet" for _, row in listed).most_common():
        print(f"{counted(count, 'rule')}: {name}")

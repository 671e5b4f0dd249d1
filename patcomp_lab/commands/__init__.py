"""The subcommands of the laboratory: the catalog and its rules, their tests, lints, proofs and verdicts."""

from __future__ import annotations

import typer

from patcomp.commands.help import App
from patcomp.commands.packages import Commands

_RULES = "Write and prove rules"


class LabCommands(Commands):
    """`patcomp catalog`, `rule`, `lint-catalog`, `ops` and `prove`."""

    def add_to(self, app: typer.Typer) -> None:
        from patcomp_lab.commands import catalog, lint, proofs, rule, verdicts, watch

        of_catalogs = App(help="Inspect the catalog of rules.")
        of_catalogs.command("list")(catalog.list_rules)
        of_catalogs.command("show")(catalog.show_rule)
        of_catalogs.command("check")(catalog.check_catalog)
        of_catalogs.command("composites")(catalog.list_composites)
        of_catalogs.command("functions")(catalog.list_functions)
        of_catalogs.command("pattern-ops")(catalog.list_pattern_ops)
        of_catalogs.command("verdicts")(verdicts.list_verdicts)
        of_rules = App(help="Write and test new rules.")
        of_rules.command("new")(rule.new_rule)
        of_rules.command("test")(rule.check_rules)
        of_rules.command("watch")(watch.watch_rules)
        app.add_typer(of_catalogs, name="catalog", rich_help_panel=_RULES)
        app.add_typer(of_rules, name="rule", rich_help_panel=_RULES)
        app.command(rich_help_panel=_RULES)(proofs.prove)
        app.command(rich_help_panel=_RULES)(catalog.ops)
        app.command("lint-catalog", rich_help_panel=_RULES)(lint.lint_catalog)


COMMANDS = LabCommands()

"""The subcommands of the laboratory: the catalog and its rules, their tests, lints, proofs and verdicts."""

from __future__ import annotations

import typer

from patcomp.commands.packages import Commands


class LabCommands(Commands):
    """`patcomp catalog`, `rule`, `lint-catalog`, `ops` and `prove`."""

    def add_to(self, app: typer.Typer) -> None:
        from patcomp_lab.commands import catalog, lint, proofs, rule, verdicts, watch

        of_catalogs = typer.Typer(help="Inspect the catalog of rules.", no_args_is_help=True, rich_markup_mode=None)
        of_catalogs.command("list")(catalog.list_rules)
        of_catalogs.command("show")(catalog.show_rule)
        of_catalogs.command("check")(catalog.check_catalog)
        of_catalogs.command("composites")(catalog.list_composites)
        of_catalogs.command("functions")(catalog.list_functions)
        of_catalogs.command("pattern-ops")(catalog.list_pattern_ops)
        of_catalogs.command("verdicts")(verdicts.list_verdicts)
        of_rules = typer.Typer(help="Write and test new rules.", no_args_is_help=True, rich_markup_mode=None)
        of_rules.command("new")(rule.new_rule)
        of_rules.command("test")(rule.check_rules)
        of_rules.command("watch")(watch.watch_rules)
        app.add_typer(of_catalogs, name="catalog")
        app.add_typer(of_rules, name="rule")
        app.command()(proofs.prove)
        app.command()(catalog.ops)
        app.command("lint-catalog")(lint.lint_catalog)


COMMANDS = LabCommands()

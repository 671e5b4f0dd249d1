"""The `patcomp` command: convert, inspect the catalog, write and test rules, run single stages, ask why."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Annotated

import typer
from rich.console import Console

from patcomp import __version__
from patcomp.commands import (
    assets,
    audit,
    catalog,
    comparison,
    compress,
    convert,
    images,
    language,
    lint,
    opt,
    questions,
    rule,
    speech,
    verdicts,
    watch,
)
from patcomp.commands.common import UsageError, say
from patcomp.errors import ConversionWarning, PatcompError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"patcomp {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
    log_level: Annotated[
        str, typer.Option(help="Log to standard error: debug, info, warning or error. At info, each stage is logged.")
    ] = "warning",
) -> None:
    """Convert PyTorch programs to Core AI."""
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise UsageError(f"--log-level must be debug, info, warning or error, got {log_level}")
    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("patcomp").setLevel(level)


catalog_app = typer.Typer(help="Inspect the catalog of rules.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(catalog_app, name="catalog")
rule_app = typer.Typer(help="Write and test new rules.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(rule_app, name="rule")

app.command()(convert.convert)
app.command("convert-lm")(language.convert_lm)
app.command("convert-vlm")(language.convert_vlm)
app.command()(language.generate)
app.command()(speech.transcribe)
app.command("generate-image")(images.generate_image)
app.command()(assets.inspect)
app.command()(assets.run)
app.command()(comparison.verify)
app.command()(comparison.diff)
app.command()(audit.audit)
app.command()(compress.compress)
app.command()(questions.demo)
app.command()(questions.explain)
app.command("why-not")(questions.why_not)
app.command()(catalog.ops)
app.command()(opt.opt)
app.command("lint-catalog")(lint.lint_catalog)
catalog_app.command("list")(catalog.list_rules)
catalog_app.command("show")(catalog.show_rule)
catalog_app.command("check")(catalog.check_catalog)
catalog_app.command("composites")(catalog.list_composites)
catalog_app.command("functions")(catalog.list_functions)
catalog_app.command("pattern-ops")(catalog.list_pattern_ops)
catalog_app.command("verdicts")(verdicts.list_verdicts)
rule_app.command("new")(rule.new_rule)
rule_app.command("test")(rule.check_rules)
rule_app.command("watch")(watch.watch_rules)


def main() -> None:
    """Run the command line; an error is one message on standard error.

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage, 3 if the answer is no (`ANSWER_IS_NO`).
    """
    try:
        with warnings.catch_warnings():
            shown = warnings.showwarning
            warnings.showwarning = lambda message, kind, *place: (
                say(f"warning: {message}") if issubclass(kind, ConversionWarning) else shown(message, kind, *place)
            )
            app()
    except (PatcompError, OSError, LookupError, ValueError) as error:
        message = error.args[0] if isinstance(error, KeyError) else error  # str() would quote it
        Console(stderr=True).print(f"error: {message}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    main()

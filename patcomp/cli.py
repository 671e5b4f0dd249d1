"""The `patcomp` command: convert, run, verify, ask why; and what installed packages add to it."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import Annotated

import typer

from patcomp import __version__
from patcomp.commands import (
    assets,
    audit,
    batch,
    bench,
    comparison,
    compress,
    convert,
    defects,
    execution,
    explained,
    opt,
    questions,
    reproducing,
    running,
    verification,
)
from patcomp.commands.common import UsageError, say
from patcomp.commands.help import CHECK, CONVERT, LOOK, App, set_log_level
from patcomp.commands.packages import packages
from patcomp.commands.recipes import with_recipe
from patcomp.emit.toolchain.runtime_lines import own_standard_error
from patcomp.errors import ConversionWarning, PatcompError, UnsupportedError, help_for

app = App()


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
        str | None,
        typer.Option(
            help="Log to standard error: debug, info, warning or error, by default warning. At info, each stage is "
            "logged. Every command takes it.",
            callback=set_log_level,
            expose_value=False,
        ),
    ] = None,
) -> None:
    """Convert PyTorch programs to Core AI.

    $ patcomp convert nets.py:net -o net.aimodel --verify
    $ patcomp convert Qwen3-0.6B -o bundles/qwen3
    $ patcomp convert --help
    """


app.command(rich_help_panel=CONVERT)(with_recipe(convert.convert))
app.command(rich_help_panel=CONVERT)(batch.batch)
app.command(rich_help_panel=CONVERT)(with_recipe(compress.compress))
app.command(rich_help_panel=CONVERT)(reproducing.reproduce)
app.command(rich_help_panel=CONVERT)(questions.demo)
app.command(
    "exec",
    rich_help_panel=CONVERT,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)(execution.execute)
app.command(rich_help_panel=CHECK)(verification.verify)
app.command(rich_help_panel=CHECK)(running.run)
app.command(rich_help_panel=CHECK)(bench.bench)
app.command(rich_help_panel=CHECK)(audit.audit)
app.command(rich_help_panel=LOOK)(assets.inspect)
app.command(rich_help_panel=LOOK)(comparison.diff)
app.command(rich_help_panel=LOOK)(questions.explain)
app.command("why-not", rich_help_panel=LOOK)(questions.why_not)
app.command("help", rich_help_panel=LOOK)(explained.explain_error)
app.command(rich_help_panel=LOOK)(opt.opt)
app.command(rich_help_panel=LOOK)(defects.defects)


@cache
def whole_command() -> typer.Typer:
    """The command with the subcommands of installed packages.

    Raises:
        PatcompError: a package cannot be loaded.
    """
    for package in packages():
        package.add_to(app)
    return app


_INTERRUPTED = 130


def main() -> None:
    """Run the command line; an error is one message on standard error.

    Exit codes: 0 for success, 1 for an error, 2 for wrong usage, 3 if the answer is no (`ANSWER_IS_NO`).

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    with own_standard_error():
        try:
            with warnings.catch_warnings():
                shown = warnings.showwarning
                warnings.showwarning = lambda message, kind, *place: (
                    say(f"warning: {message}") if issubclass(kind, ConversionWarning) else shown(message, kind, *place)
                )
                whole_command()(prog_name="patcomp")
        except SystemExit as ending:
            if ending.code == _INTERRUPTED:  # as typer ends after Ctrl-C
                raise KeyboardInterrupt from None
            raise
        except (PatcompError, OSError, LookupError, ValueError) as error:
            say(f"error: {_sentence(error)}\nmore: {help_for(type(error))}")
            sys.exit(2 if isinstance(error, UsageError) else 1)


def _sentence(error: Exception) -> str:
    """The message of an exception, as a sentence with a subject."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        told = {
            FileNotFoundError: "there is no file or folder {}",
            IsADirectoryError: "{} is a folder, and not a file",
            NotADirectoryError: "a part of the path {} is a file, and not a folder",
            PermissionError: "you have no permission for {}",
        }
        return told.get(type(error), f"{{}}: {error.strerror}").format(error.filename)
    if isinstance(error, UnsupportedError):
        return error.without_code()
    # str() would quote that of a KeyError
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error)

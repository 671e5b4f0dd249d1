"""`patcomp help`: the help of a command, or the cause and the remedy of a kind of error."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from patcomp.commands.common import UsageError
from patcomp.errors import did_you_mean, explanations


def explain_error(
    context: typer.Context,
    what: Annotated[
        str, typer.Argument(help="A kind of error, such as UnsupportedError, or a command.", show_default=False)
    ] = "",
) -> None:
    """Explain an error: its cause, and what to do. Or show the help of a command.

    Without a name, it shows the help of patcomp and the kinds of errors.

    $ patcomp help UnsupportedError
    $ patcomp help convert
    """
    whole: Any = context.find_root()
    command = whole.command.get_command(whole, what)
    if what in explanations():
        print(f"{what}\n\n{_plain(explanations()[what])}")
    elif command is not None:
        print(command.get_help(type(whole)(command, info_name=what, parent=whole)))
    elif what:
        known = [*explanations(), *whole.command.list_commands(whole)]
        raise UsageError(f"{what} is no kind of error and no command{did_you_mean(what, known)}")
    else:
        print(f"{whole.get_help()}\n\nKinds of errors: {', '.join(explanations())}")


def _plain(section: str) -> str:
    """A section for a terminal: links as the titles and names of pages."""
    linked = re.sub(r"\[([^]]*)\]\(\.\./([^)]*)\)", r"\1 [\2]", section)
    return linked.replace("**", "").strip()

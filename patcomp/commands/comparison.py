"""`patcomp diff`: compare two programs by their structure."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from patcomp.commands.common import ANSWER_IS_NO, AsJson, check_page, command_line, print_json, say, tell, write_page
from patcomp.commands.models import Anything, ModelOptions
from patcomp.commands.options import takes_options
from patcomp.commands.programs import Hashed, program_of
from patcomp.commands.progress import working
from patcomp.commands.subjects import CONVERTED, MODELS, subject_of


@takes_options
def diff(
    first: Anything,
    second: Annotated[str, typer.Argument(help="The same.", show_default=False)],
    html: Annotated[
        Path | None, typer.Option(help="Write both programs side by side to this file, to look at in a browser.")
    ] = None,
    json: AsJson = False,
    *,
    options: ModelOptions,
) -> None:
    """Show the ops and weights in which two programs differ; names of values do not count.

    The exit code is 3 if they differ.

    $ patcomp diff old.aimodel new.aimodel
    $ patcomp diff nets.py:net net.aimodel --html diff.html
    """
    from patcomp.ir.difference import difference
    from patcomp.ir.weights import stored_weights

    if html is not None:
        check_page(html)
    named = {name: subject_of(name, "diff", (*MODELS, *CONVERTED)) for name in (first, second)}
    has_model = any(found in MODELS for found in named.values())

    def read(name: str) -> Hashed:
        for_this = options if named[name] in MODELS or not has_model else ModelOptions()
        return program_of(name, "diff", for_this)

    with working(f"comparing {first} and {second}"):
        (one, its_values), (other, other_values) = read(first), read(second)
        found = difference(one, other, (its_values, other_values))
    for name, module, values in ((first, one, its_values), (second, other, other_values)):
        if not values and any(stored_weights(module)):
            say(f"note: the values of weights are not compared, because {name} has none")
    if html is not None:
        from patcomp.emit.files.metadata import creation_day
        from patcomp.report import difference_page

        page = difference_page(
            (first, second), (one, other), (its_values, other_values), date=creation_day(), command=command_line()
        )
        write_page(html, page)
        say(f"report: {html}")
    if json:
        print_json({"same": not found, **asdict(found)})
    else:
        tell(found)
    if found:
        sys.exit(ANSWER_IS_NO)

"""`patcomp audit`: what a device would not like about a program."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from patcomp.commands.common import ANSWER_IS_NO, AsJson, Catalogs, Modules, print_json
from patcomp.commands.comparison import program_of
from patcomp.commands.convert import target_of
from patcomp.commands.models import Trusted


def audit(
    program: Annotated[
        str, typer.Argument(help="An asset, a text (MLIR), or a model, which is converted for the target.")
    ],
    target: Annotated[str, typer.Option(help="cpu, gpu or neural_engine.")],
    without: Annotated[
        list[str] | None, typer.Option(help="Leave a rule or step of the target out; may be given several times.")
    ] = None,
    modules: Modules = None,
    catalog: Catalogs = None,
    trusted: Trusted = False,
    json: AsJson = False,
) -> None:
    """Show what a device would not like about a program, where it is, and which rule would mend it.

    The exit code is 3 if there is more than advice.
    """
    from patcomp.questions.audit import audit as audited
    from patterns_catalog import default_rules

    chosen = target_of(target, without)
    assert chosen is not None
    module, _ = program_of(program, modules, catalog, trusted, target=chosen)
    found = audited(module, chosen, default_rules())
    if json:
        print_json(found.to_dict())
    else:
        print(found)
    if not found.clean:
        sys.exit(ANSWER_IS_NO)

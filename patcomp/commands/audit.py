"""`patcomp audit`: what a device would not like about a program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from patcomp.commands.common import ANSWER_IS_NO, AsJson, Catalogs, Modules, UsageError, load_catalogs, print_json
from patcomp.commands.comparison import program_of
from patcomp.commands.convert import target_of
from patcomp.commands.models import Trusted, load_source

if TYPE_CHECKING:
    from patcomp.questions.audit import Audit
    from patcomp.targets import Target


def audit(
    program: Annotated[
        str, typer.Argument(help="An asset, a text (MLIR), or a model, which is converted for the target.")
    ],
    target: Annotated[str, typer.Option(help="cpu, gpu or neural_engine.")],
    without: Annotated[
        list[str] | None, typer.Option(help="Leave a rule or step of the target out; may be given several times.")
    ] = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="Run a model with its example inputs, and name the ops that overflow float16."),
    ] = False,
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
    if run:
        found = _run(program, modules, catalog, trusted, chosen)
    else:
        module, _ = program_of(program, modules, catalog, trusted, target=chosen)
        found = audited(module, chosen, default_rules())
    if json:
        print_json(found.to_dict())
    else:
        print(found)
    if not found.clean:
        sys.exit(ANSWER_IS_NO)


def _run(name: str, modules: list[str] | None, catalogs: list[str] | None, trusted: bool, target: Target) -> Audit:
    """The audit of a model that is converted for the target, and run."""
    from patcomp import TorchConverter

    if Path(name).is_dir() or name.endswith(".mlir"):
        raise UsageError(f"--run takes a model, which has example inputs; {name} is a program")
    source = load_source(name, modules, trusted=trusted)
    converter = TorchConverter(catalog=load_catalogs(catalogs))
    return converter.add_exported_program(source.exported).to_coreai(target=target).audit(target, source.inputs)

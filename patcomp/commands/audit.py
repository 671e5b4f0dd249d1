"""`patcomp audit`: list the constructs of a program that do not suit a device."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from patcomp.commands.common import (
    ANSWER_IS_NO,
    AsJson,
    Catalogs,
    Fix,
    Modules,
    UsageError,
    load_catalogs,
    print_json,
    sizes_in,
)
from patcomp.commands.comparison import program_of
from patcomp.commands.convert import target_of
from patcomp.commands.models import Trusted, load_source

if TYPE_CHECKING:
    from patcomp.questions.audit import Audit
    from patcomp.targets import Target


def audit(
    program: Annotated[
        str, typer.Argument(help="An asset, a text (MLIR), a report, or a model, which is converted for the target.")
    ],
    target: Annotated[str, typer.Option(help="cpu, gpu, neural_engine, or one of a catalog.")],
    without: Annotated[
        list[str] | None, typer.Option(help="Leave a rule or step of the target out; may be given several times.")
    ] = None,
    fix: Fix = None,
    run: Annotated[
        bool,
        typer.Option("--run", help="Run a model with its example inputs, and name the ops that overflow float16."),
    ] = False,
    modules: Modules = None,
    catalog: Catalogs = None,
    trusted: Trusted = False,
    json: AsJson = False,
) -> None:
    """List the constructs of a program that do not suit a device, with their places and the rules that rewrite them.

    The exit code is 3 if there is more than advice.
    """
    from patcomp.questions.audit import audit as audited
    from patterns_catalog import default_rules

    chosen, sizes = target_of(target, without, catalog), sizes_in(fix)
    assert chosen is not None
    if run:
        found = _run(program, modules, catalog, trusted, chosen, sizes)
    else:
        module, _ = program_of(program, modules, catalog, trusted, target=chosen, fixed=sizes)
        found = audited(module, chosen, default_rules())
    if json:
        print_json(found.to_dict())
    else:
        print(found)
    if not found.clean:
        sys.exit(ANSWER_IS_NO)


def _run(
    name: str,
    modules: list[str] | None,
    catalogs: list[str] | None,
    trusted: bool,
    target: Target,
    sizes: Mapping[str, int],
) -> Audit:
    """The audit of a model that is converted for the target, and run."""
    from patcomp import TorchConverter

    if Path(name).is_dir() or name.endswith((".mlir", ".html")):
        raise UsageError(f"--run takes a model, which has example inputs; {name} is a program")
    source = load_source(name, modules, trusted=trusted)
    converter = TorchConverter(catalog=load_catalogs(catalogs), random="inputs").add_exported_program(source.exported)
    program = converter.to_coreai(target=target, fixed=sizes)
    return program.audit(target, source.inputs_for(program))

"""`patcomp convert`, `explain`, `why-not`, `demo`: convert a model, and ask about the conversion."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from patcomp.commands.common import Catalogs, Modules, UsageError, load_catalogs, quiet, say
from patcomp.commands.models import Model, Train, Trusted, convert_model, load_model
from patcomp.emit.replacement import check_target, check_writable
from patcomp.errors import PatcompError

STANDARD_OUTPUT = Path("-")


def convert(
    model: Model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The asset; by default MODEL.aimodel, unless --text is given.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="Write the MLIR text to this file; - is standard output.")] = None,
    dump_stages: Annotated[Path | None, typer.Option(help="Write the IR after each stage into this folder.")] = None,
    modules: Modules = None,
    catalog: Catalogs = None,
    recover: Annotated[
        str, typer.Option(help="The composites to recover: all, none, or names separated by commas.")
    ] = "all",
    assume: Annotated[
        list[str] | None,
        typer.Option(help='A fact that rules may rely on, "masked rows are not read"; may be given several times.'),
    ] = None,
    report: Annotated[bool, typer.Option(help="List every composite, its rule and its place in the model.")] = False,
    train: Train = False,
    trusted: Trusted = False,
    force: Annotated[bool, typer.Option("--force", help="Replace any file or folder at the asset's path.")] = False,
    verbose: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    """Convert a model and write it as an asset, as text, or both; the steps are reported on standard error."""
    from patcomp import TorchConverter
    from patcomp.commands.tables import composites_line
    from patcomp.emit.summary import stage_table

    if output is None and text is None:
        output = Path(model.rpartition(".py:")[0] or model).with_suffix(".aimodel")
    _check_outputs(output, text, dump_stages, force)
    program = (
        TorchConverter(catalog=load_catalogs(catalog))
        .add_exported_program(load_model(model, modules, train=train, trusted=trusted))
        .to_coreai(recover=_names(recover), assume=assume or (), dump_ir=dump_stages, verbose=verbose)
    )
    Console(stderr=True).print(stage_table(program.reports))
    say(composites_line(program))
    if report:
        say(str(program.report()))
    if dump_stages is not None:
        say(f"stage dumps: {dump_stages}")
    if text == STANDARD_OUTPUT:
        print(program)
    elif text is not None:
        text.parent.mkdir(parents=True, exist_ok=True)
        text.write_text(f"{program}\n")
        say(f"text:        {text}")
    if output is not None:
        program.save_asset(output, force=force)
        say(f"asset:       {output}")


def _check_outputs(output: Path | None, text: Path | None, dump_stages: Path | None, force: bool) -> None:
    """Check before the conversion, which may take long, that its results can be written.

    Raises:
        OSError, ValueError: one cannot be written to its path.
        PatcompError: `coreai-core` is not installed.
    """
    from patcomp.emit.asset import has_toolchain

    if output is not None:
        check_target(output, force)
        if not has_toolchain():
            raise PatcompError(
                'saving an asset needs coreai-core: pip install "patcomp[coreai]"; --text FILE works without it'
            )
    if text is not None and text != STANDARD_OUTPUT:
        if text.is_dir():
            raise UsageError(f"--text {text} is a folder; name a file, or - for standard output")
        check_writable(text)
    if dump_stages is not None:
        if dump_stages.exists() and not dump_stages.is_dir():
            raise UsageError(f"--dump-stages {dump_stages} is a file; name a folder")
        check_writable(dump_stages)


def _names(recover: str) -> str | list[str]:
    if recover in ("all", "none"):
        return recover
    return [name.strip() for name in recover.split(",") if name.strip()]


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the asset and the stage dumps.")] = Path(
        "out/demo"
    ),
) -> None:
    """Convert a small Llama of transformers, and show the stages, composites and numbers."""
    quiet()
    from patcomp.commands.demo import run_demo

    if not run_demo(Console(), output):
        sys.exit(1)


def explain(
    model: Model,
    what: Annotated[str, typer.Argument(help="A value (%mul_3), an FX node (mul_3) or a source line (model.py:12).")],
    modules: Modules = None,
    catalog: Catalogs = None,
    train: Train = False,
    trusted: Trusted = False,
) -> None:
    """Show which rules made an op of the converted program, and the model's nodes and lines that it comes from."""
    print(convert_model(model, modules, catalog, train=train, trusted=trusted).explain(what))


def why_not(
    rule: Annotated[str, typer.Argument(help="A rule's name, as `patcomp catalog list` shows it.")],
    model: Model,
    modules: Modules = None,
    catalog: Catalogs = None,
    train: Train = False,
    trusted: Trusted = False,
) -> None:
    """Show where a rule came closest to matching, and what prevented the match."""
    print(convert_model(model, modules, catalog, train=train, trusted=trusted).why_not(rule))

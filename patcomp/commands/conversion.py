"""`patcomp convert`, `explain`, `why-not`, `demo`: a model's way through, and questions about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from patcomp.commands.common import Catalogs, Model, Modules, convert_model, load_catalogs, load_model, quiet
from patcomp.errors import PatcompError


def convert(
    model: Model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The asset; by default MODEL.aimodel, unless --text is given.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="Write the MLIR text to this file.")] = None,
    dump_stages: Annotated[Path | None, typer.Option(help="Write the IR after each stage into this folder.")] = None,
    modules: Modules = None,
    catalog: Catalogs = None,
    recover: Annotated[
        str, typer.Option(help="The composites to recover: all, none, or names separated by commas.")
    ] = "all",
    report: Annotated[bool, typer.Option(help="List every composite, its rule and its place in the model.")] = False,
    verbose: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    """Converts a model, and writes it as an asset, as text, or both."""
    from patcomp import TorchConverter
    from patcomp.report import composites_line, has_toolchain, stage_table

    console = Console()
    if output is None and text is None:
        output = Path(model.rpartition(".py:")[0] or model).with_suffix(".aimodel")
    if output is not None and output.suffix != ".aimodel":
        raise PatcompError(f"an asset's path must end in .aimodel, got {str(output)!r}")
    if output is not None and not has_toolchain():
        raise PatcompError(
            'saving an asset needs coreai-core: pip install "patcomp[coreai]"; --text FILE works without it'
        )
    program = (
        TorchConverter(catalog=load_catalogs(catalog))
        .add_exported_program(load_model(model, modules))
        .to_coreai(recover=_names(recover), dump_ir=dump_stages, verbose=verbose)
    )
    console.print(stage_table(program))
    console.print(composites_line(program), highlight=False)
    if report:
        console.print(str(program.report()), markup=False, highlight=False, soft_wrap=True)
    if dump_stages is not None:
        console.print(f"stage dumps: {dump_stages}", highlight=False, soft_wrap=True)
    if text is not None:
        text.write_text(f"{program}\n")
        console.print(f"text:        {text}", highlight=False, soft_wrap=True)
    if output is not None:
        program.save_asset(output)
        console.print(f"asset:       {output}", highlight=False, soft_wrap=True)


def _names(recover: str) -> str | list[str]:
    if recover in ("all", "none"):
        return recover
    return [name.strip() for name in recover.split(",") if name.strip()]


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the asset and the stage dumps.")] = Path(
        "out/demo"
    ),
) -> None:
    """Converts a small Llama of transformers and shows what happened."""
    quiet()
    from patcomp.demo import run_demo

    if not run_demo(Console(), output):
        sys.exit(1)


def explain(
    model: Model,
    what: Annotated[str, typer.Argument(help="A value (%mul_3), an FX node (mul_3) or a source line (model.py:12).")],
    modules: Modules = None,
    catalog: Catalogs = None,
) -> None:
    """Says which rules made an op of the converted program, and from which nodes and lines it came."""
    print(convert_model(model, modules, catalog).explain(what))


def why_not(
    rule: Annotated[str, typer.Argument(help="A rule's name, as `patcomp catalog list` shows it.")],
    model: Model,
    modules: Modules = None,
    catalog: Catalogs = None,
) -> None:
    """Says where a rule came closest to matching, and what was in the way."""
    print(convert_model(model, modules, catalog).why_not(rule))

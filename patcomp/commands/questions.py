"""`patcomp explain`, `why-not`, `demo`: ask about a conversion, and see one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from patcomp.commands.common import ANSWER_IS_NO, Catalogs, Modules, quiet
from patcomp.commands.models import Model, Train, Trusted, convert_model


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the asset and the stage dumps.")] = Path(
        "out/demo"
    ),
) -> None:
    """Convert a small Llama of transformers, and show the stages, composites and numbers."""
    quiet()
    from patcomp.commands.demo import run_demo

    if not run_demo(Console(), output):
        sys.exit(ANSWER_IS_NO)


def explain(
    model: Model,
    what: Annotated[str, typer.Argument(help="A value (%mul_3), an FX node (mul_3) or a source line (model.py:12).")],
    modules: Modules = None,
    catalog: Catalogs = None,
    train: Train = False,
    trusted: Trusted = False,
) -> None:
    """Show which rules made an op of the converted program, and the model's nodes and lines that it comes from.

    Of an asset, only the lines are known.
    """
    if Path(model, "main.mlirb").exists():
        from patcomp.emit.reading import read_asset
        from patcomp.patterns import RuleSet
        from patcomp.questions.programs import explain as explained

        print(explained(read_asset(Path(model))[0], RuleSet(()), what))
        return
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

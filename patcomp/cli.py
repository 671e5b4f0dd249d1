"""The `patcomp` command: convert, inspect the catalog, run single stages, ask why."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from patcomp.errors import PatcompError, StageError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from patcomp import AIProgram
    from patcomp.ir import IRModule
    from patcomp.patterns.rule import Entry

app = typer.Typer(
    help="Converts PyTorch programs to Core AI.", no_args_is_help=True, add_completion=False, rich_markup_mode=None
)
catalog_app = typer.Typer(help="The rules that conversions are made of.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(catalog_app, name="catalog")


def main() -> None:
    """Runs the command line; an error is one message on standard error and exit code 1."""
    try:
        app()
    except (PatcompError, OSError, LookupError, ValueError) as error:
        message = error.args[0] if isinstance(error, KeyError) else error  # str() would quote it
        Console(stderr=True).print(f"error: {message}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


# ---- conversion -----------------------------------------------------------------------------------

Modules = Annotated[
    list[str] | None,
    typer.Option("--import", help="A module to import first, which registers the program's operators or classes."),
]
ModelFile = Annotated[Path, typer.Argument(help="A program saved by torch.export.save.", show_default=False)]


@app.command()
def convert(
    model: ModelFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The asset; by default MODEL.aimodel, unless --text is given.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="Write the MLIR text to this file.")] = None,
    dump_stages: Annotated[Path | None, typer.Option(help="Write the IR after each stage into this folder.")] = None,
    modules: Modules = None,
    recover: Annotated[
        str, typer.Option(help="The composites to recover: all, none, or names separated by commas.")
    ] = "all",
    report: Annotated[bool, typer.Option(help="List every composite, its rule and its place in the model.")] = False,
    verbose: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    """Converts a saved ExportedProgram, and writes it as an asset, as text, or both."""
    from patcomp import TorchConverter
    from patcomp.report import composites_line, has_toolchain, stage_table

    console = Console()
    if output is None and text is None:
        output = model.with_suffix(".aimodel")
    if output is not None and output.suffix != ".aimodel":
        raise PatcompError(f"an asset's path must end in .aimodel, got {str(output)!r}")
    if output is not None and not has_toolchain():
        raise PatcompError(
            'saving an asset needs coreai-core: pip install "patcomp[coreai]"; --text FILE works without it'
        )
    program = (
        TorchConverter()
        .add_exported_program(_load(model, modules or ()))
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


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the asset and the stage dumps.")] = Path(
        "out/demo"
    ),
) -> None:
    """Converts a small Llama of transformers and shows what happened."""
    _quiet()
    from patcomp.demo import run_demo

    if not run_demo(Console(), output):
        sys.exit(1)


def _quiet() -> None:
    """Hides warnings that PyTorch's export raises about itself."""
    import warnings

    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)


def _load(path: Path, modules: Sequence[str]) -> ExportedProgram:
    """The exported program of a file, decomposed.

    Raises:
        PatcompError: the file is not one that `torch.export.save` wrote, or one of the modules that it needs
            cannot be imported.
        FileNotFoundError: there is none.
    """
    import torch

    _quiet()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    for name in modules:
        try:
            import_module(name)
        except ImportError as error:
            raise PatcompError(f"--import {name}: {error}") from error
    reasons = _Reasons()
    loggers = [logging.getLogger(name) for name in _Reasons.LOGGERS]
    for logger in loggers:
        logger.addFilter(reasons)
    try:
        program = torch.export.load(path)
    except Exception as error:
        reason = str(reasons.last or error)
        advice = "\n--import MODULE imports a module that registers a class or an operator first"
        advice = advice if "regist" in reason else ""
        raise PatcompError(f"{path} is not a program that torch.export.save wrote: {reason}{advice}") from error
    finally:
        for logger in loggers:
            logger.removeFilter(reasons)
    return program


class _Reasons(logging.Filter):
    """Keeps what PyTorch logs when it cannot load a program, and its exceptions say only that it could not."""

    LOGGERS = ("torch.export", "torch.export.pt2_archive._package")

    def __init__(self) -> None:
        super().__init__()
        self.last: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Drops the record and keeps its exception."""
        if record.exc_info and record.exc_info[1] is not None:
            self.last = record.exc_info[1]
        return False


# ---- supported ops --------------------------------------------------------------------------------


@app.command()
def ops(
    pattern: Annotated[str, typer.Argument(help="Only ops of such names, a shell pattern: 'aten.add*'.")] = "*",
    markdown: Annotated[bool, typer.Option(help="Print a Markdown page, docs/supported-ops.md.")] = False,
) -> None:
    """Lists the PyTorch ops that are converted: how, with which element types and ranks, and what is refused."""
    from patcomp.frontend_torch.support import supported_ops, sweep_shares
    from patcomp.ops_page import ops_page, ranks_text

    found = supported_ops()
    if markdown:
        print(ops_page(found, sweep_shares()))
        return
    found = [support for support in found if fnmatch(support.op, pattern) or fnmatch(support.op, f"aten.{pattern}")]
    if not found:
        raise PatcompError(f"no supported op is called {pattern}")
    table = Table("op", "how", "element types", "ranks", "limits")
    for support in found:
        cells = (", ".join(support.how), ", ".join(support.dtypes), ranks_text(support.ranks))
        table.add_row(support.op, *cells, "; ".join(support.limits))
    _wide_console().print(table, markup=False)
    print(f"{len(found)} ops")


# ---- the catalog ----------------------------------------------------------------------------------


@catalog_app.command("list")
def list_rules(
    stage: Annotated[str | None, typer.Option(help="Only the rules of this stage.")] = None,
    markdown: Annotated[bool, typer.Option(help="Print a Markdown page, docs/catalog.md.")] = False,
) -> None:
    """Lists every rule: name, stage, what it matches, where it is declared, what it does."""
    from patterns_catalog import default_decompositions, default_rules

    rules = [rule for rule in default_decompositions() + default_rules() if stage in (None, rule.stage)]
    if not rules:
        raise PatcompError(f"no rule has the stage {stage!r}; there are {', '.join(_stage_names())}")
    if markdown:
        print(catalog_page(rules))
        return
    table = Table("rule", "stage", "matches", "declared at", "does")
    for rule in rules:
        table.add_row(rule.name, rule.stage, _subject(rule), rule.source, _summary(rule))
    _wide_console().print(table, markup=False)
    print(f"{len(rules)} rules")


@catalog_app.command("composites")
def list_composites(
    markdown: Annotated[bool, typer.Option(help="Print a Markdown page, docs/composites.md.")] = False,
) -> None:
    """Lists every composite: declaration, formula, how many rules recover it."""
    from patcomp.composites_page import composite_table, composites_page, recovered_by
    from patterns_catalog import default_rules

    rules = default_rules()
    if markdown:
        print(composites_page(rules))
        return
    table = Table("composite", "inputs", "attributes", "rules", "computes")
    rules_of = recovered_by(rules)
    for item in composite_table():
        count = str(len(rules_of.get(item.name, ())))
        formula = item.doc.partition("\n")[0]
        table.add_row(item.name, ", ".join(item.inputs), ", ".join(item.attributes), count, formula)
    _wide_console().print(table, markup=False)


def catalog_page(rules: list[Entry]) -> str:
    """The rules as a Markdown page, a table for each stage."""
    lines = ["# The rules", "", "Made by `patcomp catalog list --markdown > docs/catalog.md`."]
    for stage in _stage_names():
        chosen = [rule for rule in rules if rule.stage == stage]
        if not chosen:
            continue
        lines += ["", f"## {stage}: {len(chosen)} rules", "", "| rule | matches | file | does |", "|---|---|---|---|"]
        for rule in chosen:
            file = rule.source.partition(":")[0]
            summary = _summary(rule).replace("|", "\\|").replace("*", "\\*")
            lines.append(f"| {rule.name} | `{_subject(rule)}` | `{file}` | {summary} |")
    return "\n".join(lines)


def _subject(rule: Entry) -> str:
    """The ops that a procedural rule takes, or those in the pattern of a declarative one, its root first."""
    from patcomp.patterns import Rule
    from patcomp.patterns.rule import largest

    if not isinstance(rule, Rule):
        return ", ".join(rule.ops)
    names = [node.spec.name for node in largest(rule.root).values()]
    return " of ".join(dict.fromkeys(names))


def _summary(rule: Entry) -> str:
    return rule.doc.partition("\n")[0]


def _stage_names() -> list[str]:
    from patcomp.rewrites import STAGES

    return ["import", *(stage.name for stage in STAGES)]


def _wide_console() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = 240  # a pipe has no width to fit
    return console


# ---- text in, text out ----------------------------------------------------------------------------

TextFile = Annotated[Path, typer.Argument(help="MLIR text, a stage dump for instance.", show_default=False)]


@app.command()
def opt(
    file: TextFile,
    passes: Annotated[str, typer.Option("--passes", "-p", help="Stages to run, separated by commas.")] = "",
    generic: Annotated[bool, typer.Option(help="Print MLIR's generic form.")] = False,
) -> None:
    """Parses and verifies a text, runs the named stages on it, and prints what comes out."""
    from patcomp.ir import verify
    from patcomp.rewrites import STAGES
    from patterns_catalog import default_rules

    stages = {stage.name: stage for stage in STAGES}
    names = [name.strip() for name in passes.split(",") if name.strip()]
    if unknown := [name for name in names if name not in stages]:
        raise PatcompError(f"no stage is called {', '.join(unknown)}; there are {', '.join(stages)}")
    module = _parse(file)
    verify(module, runtime=False)
    for name in names:
        try:
            stages[name].run(module, default_rules().stage(name))
            verify(module, runtime=False)  # the text names weights and has none
        except PatcompError as error:
            raise StageError(f"stage {name}: {error}", name) from error
    print(module.text(generic=generic))


def _parse(file: Path) -> IRModule:
    from patcomp.ir import IRModule, parse_module

    try:
        return IRModule(parse_module(file.read_text(), name=str(file)))
    except UnicodeDecodeError as error:
        raise PatcompError(f"{file} is not text: {error}") from error


# ---- questions ------------------------------------------------------------------------------------


@app.command()
def explain(
    model: ModelFile,
    what: Annotated[str, typer.Argument(help="A value (%mul_3), an FX node (mul_3) or a source line (model.py:12).")],
    modules: Modules = None,
) -> None:
    """Says which rules made an op of the converted program, and from which nodes and lines it came."""
    print(_converted(model, modules).explain(what))


@app.command("why-not")
def why_not(
    model: ModelFile,
    rule: Annotated[str, typer.Argument(help="A rule's name, as `patcomp catalog list` shows it.")],
    modules: Modules = None,
) -> None:
    """Says where a rule came closest to matching, and what was in the way."""
    print(_converted(model, modules).why_not(rule))


def _converted(model: Path, modules: list[str] | None) -> AIProgram:
    from patcomp import TorchConverter

    return TorchConverter().add_exported_program(_load(model, modules or ())).to_coreai()


if __name__ == "__main__":
    main()

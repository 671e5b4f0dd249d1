"""`patcomp opt`: run stages on a text."""

from __future__ import annotations

import sys
import time
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from patcomp.commands.common import (
    Catalogs,
    Modules,
    UsageError,
    error_console,
    import_modules,
    print_text,
    rules_with,
)
from patcomp.commands.packages import asset_in
from patcomp.commands.subjects import Subject, subject_of
from patcomp.commands.tables import show
from patcomp.errors import PatcompError, RuleError, StageError

if TYPE_CHECKING:
    from patcomp.ir import IRModule
    from patcomp.patterns import RuleSet
    from patcomp.rewrites.pipeline import Pass


def opt(
    file: Annotated[
        str,
        typer.Argument(
            help="MLIR text, a stage dump for instance, or an asset; - is standard input.", show_default=False
        ),
    ],
    passes: Annotated[str, typer.Option("--passes", "-p", help="Stages to run, separated by commas.")] = "",
    generic: Annotated[bool, typer.Option(help="Print MLIR's generic form.")] = False,
    print_after_all: Annotated[
        bool, typer.Option("--print-after-all", help="Print the IR after each stage to standard error.")
    ] = False,
    timing: Annotated[bool, typer.Option("--timing", help="Print each stage's seconds to standard error.")] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print what each stage changes, as a diff, instead of the program.")
    ] = False,
    catalog: Catalogs = None,
    modules: Modules = None,
) -> None:
    """Parse and verify a text, run the named stages on it, and print the result.

    $ patcomp opt stages/01-normalize.mlir -p recover,lower --diff
    $ patcomp convert net.pt2 --text - --quiet | patcomp opt - --generic
    """
    from patcomp.ir.verify import verify
    from patcomp.rewrites.pipeline import STAGES

    stages = {stage.name: stage for stage in STAGES}
    names = [name.strip() for name in passes.split(",") if name.strip()]
    if unknown := [name for name in names if name not in stages]:
        raise UsageError(f"no stage is called {', '.join(unknown)}; there are {', '.join(stages)}")
    if names != (ordered := sorted(names, key=list(stages).index)):
        raise UsageError(f"stages run in the order {', '.join(stages)}: use -p {','.join(ordered)}")
    import_modules(modules)
    module = parse_file(file)
    verify(module, runtime=False)
    rules, table = rules_with(catalog, decompositions=False), Table("stage", "seconds", "ops in", "ops out")
    text, count = module.text(generic=generic), module.op_count()
    for name in names:
        started, before = time.perf_counter(), text
        _run(stages[name], module, rules)
        seconds, text = time.perf_counter() - started, module.text(generic=generic)
        table.add_row(name, f"{seconds:.3f}", str(count), str(count := module.op_count()))
        if print_after_all:
            print(f"// ---- after {name}\n{text}\n", file=sys.stderr)
        if diff:
            lines = unified_diff(before.splitlines(), text.splitlines(), "before", name, n=1, lineterm="")
            print("\n".join(lines) or f"{name} changes nothing")
    if timing:
        show(table, error_console())
    if not diff:
        print_text(text)


def _run(stage: Pass, module: IRModule, rules: RuleSet) -> None:
    """Run a stage on a module in place, and verify the result.

    Raises:
        StageError: the stage failed.
    """
    from patcomp.ir.verify import verify
    from patcomp.rewrites import Options

    try:
        stage.run(module, rules.stage(stage.name), Options(strict=True))
        verify(module, runtime=False)  # the text names weights but does not hold them
    except Exception as error:
        reason = str(error) if isinstance(error, PatcompError) else f"{type(error).__name__}: {error}"
        failed = error.__cause__ if isinstance(error, RuleError) else error
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "torch":
            reason = "it computes constants with PyTorch, which cannot be imported"
        elif not isinstance(failed, PatcompError | None):
            # rules rely on the stages before theirs, which a text need not have been through
            reason += f"; have the stages before {stage.name} been run?"
        raise StageError(f"stage {stage.name}: {reason}", stage.name) from error


def parse_file(file: str) -> IRModule:
    """The program of a text or an asset; `-` is standard input.

    Raises:
        ParseError: it is not IR; the message has the line.
        PatcompError: it is not text, or no asset.
    """
    if file != "-" and not Path(file).is_file():
        from patcomp.emit.reading import read_asset

        found = subject_of(file, "opt", (Subject.TEXT, Subject.ASSET, Subject.BUNDLE))
        return read_asset(asset_in(file, found, "opt"))[0]
    from patcomp.ir import IRModule, parse_module

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except UnicodeDecodeError as error:
        raise PatcompError(
            f"{file} is not text; `patcomp opt` takes the text of a program, an asset or a bundle"
        ) from error
    return IRModule(parse_module(text, name="<stdin>" if file == "-" else file))

"""`patcomp opt`: stages on a text, run by xDSL's pass pipeline."""

from __future__ import annotations

import sys
import time
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from patcomp.commands.common import Catalogs, UsageError, rules_with
from patcomp.errors import PatcompError, StageError
from patcomp.ir import IRModule, parse_module, verify


def opt(
    file: Annotated[
        str, typer.Argument(help="MLIR text, a stage dump for instance; - is standard input.", show_default=False)
    ],
    passes: Annotated[str, typer.Option("--passes", "-p", help="Stages to run, separated by commas.")] = "",
    generic: Annotated[bool, typer.Option(help="Print MLIR's generic form.")] = False,
    print_after_all: Annotated[
        bool, typer.Option("--print-after-all", help="Print the IR after each stage to standard error.")
    ] = False,
    timing: Annotated[bool, typer.Option("--timing", help="Print the seconds of each to standard error.")] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print what each stage changes, as a diff, instead of the program.")
    ] = False,
    catalog: Catalogs = None,
) -> None:
    """Parses and verifies a text, runs the named stages on it, and prints the result."""
    from patcomp.rewrites.passes import run_passes, stage_pass
    from patcomp.rewrites.pipeline import STAGES

    stages = {stage.name: stage for stage in STAGES}
    names = [name.strip() for name in passes.split(",") if name.strip()]
    if unknown := [name for name in names if name not in stages]:
        raise UsageError(f"no stage is called {', '.join(unknown)}; there are {', '.join(stages)}")
    if names != (ordered := sorted(names, key=list(stages).index)):
        raise UsageError(f"stages run in the order {', '.join(stages)}: use -p {','.join(ordered)}")
    module = _parse(file)
    text, started = module.text(generic=generic), time.perf_counter()
    table = Table("stage", "seconds", "ops in", "ops out")
    count = module.op_count()

    def after(previous: str) -> None:
        nonlocal text, started, count
        seconds, before = time.perf_counter() - started, text
        try:
            verify(module, runtime=False)  # the text names weights and has none
        except PatcompError as error:
            raise StageError(f"stage {previous}: {error}", previous) from error
        text = module.text(generic=generic)
        table.add_row(previous, f"{seconds:.3f}", str(count), str(count := module.op_count()))
        if print_after_all:
            print(f"// ---- after {previous}\n{text}\n", file=sys.stderr)
        if diff:
            lines = unified_diff(before.splitlines(), text.splitlines(), "before", previous, n=1, lineterm="")
            print("\n".join(lines) or f"{previous} changes nothing")
        started = time.perf_counter()

    verify(module, runtime=False)
    rules = rules_with(catalog)
    run_passes(module, [stage_pass(stages[name], module, rules) for name in names], after)
    if timing:
        Console(stderr=True).print(table)
    if not diff:
        print(text)


def _parse(file: str) -> IRModule:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except UnicodeDecodeError as error:
        raise PatcompError(f"{file} is not text: {error}") from error
    return IRModule(parse_module(text, name="<stdin>" if file == "-" else file))

"""`patcomp exec`: a Python program that imports coreai_torch, with patcomp in its place."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer

from patcomp.commands.common import UsageError


def execute(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND [ARGUMENTS]...",
            help="A script FILE.py, -m MODULE, or the command of an installed package, with its arguments.",
        ),
    ],
) -> None:
    """Run a Python program that imports coreai_torch, with patcomp in its place.

    $ patcomp exec -- yolo export model=yolo26n.pt format=coreai

    The program runs in this process; `patcomp.install_as_coreai_torch` does the same for Python code.

    Raises:
        UsageError: there is no such script, module or command.
        PatcompError: an installed package of patcomp's imports coreai-torch itself.
        SystemExit: the program ends; its exit code is that of this command.
    """
    from patcomp.as_coreai_torch import install_as_coreai_torch

    run = _program(command)
    install_as_coreai_torch()
    sys.argv[:] = command[command[0] == "-m" :]
    try:
        sys.exit(run())
    except Exception:  # errors of the program look as Python shows them, and not as errors of this command
        traceback.print_exc()
        raise typer.Exit(1) from None


def _program(command: Sequence[str]) -> Callable[[], Any]:
    """What runs a program and gives its exit code, or None; its modules are importable as Python makes them.

    Raises:
        UsageError: there is no such script, module or command.
    """
    first, *arguments = command
    if first == "-m" and arguments:
        sys.path.insert(0, "")
        return partial(_run, runpy.run_module, arguments[0], alter_sys=True)
    if Path(first).is_file():
        sys.path.insert(0, str(Path(first).absolute().parent))
        return partial(_run, runpy.run_path, first)
    for point in entry_points(group="console_scripts", name=first):
        return lambda: point.load()()
    if Path(first).name.startswith("python"):
        raise UsageError(f"leave {first!r} out, because the program runs in this process: patcomp exec -- FILE.py")
    raise UsageError(
        f"{first!r} is neither a file nor a command of a package that is installed for {sys.executable}; "
        "patcomp exec takes FILE.py, -m MODULE, or such a command"
    )


def _run(runner: Callable[..., object], name: str, **options: bool) -> None:
    """Run a file or module as a program."""
    runner(name, run_name="__main__", **options)

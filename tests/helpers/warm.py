"""Runs Python in processes that have PyTorch and patcomp loaded, which takes longer than most scripts run.

The processes are forked from one that only imports this module and converts one small model.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `python *arguments` does in a folder, where the arguments start with the name of a file or `-m MODULE`."""
    with tempfile.TemporaryDirectory() as logs:
        out, err = Path(logs, "out"), Path(logs, "err")
        code = exit_code(_run, folder, arguments, out, err)
        return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())


def exit_code(function: Callable[..., Any], *arguments: Any) -> int:
    """The exit code of a process that calls a function of a module; minus a signal's number where one ends it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "tests.helpers.warm_up"])
    process = context.Process(target=_call, args=(dict(os.environ), function, arguments))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _call(environment: dict[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Call a function in the environment of the caller, which may differ from that in which the first process began."""
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)


def _run(folder: Path, arguments: tuple[str, ...], out: Path, err: Path) -> None:
    for number, name, mode in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        file = os.open(name, mode | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        runpy.run_path(arguments[0], run_name="__main__")

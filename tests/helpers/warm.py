"""Runs scripts in processes that have PyTorch and patcomp loaded, which takes longer than most scripts run.

The processes are forked from one that only imports this module and converts one small model.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from pathlib import Path


def run_script(path: Path) -> tuple[int, str]:
    """Runs a Python file as `python name` in its folder does; returns the exit code, and what it wrote."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "tests.helpers.warm_up"])
    log = path.with_suffix(".log")
    process = context.Process(target=_run, args=(path, log))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode, log.read_text()


def _run(path: Path, log: Path) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.chdir(path.parent)
    sys.path.insert(0, str(path.parent))
    sys.argv = [path.name]
    runpy.run_path(path.name, run_name="__main__")

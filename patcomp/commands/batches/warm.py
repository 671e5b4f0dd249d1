"""Processes that have imported patcomp and PyTorch once, and run each command in a fork of themselves.

A command that aborts takes its fork with it, and no command sees the modules, files or settings of another one. Only
Linux forks; elsewhere each command has a new process, because Apple's libraries do not survive a fork.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = str(Path(__file__).parents[3])
_FORKS = sys.platform == "linux"


class StoppedError(Exception):
    """The processes of this pool were ended, and what they ran is not finished."""


class WarmPool:
    """The warm processes of this one, as many as commands run at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[str]] = []
        self._busy: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, folder: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """What `patcomp *arguments` does in a folder: its exit code, which is minus a signal's number if one ended it,
        and what it prints.

        Raises:
            StoppedError: the pool was stopped.
        """
        with tempfile.TemporaryDirectory() as logs:
            out, err = Path(logs, "out"), Path(logs, "err")
            request = {"folder": folder, "arguments": [*arguments], "out": str(out), "err": str(err)}
            code = self._code(json.dumps(request))
            texts = [each.read_text(errors="replace") if each.exists() else "" for each in (out, err)]
            return subprocess.CompletedProcess(arguments, code, *texts)

    def stop(self) -> None:
        """End all processes, with the commands that they run; commands that are asked for later are not run."""
        with self._lock:
            self._stopped = True
            for process in (*self._idle, *self._busy):
                assert process.stdin is not None
                process.stdin.close()

    def _code(self, request: str) -> int:
        process = self._taken()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with suppress(BrokenPipeError, ValueError):  # it died, or the pool was stopped
            print(request, file=process.stdin, flush=True)
            answer = process.stdout.readline()
        with self._lock:
            self._busy.discard(process)
            if answer and _FORKS and not self._stopped:
                self._idle.append(process)
                return int(answer)
        process.stdin.close()
        process.wait()
        process.stdout.close()
        if self._stopped:
            raise StoppedError
        return int(answer) if answer else process.returncode or 1  # the process itself was killed, with its fork

    def _taken(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopped:
                raise StoppedError
            process = self._idle.pop() if self._idle else _started()
            self._busy.add(process)
            return process


POOL = WarmPool()


def _started() -> subprocess.Popen[str]:
    paths = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths},
        text=True,
        start_new_session=True,  # Ctrl-C is for the process that knows what is not finished
    )


# ---- in the warm process --------------------------------------------------------------------------


def serve() -> None:
    """Read a request from each line of standard input, run it, and write the exit code to standard output.

    The process ends with its input: when the process that started it closes it, or dies.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what imports print is no answer
    _warm_up()
    while line := _line():
        request = json.loads(line)
        if not request["arguments"][1].partition(":")[0].endswith((".py", ".pt2")):
            with suppress(ImportError):  # models of folders and names are transformers' as a rule
                import_module("transformers")
        code = _forked(request) if _FORKS else _code_of(request)
        with suppress(BrokenPipeError):  # nobody waits for it
            print(code, file=answers, flush=True)


def _warm_up() -> None:
    """Import what conversions import, and convert a model, because much is imported and built when it is first needed.
    The tensors are so small that PyTorch starts no threads, which would be missing in the forks."""
    from patcomp.commands.common import import_torch

    import_module("patcomp.cli").whole_command()  # which stands above this module
    import_torch()
    import torch

    from patcomp import TorchConverter

    exported = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    TorchConverter().add_exported_program(exported).to_coreai()


def _line() -> bytes:
    """A line of standard input, which no buffer has read beyond; empty at its end."""
    found = b""
    while not found.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return b""
        found += byte
    return found


def _forked(request: dict[str, Any]) -> int:
    """The exit code of a fork that runs a command."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os._exit(_code_of(request))
    ended = os.pidfd_open(child)
    try:
        if 0 in select.select([0, ended], [], [])[0]:  # the end of the input
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(ended)


def _code_of(request: dict[str, Any]) -> int:
    """Run a command in this process."""
    for number, name in enumerate((os.devnull, request["out"], request["err"])):
        file = os.open(name, (os.O_WRONLY if number else os.O_RDONLY) | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    sys.argv = ["patcomp", *request["arguments"]]
    try:
        runpy.run_module("patcomp", run_name="__main__")
        code: Any = 0
    except SystemExit as ending:
        code = ending.code
    except BaseException:  # what ends a command with a traceback
        sys.excepthook(*sys.exc_info())
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


if __name__ == "__main__":
    serve()
    os._exit(0)  # PyTorch takes a second to end

"""The child process of `native.Native`: pickled jobs on standard input, answers on standard output."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from patcomp.emit.asset import Asset, stored_text, temporary_asset
from patcomp.emit.timing import timed
from patcomp.emit.toolchain.hand_over import HandOver
from patcomp.emit.toolchain.writing import parser_diagnostics

_Arrays = dict[str, Any]


class _Assets:
    """The asset of the last program or path, which often runs again with other inputs."""

    def __init__(self) -> None:
        self._program: HandOver | tuple[Path, int] | None = None
        self._open = ExitStack()

    def run(self, program: HandOver, calls: list[tuple[str, _Arrays, _Arrays]]) -> list[tuple[_Arrays, _Arrays]]:
        """The outputs and the states of some calls: entry point, inputs and states."""
        if program != self._program:
            self.close()
            self._asset = self._open.enter_context(temporary_asset(program))
            self._program = program
        return [(self._asset.run(inputs, state, entry), state) for entry, inputs, state in calls]

    def call(self, path: Path, inputs: _Arrays, state: _Arrays, entry: str) -> tuple[_Arrays, _Arrays]:
        """The outputs and the states of a call of a saved asset."""
        file = path / "main.mlirb"
        saved = path, file.stat().st_mtime_ns if file.is_file() else 0
        if saved != self._program:
            self.close()
            self._asset = Asset.load(path)
            self._open.callback(self._asset.close)
            self._program = saved
        return self._asset.run(inputs, state, entry), state

    def close(self) -> None:
        self._program = None
        self._open.close()


def main() -> None:
    # the runtime prints to standard output, so answers go through a copy of it
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    assets = _Assets()
    jobs: dict[str, Callable[..., Any]] = {
        "run": assets.run, "check": parser_diagnostics, "call": assets.call, "read": stored_text,
        "time": timed,
    }  # fmt: skip
    while True:
        try:
            name, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return assets.close()
        try:
            answer: tuple[str, Any] = ("ok", jobs[name](*arguments))
        except Exception as error:
            assets.close()
            cause = f" || {error.__cause__}" if error.__cause__ else ""
            answer = (type(error).__name__, f"{error}{cause}")
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()

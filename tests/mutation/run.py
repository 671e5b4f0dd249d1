"""Runs the tests of a room on mutants of its files, each in a process of its own.

The process is forked from one that has loaded PyTorch and other libraries. The mutant is written to a copy of
the repository, so that processes which the tests start see it, too.
"""

from __future__ import annotations

import os
import pickle
import select
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.mutation.mutants import Mutant
from tests.mutation.rooms import ROOT, Room

LIBRARIES = ("hypothesis", "ml_dtypes", "networkx", "numpy", "pytest", "rich", "sympy", "torch", "typer", "xdsl")
"""What is loaded before the processes are forked. Other packages need what the tests prepare first."""
LOG = "tests.log"
"""The file of the copy with what the last tests printed."""
OURS = ("patcomp", "patterns_catalog", "special_functions_catalog", "tests")
Function = tuple[str, int]
"""A file and the line on which a function of it starts; line 0 for what runs when tests are collected."""


@dataclass(frozen=True)
class Baseline:
    """What the tests of a room do without a mutant."""

    seconds: dict[str, float] = field(default_factory=dict)
    """How long each test takes that passes."""
    entered: dict[Function, set[str]] = field(default_factory=dict)
    """Which tests enter each function."""
    collected: set[Function] = field(default_factory=set)
    """The functions that run while tests are collected."""
    names: set[str] = field(default_factory=set)
    """The names of all tests, also of those that are not run."""
    modules: list[str] = field(default_factory=list)
    """The modules of `LIBRARIES` that the tests load."""

    def tests(self, file: str, mutant: Mutant) -> list[str]:
        """The tests that may notice a mutant, in the order in which to run them."""
        function = (file, mutant.first_line)
        entering = self.entered.get(function, set()) & self.seconds.keys()
        if not mutant.first_line or function in self.collected:
            return sorted(self.seconds, key=lambda test: (test not in entering, self.seconds[test]))
        return sorted(entering, key=self.seconds.__getitem__)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the repository, which is the working folder as long as it exists."""
    with tempfile.TemporaryDirectory(prefix="patcomp-mutants-") as name:
        folder = Path(name)
        for part in (*OURS, "docs", "pyproject.toml", "README.md"):
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
            copy(ROOT / part, folder / part)
        before = Path.cwd()
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def baseline(room: Room, folder: Path, *, runtime: bool = False) -> Baseline:
    """Run the tests of a room once without a mutant, and load what they load of others' modules.

    Args:
        room: the files and the tests.
        folder: the copy of the repository.
        runtime: whether to run the tests of the native runtime, too. To start it takes longer than most tests.
    """
    stored = folder / "baseline"
    _in_child(folder, lambda: _measure(room, stored, runtime), limit=3600)
    found = Baseline(*pickle.loads(stored.read_bytes()))
    for name in found.modules:
        __import__(name)
    # a mutant of the same size, written within the same second, must not be taken for another one
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    return found


def outcome(folder: Path, found: Baseline, file: str, mutant: Mutant) -> str:
    """`killed`, `survived`, or `no test` if no test of the room enters the mutated function.

    A mutant is also killed if its tests take more than five times as long.
    """
    tests = found.tests(file, mutant)
    if not tests:
        return "no test"
    path = folder / file
    original, status = path.read_bytes(), path.stat()
    path.write_text(mutant.apply(original.decode()))
    limit = 10 + 5 * sum(map(found.seconds.__getitem__, tests))
    try:
        chosen = _Chosen(tests, found.names)
        code = _in_child(folder, lambda: pytest.main(_arguments(tests), plugins=[chosen]), limit)
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # so that its compiled form is used again
        shutil.rmtree(folder / ".hypothesis", ignore_errors=True)
    return "survived" if code == 0 else "killed"


def _arguments(tests: list[str]) -> list[str]:
    return ["-x", "-q", "-p", "no:cacheprovider", *dict.fromkeys(test.partition("::")[0] for test in tests)]


def _in_child(folder: Path, run: Callable[[], Any], limit: float) -> int:
    """Call a function in a process that has not loaded patcomp; its result, or -1 after the limit, in seconds."""
    process = os.fork()
    if not process:
        code = 70
        try:
            os.setsid()
            log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
                del sys.modules[name]
            sys.path[0] = os.environ["PYTHONPATH"] = str(folder)
            settings.register_profile("mutants", derandomize=True, database=None, deadline=None)
            settings.load_profile("mutants")
            code = int(run())
        finally:
            os._exit(code)
    ready, _, _ = select.select([os.pidfd_open(process)], [], [], limit)
    if not ready:
        os.killpg(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status) if ready else -1


class _Chosen:
    """Runs some tests only, in a given order, and first those whose names a mutant changed."""

    def __init__(self, tests: list[str], names: set[str]):
        self.order, self.names = {test: place for place, test in enumerate(tests)}, names

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self.order or item.nodeid not in self.names]
        items[:] = sorted(chosen, key=lambda item: self.order.get(item.nodeid, -1))


class _Measured:
    """Measures the tests, and which functions they enter."""

    def __init__(self, room: Room, runtime: bool):
        self.baseline, self._files = Baseline(), {str(Path.cwd() / file): file for file in room.paths()}
        self._now, self._room, self._runtime = self.baseline.collected, room, runtime

    def trace(self, frame: Any, event: str, argument: Any) -> None:
        file = self._files.get(frame.f_code.co_filename)
        if file is not None:
            self._now.add((file, frame.f_code.co_firstlineno))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.baseline.names.update(item.nodeid for item in items)
        items[:] = [item for item in items if getattr(item, "originalname", "") not in self._room.left_out]
        if not self._runtime:
            items[:] = [item for item in items if "native" not in getattr(item, "fixturenames", ())]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._now = set()
        result = yield
        for function in self._now:
            self.baseline.entered.setdefault(function, set()).add(item.nodeid)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.baseline.seconds[report.nodeid] = report.duration


def _measure(room: Room, stored: Path, runtime: bool) -> int:
    measured = _Measured(room, runtime)
    sys.settrace(measured.trace)
    threading.settrace(measured.trace)
    pytest.main(["-q", "-p", "no:cacheprovider", *room.test_files()], plugins=[measured])
    sys.settrace(None)
    found = measured.baseline
    modules = [name for name in sys.modules if name.partition(".")[0] in LIBRARIES]
    stored.write_bytes(pickle.dumps((found.seconds, found.entered, found.collected, found.names, modules)))
    return 0

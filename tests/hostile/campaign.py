"""Runs cases in workers and watches their time, memory and open files."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.judge import DIED, HANG, Outcome

PATIENCE = 900
"""Seconds for one case. The largest inputs have 10^5 graphs, which take 100 CPU seconds; the machine may be busy."""
MEASURED_EVERY = 50
"""Cases between two measurements of memory and files."""


@dataclass
class Watched:
    """A worker of one target, and what was seen of it."""

    target: str
    seed: int
    folder: Path
    number: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, 0)
    sizes: list[tuple[int, int, int]] = field(default_factory=list)
    """After how many cases the current process had how much memory, and how many open files."""
    starts: int = 0
    _process: subprocess.Popen[str] | None = None

    def cases(self, seconds: float) -> Iterator[tuple[int, Outcome]]:
        """The findings of as many cases as fit into some seconds."""
        ended = time.monotonic() + seconds
        while time.monotonic() < ended:
            outcome = self._next()
            if outcome.is_finding:
                yield self.number, outcome
            self.number += 1

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _next(self) -> Outcome:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        measured = self.number % MEASURED_EVERY == 0
        started = time.monotonic()
        process.stdin.write(json.dumps([self.number, measured]) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            self.close()
            return self._count(Outcome(HANG, f"no answer after {PATIENCE} s", str(self.number)))
        line = process.stdout.readline()
        if not line:
            code = process.wait()
            self._process = None
            return self._count(Outcome(DIED, f"the process ended with {code}", str(code)))
        self.slowest = max(self.slowest, (time.monotonic() - started, self.number))
        answer = json.loads(line)
        if measured:
            self.sizes.append((self.number, answer["memory"], answer["files"]))
        return self._count(Outcome(answer["kind"], answer["message"], answer["place"]))

    def _count(self, outcome: Outcome) -> Outcome:
        self.kinds[outcome.kind] += 1
        if outcome.message and not outcome.is_finding:
            self.refusals[outcome.message.strip().splitlines()[-1][:100]] += 1
        return outcome

    def _start(self) -> subprocess.Popen[str]:
        self.starts += 1
        self.sizes.clear()
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{self.target}.log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.worker", self.target, str(self.seed), str(self.folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        return self._process

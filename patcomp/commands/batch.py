"""Many conversions at once, each as a process of its own.

A conversion in its own process cannot disturb the others, not even by an abort of native code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from patcomp.commands.common import ANSWER_IS_NO


@dataclass(frozen=True)
class BatchJob:
    """One conversion."""

    name: str
    arguments: tuple[str, ...]
    """Those of `patcomp convert`."""
    folder: str
    """Where the command runs."""


@dataclass(frozen=True)
class BatchResult:
    """How a conversion ended; it is true if the conversion succeeded."""

    name: str
    code: int
    """The exit code of the command; minus a signal's number if native code aborted the process."""
    seconds: float
    data: dict[str, Any] | None = field(repr=False)
    """What `patcomp convert --json` says; None if the conversion failed."""
    log: str = field(repr=False)
    """What the command reported, with the reason of a failure at the end."""

    def __bool__(self) -> bool:
        return self.code == 0

    @property
    def verdict(self) -> str:
        """The outcome, in words."""
        return {0: "converted", ANSWER_IS_NO: "WRONG NUMBERS"}.get(self.code, "FAILED")

    @property
    def reason(self) -> str:
        """The last line of the error; empty if there was no error."""
        lines = [line for line in self.log.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return "" if self else (errors or lines or [f"the process ended with {self.code}"])[-1]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return {**asdict(self), "verdict": self.verdict}


def convert_batch(
    jobs: Sequence[BatchJob],
    executor: Executor | None = None,
    *,
    workers: int = 1,
    done: Callable[[BatchResult], object] = lambda result: None,
) -> list[BatchResult]:
    """Convert many models, each in a process of its own.

        results = convert_batch(jobs_in("models.toml"), workers=4)
        assert all(results)

    Args:
        jobs: the conversions; `patcomp.commands.convert.jobs_in` reads them from a file.
        executor: runs the jobs: any `concurrent.futures.Executor`, such as that of Dask, whose workers see the same
            files. By default a pool of threads in this process, each of which waits for its conversion.
        workers: the size of this pool.
        done: called with each result when it is there.

    Returns:
        The results in the order of the jobs. A conversion that fails does not end the others.
    """
    listed = list(jobs)
    if executor is None:
        with ThreadPoolExecutor(workers) as pool:
            return convert_batch(listed, pool, done=done)
    futures = {executor.submit(convert_one, job): index for index, job in enumerate(listed)}
    results: dict[int, BatchResult] = {}
    for future in as_completed(futures):
        index = futures[future]
        error = future.exception()  # of the executor: a worker that is lost, for instance
        result = (
            future.result()
            if error is None
            else BatchResult(listed[index].name, 1, 0.0, None, f"error: {type(error).__name__}: {error}")
        )
        results[index] = result
        done(result)
    return [results[index] for index in range(len(listed))]


def convert_one(job: BatchJob) -> BatchResult:
    """Run a conversion in a process of its own, and wait for it."""
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    started = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "patcomp", "convert", *job.arguments, "--json"],
        cwd=job.folder,
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    data = json.loads(ended.stdout) if ended.stdout.startswith("{") else None
    return BatchResult(job.name, ended.returncode, round(time.perf_counter() - started, 3), data, ended.stderr)


# ---- the TOML file --------------------------------------------------------------------------------


# ---- the report -----------------------------------------------------------------------------------

_NOT_IN_XML = re.compile(r"\x1b\[[0-9;]*m|[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(results: Sequence[BatchResult]) -> str:
    """The results as JUnit's XML: wrong numbers are failures, what could not be converted is an error."""
    wrong = sum(result.code == ANSWER_IS_NO for result in results)
    counts = {"tests": len(results), "failures": wrong, "errors": sum(not result for result in results) - wrong}
    attributes = {name: str(count) for name, count in counts.items()}
    attributes |= {"name": "patcomp convert", "time": f"{sum(each.seconds for each in results):.3f}"}
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", attributes)
    for result in results:
        case = ET.SubElement(
            suite, "testcase", classname="patcomp.convert", name=_NOT_IN_XML.sub("", result.name),
            time=f"{result.seconds:.3f}",
        )  # fmt: skip
        log = _NOT_IN_XML.sub("", result.log)
        if not result:
            kind = "failure" if result.code == ANSWER_IS_NO else "error"
            ET.SubElement(case, kind, message=_NOT_IN_XML.sub("", result.reason)).text = log
        else:
            ET.SubElement(case, "system-err").text = log
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"

"""One conversion of a batch: run in a process of its own, and recorded, so that it is not run again."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from patcomp.commands.batches.warm import POOL, StoppedError
from patcomp.commands.common import ANSWER_IS_NO
from patcomp.commands.recipes import PACKAGES, hashes_of_files, named_files
from patcomp.emit.files.manifest import installed_versions, tool_versions

INTERRUPTED = 130
"""The code of a conversion that was stopped, or not begun."""


@dataclass(frozen=True)
class BatchJob:
    """One conversion."""

    name: str
    arguments: tuple[str, ...]
    """Those of `patcomp convert`."""
    folder: str
    """Where the command runs."""
    model: str = ""
    """What is converted, by its name in the file; conversions of one model are compared."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """What the matrix chose, `{"compress": "w8"}`."""


@dataclass(frozen=True)
class BatchResult:
    """How a conversion ended; it is true if there is what was converted."""

    name: str
    code: int
    """The exit code of the command; minus a signal's number if native code aborted the process."""
    seconds: float
    data: Mapping[str, Any] | None = field(repr=False)
    """What `patcomp convert --json` says; None if the conversion failed."""
    log: str = field(repr=False)
    """What the command reported, with the reason of a failure at the end."""
    model: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    bytes: int | None = None
    """The size of the files that were written."""
    kept: bool = False
    """Whether an earlier run of the batch converted it."""

    def __bool__(self) -> bool:
        return self.code == 0

    @property
    def verdict(self) -> str:
        """The outcome, in words."""
        if self.kept:
            return "kept"
        return {0: "converted", ANSWER_IS_NO: "WRONG NUMBERS", INTERRUPTED: "not finished"}.get(self.code, "FAILED")

    @property
    def reason(self) -> str:
        """The last line of the error; empty if there was no error."""
        lines = [line for line in self.log.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return "" if self else (errors or lines or [f"the process ended with {self.code}"])[-1]

    @property
    def loss(self) -> float | None:
        """The largest error of an output against PyTorch, relative to the output's largest magnitude; None if the
        numbers were not compared."""
        verification = (self.data or {}).get("verification") or {}
        errors = verification.get("loss") or verification.get("errors") or []
        return max((float(each["max_rel"]) for each in errors), default=None)

    @property
    def problems(self) -> int | None:
        """How many kinds of problems the audit for the target finds; None without a target."""
        audit = (self.data or {}).get("audit")
        return None if audit is None else sum(not each["is_advice"] for each in audit["findings"])

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return {**asdict(self), "verdict": self.verdict, "loss": self.loss, "problems": self.problems}


def run_job(job: BatchJob, records: str | None = None) -> BatchResult:
    """Convert a model, unless a record says that the same conversion is done, and write a record.

    Args:
        records: the folder of the records; None for no records.

    A record is written at once and whole, by the process that converts. So it is there if the batch is killed, and a
    worker that gets the job of a dead one sees what that one has finished.
    """
    if records is None:
        return _converted(job)
    record, key = Path(records, f"{quote(job.name, safe=' ')}.json"), _key(job)
    if (found := _finished(job, record, key)) is not None:
        return found
    result = _converted(job)
    if result.code != INTERRUPTED:
        draft = record.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(json.dumps({"key": key, "written": _written(job, result.data), "result": asdict(result)}))
        draft.replace(record)
    return result


def not_finished(job: BatchJob) -> BatchResult:
    """The result of a conversion that was stopped, or not begun."""
    return BatchResult(job.name, INTERRUPTED, 0.0, None, "the batch was stopped", job.model, job.choices)


def _converted(job: BatchJob) -> BatchResult:
    started = time.perf_counter()
    try:
        ended = POOL.run(job.folder, ["convert", *job.arguments, "--json"])
    except StoppedError:
        return not_finished(job)
    seconds = round(time.perf_counter() - started, 3)
    data = json.loads(ended.stdout) if ended.stdout.startswith("{") else None
    result = BatchResult(job.name, ended.returncode, seconds, data, ended.stderr, job.model, job.choices)
    return replace(result, bytes=sum(size for _, size, _ in _written(job, data)) or None)


def _key(job: BatchJob) -> str:
    """What determines the result of a conversion: its arguments, the files that they name, and the versions."""
    files = hashes_of_files(named_files(job.arguments, Path(job.folder)))
    facts = [job.arguments, job.folder, files, tool_versions(), installed_versions(*PACKAGES)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _finished(job: BatchJob, record: Path, key: str) -> BatchResult | None:
    """The recorded result of a conversion, if what it wrote is still there."""
    try:
        found = json.loads(record.read_text())
    except FileNotFoundError:
        return None
    except ValueError:  # a record of another program
        return None
    result = BatchResult(**found["result"]) if found.get("key") == key else None
    if not result or [[*each] for each in _written(job, result.data)] != found["written"]:
        return None
    return replace(result, kept=True)


def _written(job: BatchJob, data: Mapping[str, Any] | None) -> list[tuple[str, int, str]]:
    """The files that a conversion wrote: paths, sizes, and the hashes of programs, as assets have them."""
    named = [(data or {}).get(what) for what in ("asset", "bundle", "text", "report")]
    places = [Path(job.folder, name) for name in named if name not in (None, "-")]
    return [
        (str(path), path.stat().st_size, path.read_bytes().hex() if path.name == "main.hash" else "")
        for place in places for path in _files(place)
    ]  # fmt: skip


def _files(place: Path) -> Iterable[Path]:
    return [each for each in sorted(place.rglob("*")) if each.is_file()] if place.is_dir() else [place] * place.exists()

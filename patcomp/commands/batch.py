"""Many conversions at once: read their options from a TOML file, and run each as a process of its own.

A conversion in its own process cannot disturb the others, not even by an abort of native code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from patcomp.commands.common import ANSWER_IS_NO, UsageError
from patcomp.errors import PatcompError, near_names


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
        """How it ended, in words."""
        return {0: "converted", ANSWER_IS_NO: "WRONG NUMBERS"}.get(self.code, "FAILED")

    @property
    def reason(self) -> str:
        """The last line that says what is wrong; empty if nothing is."""
        lines = [line for line in self.log.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return "" if self else (errors or lines or [f"the process ended with {self.code}"])[-1]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        return {**asdict(self), "verdict": self.verdict}


def convert_batch(
    jobs: str | Path | Sequence[BatchJob],
    executor: Executor | None = None,
    *,
    workers: int = 1,
    done: Callable[[BatchResult], object] = lambda result: None,
) -> list[BatchResult]:
    """Convert many models, each in a process of its own.

        results = convert_batch("models.toml", workers=4)
        assert all(results)

    Args:
        jobs: a TOML file, as docs/command-line.md describes it, or jobs.
        executor: runs the jobs: any `concurrent.futures.Executor`, such as that of Dask, whose workers see the same
            files. By default a pool of threads in this process, each of which waits for its conversion.
        workers: the size of this pool.
        done: called with each result when it is there.

    Returns:
        The results in the order of the jobs. A conversion that fails does not end the others.

    Raises:
        UsageError: the file has another form.
        OSError: the file cannot be read.
    """
    listed = read_jobs(Path(jobs)) if isinstance(jobs, str | Path) else list(jobs)
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

_OF_THE_BATCH = ("batch", "jobs", "junit", "json", "quiet", "verbose", "help")
"""Options of the command that are not options of one conversion."""


def read_jobs(path: Path) -> list[BatchJob]:
    """The jobs in a TOML file: a table `[defaults]`, and a table `[[models]]` for each model.

    The keys are the options of `patcomp convert`; paths are relative to the file.

    Raises:
        UsageError: the file is no TOML, or a table, key or value has another form.
    """
    try:
        data = tomllib.loads(path.read_text())
    except RecursionError:
        raise UsageError(f"{path} has lists or tables that are nested too deeply") from None
    except ValueError as error:  # of the syntax, of bytes that are no text, or of an integer of thousands of digits
        raise UsageError(f"{path} is not TOML: {error}") from error
    models, defaults = data.get("models"), data.get("defaults", {})
    if not (isinstance(models, list) and models and all(isinstance(each, dict) for each in [*models, defaults])):
        raise UsageError(f"{path} must have a table [[models]] for each model, and may have a table [defaults]")
    if unknown := data.keys() - {"models", "defaults"}:
        raise UsageError(f"{path} has {', '.join(sorted(unknown))}; it may have [defaults] and [[models]] only")
    jobs = [_job(path, defaults | model) for model in models]
    for what, keys in (("name", [job.name for job in jobs]), ("output", [_asset(job) for job in jobs])):
        if repeated := sorted({key for key in keys if key and keys.count(key) > 1}):
            raise UsageError(f"{path}: two models have the same {what}, {repeated[0]}")
    return jobs


def _job(path: Path, table: Mapping[str, Any]) -> BatchJob:
    options = {key.replace("_", "-"): value for key, value in table.items()}
    model = options.pop("model", None)
    if not isinstance(model, str):
        raise UsageError(f"{path}: each of [[models]] needs a model, such as model = 'nets.py:net'")
    if "\0" in f"{model}{table.get('name')}":
        raise UsageError(f"{path}: the model {model!r} has a null character")
    name = str(options.pop("name", model.rpartition(".py:")[2] if ".py:" in model else Path(model).stem))
    if not options.keys() & {"output", "text"}:
        options["output"] = f"{name}.aimodel"
    arguments = [model]
    for key, value in options.items():
        arguments += _arguments(f"{path}: {name}: {key}", key, value)
    return BatchJob(name, tuple(arguments), str(path.absolute().parent))


def _arguments(place: str, key: str, value: Any) -> list[str]:
    """An option and its value as arguments of the command.

    Raises:
        UsageError: there is no such option, or the value has another type.
    """
    options = _options()
    if key not in options:
        raise UsageError(f"{place} is not an option of convert; there are {near_names(key, options)}")
    is_flag, is_list = options[key]
    values = value if isinstance(value, list) else [value]
    if any(isinstance(each, bool) != is_flag or not isinstance(each, str | int | float) for each in values):
        raise UsageError(
            f"{place} must be {'true or false' if is_flag else 'a text or a list of texts'}, got {value!r}"
        )
    if is_flag:
        return [f"--{key}"] if value else []
    texts = [str(each) for each in values]
    if any("\0" in text for text in texts):
        raise UsageError(f"{place} has a null character")
    return [part for each in (texts if is_list else [",".join(texts)]) for part in (f"--{key}", each)]


@cache
def _options() -> dict[str, tuple[bool, bool]]:
    """Whether an option of convert is a flag, and whether it may be repeated, by its name without dashes."""
    import typer
    from typer.main import get_command

    from patcomp.commands.convert import convert

    app = typer.Typer()
    app.command()(convert)
    return {
        name.removeprefix("--"): (getattr(option, "is_flag", False), getattr(option, "multiple", False))
        for option in get_command(app).params
        for name in option.opts
        if name.startswith("--") and name.removeprefix("--") not in _OF_THE_BATCH
    }


def _asset(job: BatchJob) -> str:
    """The path of a job's asset; empty if it has none."""
    if "--output" not in job.arguments:
        return ""
    return str(Path(job.folder, job.arguments[job.arguments.index("--output") + 1]).resolve())


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


def run_batch(file: Path, workers: int, report: Path | None, *, as_json: bool, quiet: bool) -> int:
    """Convert the models of a TOML file for the command line; return the exit code."""
    from patcomp.commands.common import print_json, say
    from patcomp.commands.tables import print_table
    from patcomp.emit.replacement import check_writable

    if workers < 1:
        raise UsageError("--jobs must be 1 or more")
    if report is not None:
        check_writable(report)
    if not file.is_file():
        raise PatcompError(f"there is no file {file}")

    def show(result: BatchResult) -> None:
        if not quiet or not result:
            reason = f": {result.reason}" if result.reason else ""
            say(f"{result.verdict} {result.name} in {result.seconds:.1f} s{reason}")

    results = convert_batch(file, workers=workers, done=show)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(junit(results))
    if as_json:
        print_json([result.to_dict() for result in results])
    elif not quiet:
        ops = [str((result.data or {}).get("ops", "")) for result in results]
        rows = [
            (each.name, each.verdict, f"{each.seconds:.1f}", count, each.reason)
            for each, count in zip(results, ops, strict=True)
        ]
        print_table(["model", "result", "seconds", "ops", "reason"], rows)
    codes = {result.code for result in results} - {0}
    return 0 if not codes else ANSWER_IS_NO if codes == {ANSWER_IS_NO} else 1

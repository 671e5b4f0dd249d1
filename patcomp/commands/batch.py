"""`patcomp batch`: convert the models of a file, and write their results, however the command ends."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from patcomp.commands.batches.executors import LOCAL, convert_batch, executor_of
from patcomp.commands.batches.file import options_of, read_jobs
from patcomp.commands.batches.jobs import BatchJob, BatchResult, not_finished
from patcomp.commands.batches.page import OUT_OF_TABLES, cell_text
from patcomp.commands.batches.results import pareto, result_row, write_results
from patcomp.commands.batches.warm import POOL
from patcomp.commands.common import ANSWER_IS_NO, AsJson, UsageError, print_json, say
from patcomp.commands.convert import convert
from patcomp.commands.tables import print_table
from patcomp.emit.files.replacement import check_writable

_BETWEEN_WRITES = 10.0
"""Seconds after which the results are written again while models are converted, for those who look, and for a batch
that is killed."""


def batch(
    file: Annotated[Path, typer.Argument(help="A TOML file: [defaults], [matrix] and a [[models]] for each model.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder of the results; by default FILE-results beside the file."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="How many models this machine converts at the same time.")] = 1,
    executor: Annotated[
        str, typer.Option(help="What converts: local, dask:ADDRESS or ray:ADDRESS; its workers see the same files.")
    ] = LOCAL,
    json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only what is not converted.")] = False,
) -> None:
    """Convert many models, each in a process of its own; run it again to go on after a failure or an interruption.

    What is converted already is kept, if its options, files and versions are the same.

    $ patcomp batch models.toml --jobs 2
    """
    if jobs < 1:
        raise UsageError("--jobs must be 1 or more")
    listed = jobs_in(file)
    folder = output or file.with_name(f"{file.stem}-results")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--output {folder} is a file; name a folder")
    check_writable(folder)
    records = folder.absolute() / "records"
    records.mkdir(parents=True, exist_ok=True)
    found: dict[str, BatchResult] = {}
    written = time.monotonic()

    def ordered() -> list[BatchResult]:
        return [found.get(job.name, not_finished(job)) for job in listed]

    def done(result: BatchResult) -> None:
        nonlocal written
        found[result.name] = result
        if not quiet or not result:
            reason = f": {result.reason}" if result.reason else ""
            say(f"{result.verdict} {result.name} in {result.seconds:.1f} s{reason}")
        if time.monotonic() - written > _BETWEEN_WRITES:
            write_results(folder, ordered())
            written = time.monotonic()

    stopped = 0
    with _stoppable():
        try:
            with executor_of(executor, jobs) as chosen, _stoppable():  # again, because Ray has handlers of its own
                try:
                    convert_batch(listed, chosen, records=str(records), done=done)
                except BaseException:
                    POOL.stop()  # or the executor waits for what is converted now
                    raise
        except _Stopped as error:
            stopped = error.number
        finally:
            with _unstoppable():
                write_results(folder, ordered())
    results = ordered()
    if json:
        print_json([result.to_dict() for result in results])
    else:
        _print(results, folder, quiet=quiet)
    sys.exit(128 + stopped if stopped else _code(results))


def jobs_in(file: str | Path) -> list[BatchJob]:
    """The conversions of a TOML file, as docs/many-models.md describes it.

    Raises:
        UsageError: the file has another form.
        OSError: the file cannot be read.
    """
    app = typer.Typer()
    app.command()(convert)
    return read_jobs(Path(file), options_of(typer.main.get_command(app)))


def _print(results: Sequence[BatchResult], folder: Path, *, quiet: bool) -> None:
    best = pareto(results)
    rows = [result_row(result, result.name in best) for result in results]
    if not quiet:
        filled = {name for row in rows for name, value in row.items() if value not in (None, "")}
        headings = [name for name in rows[0] if name in filled - OUT_OF_TABLES]
        print_table(headings, [[cell_text(name, row[name]) for name in headings] for row in rows])
        say(f"results: {folder / 'index.html'}")


def _code(results: Sequence[BatchResult]) -> int:
    codes = {result.code for result in results} - {0}
    return 0 if not codes else ANSWER_IS_NO if codes == {ANSWER_IS_NO} else 1


class _Stopped(BaseException):
    """A signal asked the command to end."""

    def __init__(self, number: int) -> None:
        self.number = number


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Turn signals that end a process into an exception."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Stopped(number)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _unstoppable() -> Iterator[None]:
    """While results are written, further signals are ignored."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

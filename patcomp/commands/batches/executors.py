"""What runs the conversions of a batch: processes of this machine, a cluster of Dask, or one of Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

from patcomp.commands.batches.jobs import BatchJob, BatchResult, run_job
from patcomp.commands.common import UsageError
from patcomp.errors import PatcompError

LOCAL = "local"


def convert_batch(
    jobs: Sequence[BatchJob],
    executor: Executor | None = None,
    *,
    workers: int = 1,
    records: str | None = None,
    done: Callable[[BatchResult], object] = lambda result: None,
) -> list[BatchResult]:
    """Convert many models, each in a process of its own.

        results = convert_batch(jobs_in("models.toml"), workers=4)
        assert all(results)

    Args:
        jobs: the conversions; `patcomp.commands.batch.jobs_in` reads them from a file.
        executor: runs the jobs: any `concurrent.futures.Executor`, such as that of Dask, whose workers see the same
            files. By default a pool of threads in this process, each of which waits for its conversion.
        workers: the size of this pool.
        records: a folder, in which each result is recorded when it is there. A conversion whose record is there is not
            run again, if its arguments, the files that these name, the versions and what it wrote are the same.
        done: called with each result when it is there.

    Returns:
        The results in the order of the jobs. A conversion that fails does not end the others.
    """
    listed = list(jobs)
    if executor is None:
        with ThreadPoolExecutor(workers) as pool:
            return convert_batch(listed, pool, records=records, done=done)
    results: dict[str, BatchResult] = {}

    def take(future: Future[BatchResult]) -> None:
        job = futures[future]
        if job.name not in results:
            results[job.name] = _result_of(future, job)
            done(results[job.name])

    futures = {executor.submit(partial(run_job, records=records), job): job for job in listed}
    waiting = set(futures)
    try:
        while waiting:
            ended, waiting = wait(waiting, _SECONDS_BETWEEN_SIGNALS, FIRST_COMPLETED)
            for future in (each for each in futures if each in ended):
                take(future)
    except BaseException:  # a signal, for instance: what is there now counts
        for future in futures:
            if not future.cancel() and future.done():
                take(future)
        raise
    return [results[job.name] for job in listed]


_SECONDS_BETWEEN_SIGNALS = 0.5
"""Python sees a signal that comes just before it waits only when it has waited."""


def _result_of(future: Future[BatchResult], job: BatchJob) -> BatchResult:
    """The result of a job that has ended; that of an executor which lost a worker, for instance, is a failure."""
    if (error := future.exception()) is None:
        return future.result()
    return BatchResult(job.name, 1, 0.0, None, f"error: {type(error).__name__}: {error}", job.model, job.choices)


@contextmanager
def executor_of(text: str, workers: int) -> Iterator[Executor]:
    """The executor that the user names: `local`, `dask:ADDRESS` or `ray:ADDRESS`.

    Raises:
        UsageError: there is none of this name.
        PatcompError: its package is not installed.
        OSError: nobody answers at the address.
    """
    kind, separator, address = text.partition(":")
    if text == LOCAL:
        with ThreadPoolExecutor(workers) as pool:
            yield pool
    elif kind == "dask" and address:
        client = _package("distributed", "dask").Client(address)
        try:
            yield client.get_executor(pure=False)
        finally:
            client.close()
    elif kind == "ray" and separator:
        ray = _package("ray", "ray")
        ray.init(address=address or None, log_to_driver=False)
        try:
            yield _RayExecutor(ray)
        finally:
            ray.shutdown()
    else:
        raise UsageError(f"--executor is local, dask:ADDRESS (dask:tcp://127.0.0.1:8786) or ray:ADDRESS, got {text!r}")


def _package(name: str, extra: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise PatcompError(f'--executor {extra} needs {name} ({error}): pip install "patcomp[{extra}]"') from error


class _RayExecutor(Executor):
    """Ray, which has no executor of its own."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        """Run a function on a worker."""
        future: Future[Any] = self._ray.remote(_called).remote(function, arguments, keywords).future()
        return future


def _called(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return function(*arguments, **keywords)

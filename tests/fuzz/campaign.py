"""Judges many programs in worker processes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context

import torch

import tests.helpers.faster_export  # noqa: F401
from patcomp.emit.native import Native
from tests.fuzz.generator import generate
from tests.fuzz.judge import ABORT, WRONG, Outcome, judge
from tests.fuzz.script import script
from tests.fuzz.shrink import shrunk

CHUNK = 10
"""Programs that a worker takes at a time."""
PROGRAMS_OF_A_WORKER = 200
"""Then new processes take over: PyTorch keeps something of every export. (`max_tasks_per_child` may wait forever.)"""


@dataclass(frozen=True)
class Row:
    """How one program ended; the script of a failure."""

    number: int
    outcome: Outcome
    script: str = ""


def run(seed: int, number: int) -> Row:
    """Draws and judges a program; one that fails is made smaller."""
    name = f"{seed}/{number}"
    program = generate(name)
    outcome = judge(program, _native())
    if not outcome.failed:
        return Row(number, outcome)
    small = shrunk(program, lambda candidate: _alike(judge(candidate, _native()), outcome))
    return Row(number, outcome, script(small, judge(small, _native()), name))


@cache
def _native() -> Native:
    return Native()


def _alike(first: Outcome, second: Outcome) -> bool:
    """Whether two failures may have one cause: of one kind, with the same beginning of an error."""
    start = 0 if second.kind == WRONG else 25
    messages = [outcome.message.rpartition(": ")[2] for outcome in (first, second)]
    return first.kind == second.kind and messages[0][:start] == messages[1][:start]


def campaign(seed: int, numbers: list[int], jobs: int) -> Iterator[Row]:
    """Judges programs, in the order in which they come to an end."""
    share = jobs * PROGRAMS_OF_A_WORKER
    for start in range(0, len(numbers), share):
        yield from _share(seed, numbers[start : start + share], jobs)


def _share(seed: int, numbers: list[int], jobs: int) -> Iterator[Row]:
    """Judges programs in new processes."""
    chunks = [numbers[start : start + CHUNK] for start in range(0, len(numbers), CHUNK)]
    broken: list[int] = []
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        futures: dict[Future[list[Row]], list[int]] = {pool.submit(_chunk, seed, chunk): chunk for chunk in chunks}
        for future in as_completed(futures):
            try:
                yield from future.result()
            except BrokenProcessPool:
                broken += futures[future]
    for number in broken:  # one of them ended a worker, and the others were not judged
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            try:
                yield from pool.submit(_chunk, seed, [number]).result()
            except BrokenProcessPool:
                yield Row(number, Outcome(ABORT, "the process that converts died"))


def _chunk(seed: int, numbers: list[int]) -> list[Row]:
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    return [run(seed, number) for number in numbers]

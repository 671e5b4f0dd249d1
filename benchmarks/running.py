"""Programs of both compilers on the Linux runtime: how many ops they have, and what a run costs.

The programs of a model run in one process, in turns, so that a ratio is that of two runs one after the other.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.models import build

if TYPE_CHECKING:
    from benchmarks.measurement import Job

PROGRAMS = (("coreai_torch", ""), ("patcomp", ""), ("patcomp", "cpu"))
"""The compiler and the target of each program; the others are compared with the first that there is."""
WARM_UP = 2
LEAST, MOST = 7, 500
"""How often each program runs, before and while it is measured."""
SECONDS = 4.0
"""How long programs run in turns if that is more often than the least and less often than the most."""

Outputs = list[np.ndarray]


def run(job: Job, compiler: object) -> dict[str, Any]:
    """The ops, the CPU milliseconds of a run and the deviation of each saved program of a model."""
    jobs = [replace(job, compiler=name, target=target) for name, target in PROGRAMS]
    saved = [each for each in jobs if each.asset.exists()]
    outputs, seconds = asyncio.run(_turns(saved))
    programs = []
    for each, made, times in zip(saved, outputs, seconds, strict=True):
        ratios = [mine / first for mine, first in zip(times, seconds[0], strict=True)]
        low, _, high = quantiles(times, n=4)
        programs.append({
            "compiler": each.compiler, "target": each.target, "ops": ops_of(each), "runs": len(times),
            "milliseconds": median(times) * 1e3, "quartiles": [low * 1e3, high * 1e3], "ratio": median(ratios),
            "deviation": max(deviation(*pair) for pair in zip(made, outputs[0], strict=True)),
        })  # fmt: skip
    return {"programs": programs}


def ops_of(job: Job) -> int:
    """How many ops an asset has, without constants; those of a graph count once, and so does each call of it."""
    from patcomp.emit.inspection import inspect_asset

    return sum(count for name, count in inspect_asset(job.asset).ops.items() if name != "coreai.constant")


def deviation(made: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.abs(made - wanted).max() / max(1e-30, np.abs(wanted).max()))


async def _turns(jobs: list[Job]) -> tuple[list[Outputs], list[list[float]]]:
    """The outputs of each program, and the CPU seconds of its runs; the order is reversed in every second turn."""
    from coreai.authoring.asset import AIModelAsset
    from coreai.runtime import NDArray

    arrays = [tensor.numpy() for tensor in build(jobs[0].model)[1]]
    narrow = [array.astype(np.int32) if array.dtype == np.int64 else array for array in arrays]
    seconds: list[list[float]] = [[] for _ in jobs]
    async with AsyncExitStack() as stack:
        calls = []
        for job in jobs:
            loaded = await stack.enter_async_context(AIModelAsset.load(str(job.asset)).executable())
            function = loaded.load_function("main")
            names = function.desc.input_names
            calls.append((function, {name: NDArray(array) for name, array in zip(names, narrow, strict=True)}))
        outputs = []
        for function, inputs in calls:
            for _ in range(WARM_UP):
                results = await function(inputs)
            outputs.append([np.array(value.numpy()) for value in results.values()])
        order, end = list(range(len(calls))), time.process_time() + SECONDS
        while len(seconds[0]) < LEAST or (len(seconds[0]) < MOST and time.process_time() < end):
            for index in order:
                function, inputs = calls[index]
                started = time.process_time()
                await function(inputs)
                seconds[index].append(time.process_time() - started)
            order.reverse()
    return outputs, seconds

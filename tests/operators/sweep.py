"""Converts OpInfo's samples and compares evaluator and runtime with eager PyTorch.

    python -m tests.operators.sweep --dtype float32                  # everything, results in sweep.jsonl
    python -m tests.operators.sweep --only cumsum --limit 5 --show   # some operators, failures printed

Each sample ends as one of: `pass`; `refused`, with the compiler's reasons; `mismatch`, numbers other than eager's;
`crash`, the runtime died; `error`, anything else; `not exported`, when `torch.export` does not take it.
An operator passes when all samples that export do.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import logging
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch.utils import _pytree as pytree

from patcomp import TorchConverter, UnsupportedError, get_decomp_table
from patcomp.emit.native import Native, NativeError, ProcessDied
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.inputs import prepare_input
from patcomp.frontend_torch.fx.nodes import operator_name
from tests.helpers.time_limits import TimeIsUp, time_limit
from tests.operators.samples import DTYPES, OpInfo, Sample, name_of, operators, samples

SECONDS = 120
"""How long one sample may take."""


@dataclass(frozen=True)
class Outcome:
    """How one sample ended."""

    kind: str
    message: str = ""
    ops: frozenset[tuple[str, int]] = frozenset()
    """The ops of the program, before and after it is decomposed, each with a rank of its first tensor."""
    refused: frozenset[tuple[str, str]] = frozenset()
    """The ops that were refused, and why."""


@dataclass
class Row:
    """An operator with one element type."""

    op: str
    dtype: str
    counts: dict[str, int] = field(default_factory=dict)
    """Number of samples by how they ended."""
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    """Kind, sample and message; the first of each kind and message."""
    ops: dict[str, list[int]] = field(default_factory=dict)
    """The ops of the samples that pass, with the ranks of their first tensors."""
    refused: dict[str, list[str]] = field(default_factory=dict)
    """The ops that were refused, and why."""
    seconds: float = 0.0

    @property
    def exported(self) -> int:
        """The number of samples that count."""
        return sum(number for kind, number in self.counts.items() if kind != "not exported")

    @property
    def passed(self) -> bool:
        """Whether every sample that exports passes, and there is one."""
        return 0 < self.exported == self.counts.get("pass", 0)


@cache
def _native() -> Native:
    return Native()


def run_sample(sample: Sample, native: Native, *, runtime: bool = True, wide: str = "narrow") -> Outcome:
    """Exports, converts and runs one sample; `wide` is the choice for 64-bit numbers."""
    try:
        whole = torch.export.export(sample.program, sample.program.tensors, strict=False)
        exported = whole.run_decompositions(get_decomp_table())
    except TimeIsUp:
        raise
    except Exception as error:  # PyTorch's exporter raises whatever its tracers raise
        return Outcome("not exported", f"{type(error).__name__}: {error}"[:200])
    ops = frozenset(item for program in (whole, exported) for item in _ops(program))
    try:
        converter = TorchConverter(int64=wide, float64=wide)
        program = converter.add_exported_program(exported, mutated_inputs="output").to_coreai()
        returned = program.output_names()[: len(sample.expected)]  # and then what inputs are written with
        types = {name: argument.type for name, argument in zip(
            program.input_names(), program.module.graph("main").regions[0].block.args, strict=True)}  # fmt: skip
        inputs = {name: prepare_input(tensor, types[name], name)  # type: ignore[arg-type]
                  for name, tensor in zip(types, sample.program.tensors, strict=True)}  # fmt: skip
        outputs = program.run(inputs)
        message = mismatch(sample, [outputs[name] for name in returned], wide)
        if message:
            return Outcome("mismatch", f"evaluator: {message}", ops)
        if runtime:
            outputs = native.run(program.module, inputs)
            message = mismatch(sample, [outputs[name] for name in returned], wide)
            if message:
                return Outcome("mismatch", f"runtime: {message}", ops)
    except UnsupportedError as error:
        refused = frozenset((problem.op, problem.message) for problem in error.problems)
        reasons = sorted(f"{op}: {message}" for op, message in refused)
        return Outcome("refused", "; ".join(reasons)[:600], ops, refused)
    except ProcessDied as error:
        return Outcome("crash", f"{error}"[-400:], ops)
    except NativeError as error:
        return Outcome("error", f"runtime: {error}"[:600], ops)
    except TimeIsUp:
        raise
    except Exception as error:  # a defect: to be listed, not to end the sweep
        return Outcome("error", f"{type(error).__name__}: {error}"[:600], ops)
    return Outcome("pass", "", ops)


def _ops(program: torch.export.ExportedProgram) -> Iterator[tuple[str, int]]:
    for node in program.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            values = [source.meta.get("val") for source in node.all_input_nodes] + [node.meta.get("val")]
            ranks = [value.dim() for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]
            yield operator_name(node), ranks[0] if ranks else 0


TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Relative; float32 has 1e-4. Absolute: a tenth of it, and of the largest value; or one unit in its last place, as the
runtime adds the products of a matrix product in a half type."""

_NARROW = {
    torch.int64: torch.int32,
    torch.uint64: torch.uint32,
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
}


ANY_OF_EQUALS = {"argsort": 0, "kthvalue": 1, "median": 1, "mode": 1, "nanmedian": 1, "sort": 1, "topk": 1}
"""Operators with an output of positions, and which it is; which of equal values they take PyTorch leaves open."""


def _same_places(sample: Sample, given: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether positions are of the values that eager found, along any dimension along which eager's are."""
    x, values = sample.program.tensors[0], sample.expected[: ANY_OF_EQUALS[sample.program.op.name]]
    for dim in range(x.dim()):
        if wanted.dim() < x.dim():
            there, here, *results = (result.unsqueeze(dim) for result in (wanted, given, *values))
        else:
            there, here, results = wanted, given, values
        try:
            taken = [x.gather(dim, places.long()) for places in (there, here)]
            agrees = [torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairwise([*taken, *results])]
        except RuntimeError:  # positions along another dimension
            continue
        distinct = torch.equal(here.sort(dim).values.diff(dim=dim) == 0, torch.zeros_like(here.diff(dim=dim)).bool())
        if all(agrees) and distinct:
            return True
    return False


_TRUTH = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}


def _truth(sample: Sample) -> list[torch.Tensor]:
    """What eager gives for the same numbers in float64; nothing where an operator does not take it."""
    program = copy(sample.program)
    program.leaves = [_TRUTH.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf for leaf in program.leaves]
    try:
        with torch.no_grad():
            return program(
                *(tensor.to(_TRUTH.get(tensor.dtype, tensor.dtype), copy=True) for tensor in program.tensors)
            )
    except Exception:  # PyTorch's own check of an argument
        return []


def _no_worse(
    sample: Sample, index: int, given: torch.Tensor, wanted: torch.Tensor, close: Callable[..., torch.Tensor]
) -> bool:
    """Whether every number that is not close to eager's is at least as near to the one of float64.

    Eager itself is inaccurate where it rounds between the steps of an operator or sums in a half type. Where a step
    overflows in it, a number has to be close to the one of float64.
    """
    truth = _truth(sample)
    if len(truth) != len(sample.expected) or not (wanted.is_floating_point() and truth[index].dtype == torch.float64):
        return False
    ours, eagers = ((numbers.double() - truth[index]).abs() for numbers in (given, wanted))
    right = close(given.double(), truth[index])
    return bool((close(given, wanted) | ((ours <= eagers) & (eagers.isfinite() | right))).all())


def mismatch(sample: Sample, outputs: list[Any], wide: str = "narrow") -> str:
    """What is other than eager's, or an empty text; numbers may be nearer to those of float64 than eager's."""
    if len(outputs) != len(sample.expected):
        return f"{len(outputs)} outputs for {len(sample.expected)}"
    inputs = [tensor.dtype for tensor in sample.program.tensors]
    for index, (value, expected) in enumerate(zip(outputs, sample.expected, strict=True)):
        given = to_tensor(np.asarray(value) if np.isscalar(value) else value)
        wanted = expected.detach()
        if wide == "narrow":
            wanted = wanted.to(_NARROW.get(wanted.dtype, wanted.dtype))
        if given.shape != wanted.shape or given.dtype != wanted.dtype:
            return f"output {index} is {given.dtype}{list(given.shape)} for {wanted.dtype}{list(wanted.shape)}"
        exact = not (wanted.is_floating_point() or wanted.is_complex())
        types = (*inputs, wanted.dtype)
        relative = 0.0 if exact else max(TOLERANCES.get(dtype, 1e-4) for dtype in types)
        unit = 0.0 if exact else max(torch.finfo(dtype).eps for dtype in types if dtype in {*TOLERANCES, wanted.dtype})
        finite = torch.zeros(1) if exact else wanted[torch.isfinite(wanted)].abs()
        scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
        close = partial(torch.isclose, rtol=relative, atol=max(relative / 10, unit) * scale, equal_nan=True)
        if not close(given, wanted).all() and not _no_worse(sample, index, given, wanted, close):
            if ANY_OF_EQUALS.get(sample.program.op.name) == index and _same_places(sample, given, wanted):
                continue
            return f"output {index}: {given.flatten()[:8].tolist()} for {wanted.flatten()[:8].tolist()}"
    return ""


def sweep(op: OpInfo, dtype: str, limit: int | None, *, runtime: bool = True, wide: str = "narrow") -> Row:
    """Runs the samples of an operator."""
    row = Row(name_of(op), dtype)
    counts: Counter[str] = Counter()
    ops: defaultdict[str, set[int]] = defaultdict(set)
    refused: defaultdict[str, set[str]] = defaultdict(set)
    started = time.perf_counter()
    seen: set[tuple[str, str]] = set()
    for sample in samples(op, DTYPES[dtype], limit):
        try:
            with time_limit(SECONDS):
                outcome = run_sample(sample, _native(), runtime=runtime, wide=wide)
        except TimeIsUp as error:
            outcome = Outcome("error", str(error))
            _native().close()
            _native.cache_clear()
        counts[outcome.kind] += 1
        for name, reason in outcome.refused:
            refused[name].add(reason)
        for name, rank in outcome.ops if outcome.kind == "pass" else ():
            ops[name].add(rank)
        key = (outcome.kind, outcome.message)
        if outcome.kind != "pass" and key not in seen:
            seen.add(key)
            row.failures.append((outcome.kind, sample.text, outcome.message))
    row.counts = dict(sorted(counts.items()))
    row.ops = {name: sorted(ranks) for name, ranks in sorted(ops.items())}
    row.refused = {name: sorted(reasons) for name, reasons in sorted(refused.items())}
    row.seconds = round(time.perf_counter() - started, 2)
    return row


def _job(name: str, dtype: str, limit: int | None, runtime: bool, wide: str) -> Row:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    op = next(op for op in operators(DTYPES[dtype]) if name_of(op) == name)
    return sweep(op, dtype, limit, runtime=runtime, wide=wide)


def summary(rows: list[Row]) -> str:
    """The closing line: operators that pass fully, of those with a sample that exports."""
    countable = [row for row in rows if row.exported]
    passed = sum(row.passed for row in countable)
    kinds = Counter(kind for row in rows for kind, number in row.counts.items() for _ in range(number))
    share = 100 * passed / max(len(countable), 1)
    samples_ = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    return f"{passed} of {len(countable)} operators pass fully ({share:.1f} %); samples: {samples_}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=list(DTYPES))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="operators, as shell patterns such as 'fft.*'")
    parser.add_argument("--limit", type=int, help="samples of each operator")
    parser.add_argument("--every", type=int, default=1, help="only every n-th operator")
    parser.add_argument("--wide", choices=["narrow", "keep"], default="narrow", help="the choice for 64-bit numbers")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-runtime", action="store_true", help="only the reference evaluator")
    parser.add_argument("--output", type=Path, help="file for the rows, a JSON object a line")
    parser.add_argument("--show", action="store_true", help="print every failure")
    options = parser.parse_args()
    console = Console(width=200)
    for dtype in options.dtype:
        names = [name_of(op) for op in operators(DTYPES[dtype])]
        if options.only:
            names = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in options.only)]
        names = names[:: options.every]
        rows: list[Row] = []
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            jobs = [
                pool.submit(_job, name, dtype, options.limit, not options.no_runtime, options.wide) for name in names
            ]
            for job in track(jobs, description=dtype, console=Console(stderr=True), disable=not sys.stderr.isatty()):
                row = job.result()
                rows.append(row)
                if options.output:
                    with options.output.open("a") as file:
                        file.write(json.dumps(asdict(row)) + "\n")
                if options.show and not row.passed:
                    console.print(f"[bold]{row.op}[/] {dtype} {row.counts}", highlight=False)
                    for failure in row.failures:
                        console.print("   ", " | ".join(failure), markup=False, highlight=False)
        console.print(f"{dtype}: {summary(rows)}", highlight=False)


if __name__ == "__main__":
    main()

"""Operators with an open batch, converted in three ways: as exported, saved and loaded, and decomposed.

    python -m tests.operators.ways                     # the examples of Core ATen and one sample of each operator
    python -m tests.operators.ways --only 'aten.*' --show
    python -m tests.operators.ways --results FILE      # may be stopped, and goes on where it was

An open batch may begin at 1 or at 2, or PyTorch decides (`Dim.AUTO`). All three ways convert or none does, and each
gives eager's numbers at three sizes.
"""

from __future__ import annotations

import argparse
import fnmatch
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.export import ExportedProgram

from patcomp import TorchConverter, UnsupportedError
from tests.helpers.ways import BATCHES, WAYS
from tests.operators.core import EXAMPLES
from tests.operators.dynamic import core_sample
from tests.operators.samples import Program, Sample, name_of, operators, samples
from tests.operators.sweep import TimeIsUp, mismatch, time_limit

PASS, GUARDED, REFUSED, NOT_EXPORTED, DISAGREE = "pass", "guarded", "refused", "not exported", "disagree"
"""A guarded program refuses batches that PyTorch takes, because its ops are taken apart for others."""


def export(program: Program, batch: str) -> ExportedProgram:
    """Exports with an open batch: the first dimension of all tensors in which it is as long as in the first one."""
    dim, length = BATCHES[batch](), program.tensors[0].shape[0]
    shapes = [{0: dim} if x.dim() and x.shape[0] == length else None for x in program.tensors]
    return torch.export.export(program, program.tensors, dynamic_shapes=(tuple(shapes),), strict=False)


def is_batched(sample: Sample) -> bool:
    """Whether a sample has a batch that may be open."""
    tensors = sample.program.tensors
    return bool(tensors) and tensors[0].dim() > 0 and tensors[0].shape[0] > 1


def calls(sample: Sample, batch: str) -> Iterator[Sample]:
    """The sample and the same call of other batches: the smallest one and a larger one, as far as eager takes them."""
    yield sample
    length = sample.program.tensors[0].shape[0]
    for size in (1 if batch == "from 1" else 2, length + 15):
        program = copy(sample.program)
        rows = torch.arange(size) % length
        program.tensors = tuple(x[rows] if x.dim() and x.shape[0] == length else x for x in program.tensors)
        try:
            with torch.no_grad():
                yield Sample(program, program(*(x.clone() for x in program.tensors)), f"{sample.text}, batch {size}")
        except Exception:  # eager does not take the size
            continue


def outcomes(sample: Sample, batch: str) -> dict[str, tuple[str, str]]:
    """By way: how it ends, and why; empty if PyTorch does not export the sample with this batch."""
    try:
        exported = export(sample.program, batch)
    except TimeIsUp:
        raise
    except Exception:  # PyTorch's exporter raises whatever its tracers raise
        return {}
    if not exported.range_constraints:  # the batch became static
        return {}
    return {name: _outcome(sample, batch, exported, way) for name, way in WAYS.items()}


def _outcome(
    sample: Sample, batch: str, exported: ExportedProgram, way: Callable[[ExportedProgram], ExportedProgram]
) -> tuple[str, str]:
    try:
        changed = way(exported)
    except TimeIsUp:
        raise
    except Exception as error:  # neither PyTorch's serializer nor its decompositions take all programs
        return NOT_EXPORTED, f"{type(error).__name__}: {error}"[:200]
    try:
        program = TorchConverter().add_exported_program(changed).to_coreai()
    except UnsupportedError as error:
        return REFUSED, "; ".join(sorted({f"{p.op}: {p.message}" for p in error.problems}))[:600]
    for call in calls(sample, batch):
        if [x.dim() for x in call.expected] != [x.dim() for x in sample.expected]:
            continue  # a squeeze, for which export takes an open dimension as one that is never 1
        try:
            with torch.no_grad():
                outputs = program.run(*call.program.tensors)
        except Exception as error:
            if not _takes(exported, call):
                continue
            if "the model was exported for sizes where" in str(error):
                return GUARDED, f"{call.text}: {error}"
            return "error", f"{call.text}: {type(error).__name__}: {error}"[:600]
        if message := mismatch(call, list(outputs)):
            return "wrong", f"{call.text}: {message}"
    return PASS, ""


def _takes(exported: ExportedProgram, call: Sample) -> bool:
    """Whether PyTorch's own exported program takes the sizes of a call."""
    try:
        exported.module()(*call.program.tensors)
    except Exception:  # a guard
        return False
    return True


def disagreement(found: Mapping[str, tuple[str, str]]) -> str:
    """What is wrong with the outcomes of a sample; empty if all ways end alike and none is wrong."""
    found = {way: outcome for way, outcome in found.items() if outcome[0] != NOT_EXPORTED}
    kinds = {kind for kind, _ in found.values()}
    if len(kinds) <= 1 and kinds <= {PASS, GUARDED, REFUSED}:
        return ""
    return "; ".join(f"{way}: {kind} {message}".strip() for way, (kind, message) in found.items())


def _rows(name: str, sample: Sample) -> Iterator[str]:
    """The outcomes of a sample as lines: name, batch, way, kind and message, with bars between them."""
    for batch in BATCHES:
        try:
            with time_limit(60):
                rows = outcomes(sample, batch)
                if message := disagreement(rows):
                    rows["all ways"] = DISAGREE, f"{sample.text}: {message}"
        except TimeIsUp as error:
            rows = {"all ways": ("time is up", f"{sample.text}: {error}")}
        for way, (kind, message) in rows.items():
            yield "|".join((name, batch, way, kind, message.replace("\n", " ")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="shell patterns of names")
    parser.add_argument("--limit", type=int, default=1, help="samples of each operator of OpInfo")
    parser.add_argument("--show", action="store_true", help="print refusals and guards, too")
    parser.add_argument("--results", type=Path, help="a file of outcomes; what it has is not run again")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    infos = {name_of(op): op for op in operators(torch.float32)}
    rows = options.results.read_text().splitlines() if options.results and options.results.exists() else []
    known = {row.split("|")[0] for row in rows}
    names = (n for n in (*sorted(EXAMPLES), *infos) if any(fnmatch.fnmatch(n, pattern) for pattern in options.only))
    for name in names:
        if name in known:
            continue
        given = [core_sample(name)] if name in EXAMPLES else samples(infos[name], torch.float32, 4)
        found = [row for sample in list(filter(is_batched, given))[: options.limit] for row in _rows(name, sample)]
        rows += found
        if options.results:
            with options.results.open("a") as file:
                file.writelines(f"{row}\n" for row in found or [f"{name}|||no batch|"])
        for row in found:
            kind = row.split("|")[3]
            if kind not in (PASS, GUARDED, REFUSED, NOT_EXPORTED) or (options.show and kind in (GUARDED, REFUSED)):
                print(row, flush=True)
    counts = Counter(tuple(row.split("|")[1:4]) for row in rows)
    table = Table("batch", "way", *(kinds := sorted({kind for *_, kind in counts})))
    for batch in BATCHES:
        for way in (*WAYS, "all ways"):
            table.add_row(batch, way, *(str(counts[batch, way, kind]) for kind in kinds))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

"""One measurement of one compiler, in a process of its own; `benchmarks.suite` starts it.

    python -m benchmarks.measurement '{"task": "convert", "model": "llama-4", "compiler": "patcomp", ...}'

The last line on standard output is the result as JSON. The compiler is a module with the names `TorchConverter` and
`get_decomp_table`: `patcomp`, or `coreai_torch` in the environment of another Python. Nothing here imports patcomp
when it measures the other one. All times are CPU seconds of the process, with its threads.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.models import build, declare_torchvision_operators
from benchmarks.running import run

Seconds = dict[str, float]
_OP = re.compile(r"^\s+(?:%[^=]* = )?[a-z]\w*(?:\.\w+)+ ", re.MULTILINE)


@dataclass(frozen=True)
class Job:
    """What to measure; `form` is `exported` or `decomposed`, `folder` has what is saved between jobs, `target` and
    `writer` are patcomp's arguments."""

    task: str
    model: str
    compiler: str
    form: str
    folder: str
    target: str = ""
    writer: str = ""

    @property
    def path(self) -> Path:
        """The saved program. Each compiler has a decomposition table of its own."""
        form = self.form if self.form == "exported" else f"{self.form}-{self.compiler}"
        return Path(self.folder, f"{self.model}-{form}.pt2")

    @property
    def asset(self) -> Path:
        """The program as `benchmarks.running` runs it."""
        return Path(self.folder, f"{self.model}-{self.compiler}{self.target and '-'}{self.target}.aimodel")


@contextmanager
def timed(seconds: Seconds, name: str) -> Iterator[None]:
    """Enter the CPU seconds of the block. They do not include the collection of earlier garbage."""
    gc.collect()
    started = time.process_time()
    yield
    seconds[name] = time.process_time() - started


def memory(field: str) -> int | None:
    """`VmRSS`, the memory that the process has, or `VmHWM`, its peak, in bytes; None on other systems than Linux."""
    status = Path("/proc/self/status")
    return int(status.read_text().split(f"{field}:")[1].split()[0]) * 1024 if status.exists() else None


def reset_peak_memory() -> None:
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def given_program(job: Job, compiler: ModuleType) -> torch.export.ExportedProgram:
    """The program to convert, as saved before, or made anew."""
    if job.path.exists():
        return torch.export.load(job.path)
    if job.form == "decomposed":
        return given_program(replace(job, form="exported"), compiler).run_decompositions(compiler.get_decomp_table())
    return torch.export.export(*build(job.model))


def prepare(job: Job, compiler: ModuleType) -> dict[str, Any]:
    """Save the program, so that no measurement of a conversion has to export it."""
    torch.export.save(given_program(job, compiler), job.path)
    return {}


def save(job: Job, compiler: ModuleType) -> dict[str, Any]:
    """Save an asset, to be run."""
    converter = compiler.TorchConverter().add_exported_program(given_program(job, compiler))
    options = {"target": job.target} if job.target else {}
    converter.to_coreai(**options).save_asset(job.asset)
    return {}


def conversion(job: Job, compiler: ModuleType, program: torch.export.ExportedProgram) -> tuple[Any, Seconds]:
    """The converted program, and the CPU seconds of each stage."""
    catalog: dict[str, Any] = {}
    kind, _, number = job.model.partition("-")
    if kind == "rules":
        from benchmarks.rules import made_up_rules

        catalog = {"catalog": [made_up_rules(int(number))]}
    seconds: Seconds = {}
    with timed(seconds, "staging"):
        converter = compiler.TorchConverter(**catalog).add_exported_program(program)
    with timed(seconds, "to_coreai"):
        result = converter.to_coreai()
    return result, seconds


def convert(job: Job, compiler: ModuleType) -> dict[str, Any]:
    """A first and a second conversion, and the text."""
    program = given_program(job, compiler)
    found: dict[str, Any] = {"nodes": len(program.graph.nodes)}
    found["weights_bytes"] = sum(
        value.nbytes for value in (*program.state_dict.values(), *program.constants.values()) if torch.is_tensor(value)
    )
    gc.collect()
    reset_peak_memory()
    before = memory("VmRSS")
    result, found["first"] = conversion(job, compiler, program)
    peak = memory("VmHWM")
    found["peak_bytes"] = None if before is None or peak is None else peak - before
    del result, program
    result, found["second"] = conversion(job, compiler, given_program(job, compiler))  # some change what they are given
    found["stages"] = {report.name: report.seconds for report in getattr(result, "reports", ())}
    if found["stages"]:
        found["stages"] |= {"import": found["second"]["to_coreai"] - sum(found["stages"].values())}
    if job.compiler == "patcomp" or found["weights_bytes"] < 2**26:  # coreai-torch writes weights into the text, as hex
        with timed(found, "text_seconds"):
            text = str(result)
        found |= {"text_bytes": len(text.encode()), "ops": len(_OP.findall(text))}
    return found


def whole(job: Job, compiler: ModuleType) -> dict[str, Any]:
    """The way from a module to a saved asset, export included."""
    model, inputs = build(job.model)
    seconds: Seconds = {}
    with timed(seconds, "export"):
        program = torch.export.export(model, inputs)
    if job.form == "decomposed":
        with timed(seconds, "decompose"):
            program = program.run_decompositions(compiler.get_decomp_table())
    result, converting = conversion(job, compiler, program)
    with tempfile.TemporaryDirectory(dir=job.folder) as folder:
        path = Path(folder, "program.aimodel")
        with timed(seconds, "asset"):
            result.save_asset(path, **({"writer": job.writer} if job.writer else {}))
        size = sum(file.stat().st_size for file in path.rglob("*"))
    return {"seconds": seconds | converting, "asset_bytes": size}


TASKS = {function.__name__: function for function in (prepare, convert, whole, save, run)}


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    job = Job(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    time.perf_counter = time.process_time  # patcomp's reports are to have CPU time, too: others may use the machine
    declare_torchvision_operators()
    found: dict[str, Any] = {}
    with timed(found, "import_seconds"):
        compiler = import_module(job.compiler)
        _ = compiler.TorchConverter, compiler.get_decomp_table  # which a package may import when they are asked for
    found |= TASKS[job.task](job, compiler)
    print(json.dumps(asdict(job) | found))


if __name__ == "__main__":
    main()

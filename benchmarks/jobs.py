"""Where the seconds of whole jobs go: imports, exports, our stages, checks on the runtime, and all else.

    python -m benchmarks.jobs [--layers 28] [--only JOB ...]

Each job is a `patcomp` command in a process of its own, on a model of random weights that is written before. Times are
CPU seconds of that process; what a phase calls of another phase counts for the other one. The checks on the runtime
run in child processes, whose CPU seconds are a column.
"""

from __future__ import annotations

import argparse
import builtins
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from patcomp.commands.tables import print_table

PHASES = {
    "export": ("torch.export:export", "torch.export:draft_export"),
    "way in": ("patcomp.frontend_torch.staging:ready_for_import",),
    "stages": ("patcomp.frontend_torch.history:run_pipeline", "patcomp.frontend_torch.history:import_program"),
    "model": ("torch.nn:Module.__call__",),
    "asset": ("patcomp.program.program:AIProgram.save_asset",),
}
"""The functions of each phase."""


class Clock:
    """CPU seconds of each phase, without those of the phases inside."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._open = ["rest"]
        self._since = time.process_time()

    def switch(self, phase: str | None) -> None:
        """Enter a phase; None leaves the current one."""
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now
        if phase is None:
            self._open.pop()
        else:
            self._open.append(phase)

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time counts for a phase; inside an export, all of it counts for the export."""

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if phase in self._open or "export" in self._open:
                return function(*args, **kwargs)
            self.calls[phase] += 1
            self.switch(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch(None)

        return called


def measure(arguments: list[str]) -> dict[str, Any]:
    """Run a command in this process; the seconds and calls of each phase."""
    clock = Clock()
    builtins.__import__ = clock.timed("imports", builtins.__import__)
    from patcomp.cli import main

    for phase, places in PHASES.items():
        for place in places:
            module, _, path = place.partition(":")
            owner: Any = import_module(module)
            *outer, name = path.split(".")
            for each in outer:
                owner = getattr(owner, each)
            setattr(owner, name, clock.timed(phase, getattr(owner, name)))
    sys.argv = ["patcomp", *arguments]
    started = time.perf_counter()
    try:
        main()
        status: Any = 0
    except SystemExit as ended:
        status = ended.code
    clock.switch("rest")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "status": status,
        "seconds": clock.seconds,
        "calls": clock.calls,
        "children": children.ru_utime + children.ru_stime,
        "wall": time.perf_counter() - started,
    }


def prepare(folder: Path, layers: int) -> dict[str, list[str]]:
    """Write the models of the jobs; the command of each job."""
    from benchmarks.models import declare_torchvision_operators

    declare_torchvision_operators()
    from benchmarks.language import write_checkpoint
    from tests.models.language import vision_checkpoints
    from tests.models.tasks import folders

    for name in ("lm", "bert", "vlm"):
        (folder / name).mkdir()
    write_checkpoint(folder / "lm", layers, 256)
    folders.folder(folder / "bert", "BertForSequenceClassification")
    vision_checkpoints.folder(folder / "vlm")
    bundle = ["convert-lm", str(folder / "lm"), "-o", str(folder / "bundle"), "--no-tokenizer"]
    return {
        "convert FOLDER": ["convert", str(folder / "bert"), "-o", str(folder / "bert.aimodel")],
        f"convert-lm, {layers} layers": bundle,
        "convert-vlm": ["convert-vlm", str(folder / "vlm"), "-o", str(folder / "vlm-bundle")],
        "compress --calibrate": [
            "compress",
            str(folder / "bert"),
            "--config",
            "4bit",
            "--calibrate",
            "inputs",
            "-o",
            str(folder / "small.aimodel"),
        ],
        "demo": ["demo", "-o", str(folder / "demo")],
    }


def main(given: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--only", nargs="+", metavar="JOB", help="the first word of the jobs to run")
    parser.add_argument("--measure", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    phases = ["imports", *PHASES, "rest"]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for job, command in prepare(Path(name), options.layers).items():
            if options.only and job.split()[0].rstrip(",") not in options.only:
                continue
            run = [sys.executable, "-m", "benchmarks.jobs", "--measure", *command]
            done = subprocess.run(run, capture_output=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            if found["status"]:
                raise SystemExit(f"{job} failed: {done.stderr[-2000:]}")
            calls = found["calls"]
            cells = [
                f"{found['seconds'].get(phase, 0):.1f}"
                + (f" ({calls[phase]})" if phase == "export" and phase in calls else "")
                for phase in phases
            ]
            total = sum(found["seconds"].values())
            rows.append([job, f"{total:.1f}", *cells, f"{found['children']:.1f}", f"{found['wall']:.1f}"])
    print_table(["job", "CPU s", *phases, "children", "wall s"], rows)


if __name__ == "__main__":
    main()

"""Speed, memory and size of conversions and programs, and how they compare with coreai-torch.

    python -m benchmarks.suite [--quick] [--only NAME ...] [--rounds 3] [--other-python PYTHON]
    python -m benchmarks.suite --from out/benchmarks/results.json

Each measurement is a process of its own (`benchmarks.measurement`). The folder of `--output` gets the results as JSON,
a page with the tables and a plot of the ratios; `--from` makes tables and plot again from the JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from benchmarks.measurement import Job
from benchmarks.plot import plot
from benchmarks.report import OURS, PEER, Report, Results
from benchmarks.running import PROGRAMS
from patcomp.commands.tables import print_table

ROOT = Path(__file__).parents[1]
COMPARED = (
    *(f"llama-{layers}" for layers in (1, 4, 16, 32, 64)),
    *(
        "gpt2",
        "bert",
        "vit_b_16",
        "resnet50",
        "densenet121",
        "efficientnet_b0",
        "mobilenet_v3_large",
        "unet",
        "t5",
        "whisper",
        "mlp-512",
    ),
)
"""The models that both compilers convert."""
SCALED = (
    *(f"chain-{ops}" for ops in (1000, 3000, 10000, 30000, 50000)),
    *(f"weights-{megabytes}" for megabytes in (10, 100, 1000, 8000)),
    *(f"rules-{count}" for count in (0, 10, 100, 1000)),
)
"""Conversions by patcomp alone: so many ops, megabytes of weights, or rules that do not match a Llama of 16 layers."""
TASKS = ("convert", "whole", "run")
"""Measure conversions, the way from module to asset, and programs."""
QUICK = ("llama-1", "whisper", "mlp-1", "chain-1000", "weights-10", "rules-10")


@dataclass(frozen=True)
class Suite:
    """What runs where."""

    other_python: str | None
    folder: str
    writer: str = ""

    def forms(self, model: str) -> Iterator[tuple[str, str]]:
        """The compilers that convert a model, and the forms they get it in, in the order of a round."""
        compared = not model.startswith(("chain", "weights", "rules"))
        if compared:
            yield OURS, "decomposed"
        if compared and self.other_python:
            yield PEER, "decomposed"
        yield OURS, "exported"

    def preparations(self, model: str, tasks: Sequence[str]) -> list[Job]:
        """The jobs that save what the tasks need."""
        return (self.exports(model) if "convert" in tasks else []) + (self.assets(model) if "run" in tasks else [])

    def assets(self, model: str) -> list[Job]:
        """The jobs that save the assets to be run."""
        compilers = (OURS, PEER) if self.other_python else (OURS,)
        return [
            Job("save", model, compiler, "exported" if compiler == OURS else "decomposed", self.folder, target)
            for compiler, target in PROGRAMS
            if compiler in compilers
        ]

    def exports(self, model: str) -> list[Job]:
        """The jobs that save the programs. Those of large weights are not saved: they export in no time."""
        if model.startswith(("mlp", "weights")):
            return []
        forms = [(OURS, "exported"), *(each for each in self.forms(model) if each != (OURS, "exported"))]
        return [Job("prepare", model, compiler, form, self.folder) for compiler, form in forms]

    def measurements(self, model: str) -> list[Job]:
        """The jobs of one round. Ways to an asset are those that users go: coreai-torch needs decomposed programs."""
        jobs = [Job("convert", model, compiler, form, self.folder) for compiler, form in self.forms(model)]
        ways = [(PEER, "decomposed"), (OURS, "exported")] if len(jobs) > 1 else []
        ways = [(compiler, form) for compiler, form in ways if compiler == OURS or self.other_python]
        jobs += [
            Job("whole", model, compiler, form, self.folder, writer=self.writer if compiler == OURS else "")
            for compiler, form in ways
        ]
        return [*jobs, Job("run", model, OURS, "exported", self.folder)]

    def run(self, job: Job) -> dict[str, Any]:
        """Measure in a new process. If that fails, the result has the last line that it wrote, as `error`."""
        python = self.other_python if job.compiler == PEER else sys.executable
        command = [str(python), "-m", "benchmarks.measurement", json.dumps(asdict(job))]
        load = os.getloadavg()[0]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # it would compile our files in every process
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            written = done.stderr.strip().splitlines() or [""]
            return asdict(job) | {"load": load, "error": f"exit status {done.returncode}: {written[-1][:200]}"}
        return json.loads(done.stdout.splitlines()[-1]) | {"load": load}


def machine(other_python: str | None) -> dict[str, Any]:
    """What the numbers depend on."""
    described = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else ""
    names = re.findall(r"^model name\s*: (.*)$", described, re.MULTILINE)
    versions = {"Python": platform.python_version(), "PyTorch": version("torch"), "patcomp": version("patcomp")}
    if other_python:
        command = [other_python, "-c", "from importlib.metadata import version; print(version('coreai-torch'))"]
        versions["coreai-torch"] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    cpu = names[0] if names else platform.processor()
    load = os.getloadavg()[0]
    return {"date": str(date.today()), "cpu": cpu, "cores": os.cpu_count(), "load": load, "versions": versions}


def measure(models: Sequence[str], rounds: int, other_python: str | None, tasks: Sequence[str], writer: str) -> Results:
    """All measurements. In each round the compilers alternate, in the other order every second time."""
    results: Results = {"machine": machine(other_python), "measurements": []}
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        for model in models:
            with tempfile.TemporaryDirectory() as folder:  # programs are large, so those of one model at a time
                suite = Suite(other_python, folder, writer)
                jobs = [job for job in suite.measurements(model) if job.task in tasks]
                preparations = suite.preparations(model, tasks)
                bar = progress.add_task(model, total=len(preparations) + rounds * len(jobs))
                for job in preparations:
                    prepared = suite.run(job)
                    results["measurements"] += [prepared | {"round": 0}] if "error" in prepared else []
                    progress.advance(bar)
                for number in range(rounds):
                    for job in jobs if number % 2 == 0 else reversed(jobs):
                        results["measurements"].append({"round": number} | suite.run(job))
                        progress.advance(bar)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"one round of {', '.join(QUICK)}")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(COMPARED + SCALED)}, or another size")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--other-python", help="Python of an environment with coreai-torch and transformers")
    parser.add_argument("--writer", choices=("python", "coreai"), default="", help="what writes patcomp's assets")
    parser.add_argument("--output", type=Path, default=Path("out/benchmarks"), metavar="FOLDER")
    parser.add_argument("--from", dest="saved", type=Path, metavar="RESULTS", help="show these results again")
    options = parser.parse_args(arguments)
    if options.saved:
        results = json.loads(options.saved.read_text())
    else:
        models = options.only or (QUICK if options.quick else COMPARED + SCALED)
        rounds = options.rounds or (1 if options.quick else 3)
        results = measure(models, rounds, options.other_python, options.tasks, options.writer)
    report = Report(results)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "results.json").write_text(json.dumps(results, indent=1))
    (options.output / "report.md").write_text(report.markdown())
    plot(report.ratios(), options.output / "ratios.svg")
    print(report.conditions())
    for title, headings, rows in report.tables():
        print(f"\n{title}")
        print_table(headings, rows)


if __name__ == "__main__":
    main()

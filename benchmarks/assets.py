"""What writing an asset costs beside SHA-256 and one copy of its weights: CPU seconds and memory.

    python -m benchmarks.assets [--megabytes 2000] [--rounds 3] [--writers python coreai]

The weights of eight linear layers are mapped from files of holes; the asset takes their size on the disk. Each
measurement is a process of its own, and a round has all of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from benchmarks.measurement import memory, reset_peak_memory
from benchmarks.models import build
from patcomp import AIProgram, TorchConverter
from patcomp.commands.tables import print_table
from patcomp.ir.pages import release

COPY = "SHA-256 and one copy"
BLOCK = 1 << 22


def measured(what: str, megabytes: int, folder: Path) -> dict[str, float]:
    """The CPU seconds, with all threads, and the bytes of memory above those before, of one way to write."""
    model, inputs = build(f"weights-{megabytes}")
    program = TorchConverter().add_exported_program(torch.export.export(model, inputs)).to_coreai()
    reset_peak_memory()
    before, started = memory("VmRSS"), time.process_time()
    if what == COPY:
        copy(program, folder / "copy")
    else:
        program.save_asset(folder / "program.aimodel", writer=what)  # type: ignore[arg-type]
    seconds, peak = time.process_time() - started, memory("VmHWM")
    return {"seconds": seconds, "bytes": (peak or 0) - (before or 0)}


def copy(program: AIProgram, path: Path) -> None:
    """Hash and copy the weights block by block, and let their pages go, as a writer has to."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for blob in program.module.blobs:
            view = memoryview(blob.data).cast("B")
            for start in range(0, len(view), BLOCK):
                block = view[start : start + BLOCK]
                digest.update(block)
                file.write(block)
                release([block])


def main() -> None:
    """Measure each way in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--writers", nargs="+", default=["python", "coreai"])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(options.one, options.megabytes, Path(folder))))
        return
    ways = [COPY, *options.writers]
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way in ways:
            command = [sys.executable, "-m", "benchmarks.assets", "--megabytes", str(options.megabytes), "--one", way]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
    rows = []
    for way, runs in found.items():
        ratios = [run["seconds"] / base["seconds"] for run, base in zip(runs, found[COPY], strict=True)]
        seconds = " ".join(f"{run['seconds']:.2f}" for run in runs)
        rows.append((way, seconds, f"{median(ratios):.2f}", f"{max(run['bytes'] for run in runs) / 1e6:.0f}"))
    print_table(["what", "CPU seconds", "ratio", "most memory, MB"], rows)


if __name__ == "__main__":
    main()

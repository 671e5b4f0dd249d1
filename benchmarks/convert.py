"""Time of `to_coreai()` on a Llama, in microseconds for each FX node, stage by stage.

    python -m benchmarks.convert [--layers 16] [--repeat 3] [--other-python PYTHON]

With `--other-python`, the Python of an environment that has coreai-torch, its `to_coreai()` is timed in the
same run on the same model, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def measure(layers: int, repeat: int) -> dict[str, Any]:
    """The best of some conversions by patcomp: FX nodes, total seconds, and those of each stage."""
    from benchmarks.model import exported_llama
    from patcomp import TorchConverter, get_decomp_table

    exported = exported_llama(layers, get_decomp_table())
    best: dict[str, Any] = {}
    for _ in range(repeat):
        converter = TorchConverter().add_exported_program(exported)
        started = time.perf_counter()
        program = converter.to_coreai()
        seconds = time.perf_counter() - started
        if not best or seconds < best["seconds"]:
            stages = {report.name: report.seconds for report in program.reports}
            best = {"seconds": seconds, "stages": {"import": seconds - sum(stages.values()), **stages}}
    return {"nodes": len(exported.graph.nodes), **best}


def measure_other(python: str, layers: int, repeat: int) -> dict[str, Any]:
    """The best of some conversions by coreai-torch, in another environment."""
    script = Path(__file__).with_name("coreai_torch_worker.py")
    done = subprocess.run(
        [python, str(script), str(layers), str(repeat)], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--other-python", help="Python of an environment with coreai-torch and transformers")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)

    ours = measure(options.layers, options.repeat)
    table = Table(
        "", "FX nodes", "seconds", "microseconds a node", title=f"to_coreai(), Llama of {options.layers} layers"
    )
    table.add_row("patcomp", *_columns(ours["nodes"], ours["seconds"]))
    for stage, seconds in ours["stages"].items():
        table.add_row(f"  {stage}", "", *_columns(ours["nodes"], seconds)[1:])
    ratio = ""
    if options.other_python:
        other = measure_other(options.other_python, options.layers, options.repeat)
        table.add_row(f"coreai-torch {other['version']}", *_columns(other["nodes"], other["seconds"]))
        ratio = f"patcomp takes {ours['seconds'] / other['seconds']:.2f} of coreai-torch's time"
    console = Console()
    console.print(table)
    console.print(ratio, highlight=False)


def _columns(nodes: int, seconds: float) -> tuple[str, str, str]:
    return str(nodes), f"{seconds:.3f}", f"{seconds / nodes * 1e6:.0f}"


if __name__ == "__main__":
    main()

"""Print what proving the conversion of each of the ten networks costs: `python -m tests.proof_of_run`.

Each network is converted and proved in a process of its own. Memory is the largest one of the process so far.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

from patcomp import TorchConverter
from tests.networks.zoo import MODELS, build
from tests.proof_of_run.exported import exported


def _row(name: str) -> str:
    example = build(name)
    exported_program = exported(example.model, example.args)
    started = time.process_time()
    program = TorchConverter().add_exported_program(exported_program).to_coreai()
    converted, before = time.process_time(), _memory()
    proof = program.prove(example.args)
    done = time.process_time()
    proved = sum(each.proved for each in proof.all_stages)
    return (
        f"| {name} | {program.module.op_count()} | {proved} | {proof.equality.value} | {converted - started:.1f} | "
        f"{done - converted:.1f} | {before} | {_memory()} |"
    )


def _memory() -> int:
    """The largest memory of the process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    if sys.argv[1:]:
        print(_row(sys.argv[1]))
    else:
        print("| network | ops | values on symbols | verdict | CPU s to convert | CPU s to prove | MB before | MB |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        for name in MODELS:
            shown = subprocess.run(
                [sys.executable, "-W", "ignore", "-m", "tests.proof_of_run", name], stdout=subprocess.PIPE, text=True,
                check=True,
            )  # fmt: skip
            print(shown.stdout, end="", flush=True)

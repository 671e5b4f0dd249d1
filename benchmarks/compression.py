"""What compression costs and saves: bytes, signal, time and memory of each scheme on whole models.

    python -m benchmarks.compression [--only resnet50 gpt2 ...] [--schemes w8 pal6 ...]

Weights are random, so that only the differences between schemes mean something. Memory is what the process has at most
while it compresses, without what it had before.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import build, declare_torchvision_operators
from patcomp import TorchConverter, get_decomp_table
from patcomp.commands.tables import markdown_table
from patcomp.compression import PRESETS

MODELS = ("vit_b_16", "resnet50", "gpt2", "llama-16")
BUDGETS = ("pal4", "4.5 bits")
"""A scheme for all weights, and a budget that should beat it."""

Row = tuple[str, ...]


def measured(name: str, scheme: str) -> Row:
    """A row of the table: the model, the scheme, and what it costs and saves."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    declare_torchvision_operators()
    model, inputs = build(name)
    arguments: Any = inputs if isinstance(inputs, dict) else tuple(inputs)
    positional, named = ((), arguments) if isinstance(arguments, dict) else (arguments, {})
    with torch.no_grad():
        exported = torch.export.export(model, positional, named).run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    choice: dict[str, Any] = {"bits_per_weight": float(scheme.split()[0])} if "bits" in scheme else {"config": scheme}
    before, started = _peak(), time.process_time()
    examples = (named or positional) if "bits" in scheme else None
    small = program.compress(**choice, inputs=examples)
    seconds, memory = time.process_time() - started, _peak() - before
    report = small.compression
    assert report is not None
    shown = program.compress(**choice, inputs=named or positional).compression
    assert shown is not None
    with tempfile.TemporaryDirectory() as folder:
        small.save_asset(Path(folder) / "small.aimodel")
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    weights = [weight.psnr for weight in report.weights if weight.scheme]
    return (
        name, scheme, f"{report.before / 1e6:.1f}", f"{report.after / 1e6:.1f}", f"{size / 1e6:.1f}",
        f"{min(weights):.1f}", f"{min(shown.output_psnr.values()):.1f}", f"{seconds:.1f}", f"{memory:.0f}",
    )  # fmt: skip


def _peak() -> float:
    """The largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(MODELS), help="models of the suite")
    parser.add_argument("--schemes", nargs="+", default=[*PRESETS, *BUDGETS])
    options = parser.parse_args()
    titles = (
        "model",
        "scheme",
        "weights, MB",
        "become",
        "asset, MB",
        "worst weight, dB",
        "worst output, dB",
        "CPU s",
        "MB",
    )
    rows = []
    for name in options.only:
        for scheme in options.schemes:
            with get_context("spawn").Pool(1) as pool:  # a process of its own, for its memory
                rows.append(pool.apply(measured, (name, scheme)))
            print(*rows[-1], flush=True)
    print(*markdown_table(titles, rows), sep="\n")


if __name__ == "__main__":
    main()

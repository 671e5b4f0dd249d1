"""What compression costs and saves: bytes, signal, time and memory of each scheme on whole models.

    python -m benchmarks.compression [--only resnet50 gpt2 ...] [--schemes w8 pal6 ...] [--other-python PYTHON]

Weights are random, so that only the differences between schemes mean something. Memory is what the process has at most
while it compresses, without what it had before. Seconds of a budget have the runs that show what the outputs lose. An
environment with coreai-opt is `pip install --pre torch==2.13.0 coreai-torch==0.4.3 coreai-opt==0.3.0 scikit-learn`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import patcomp
from benchmarks.models import build, declare_torchvision_operators
from patcomp import TorchConverter, get_decomp_table
from patcomp.commands.tables import markdown_table
from patcomp.compression import PRESETS
from patcomp.evaluate.comparison import compare
from patcomp.evaluate.inputs import call_arguments, named_arguments
from patcomp.program.program import AIProgram

MODELS = ("vit_b_16", "resnet50", "gpt2", "llama-16")
BUDGETS = ("pal4", "4.5 bits")
"""A scheme for all weights, and a budget that should beat it."""

Row = tuple[str, ...]


def measured(name: str, scheme: str, other_python: str | None = None) -> list[Row]:
    """A row of the table for each compiler: the model, the scheme, and what it costs and saves."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    declare_torchvision_operators()
    model, inputs = build(name)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear) and not layer.weight.any():
            torch.nn.init.normal_(layer.weight, std=0.02)  # the head of torchvision's ViT, which hides all errors
    arguments: Any = inputs if isinstance(inputs, dict) else tuple(inputs)
    positional, named = ((), arguments) if isinstance(arguments, dict) else (arguments, {})
    with torch.no_grad():
        exported = torch.export.export(model, positional, named).run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    choice: dict[str, Any] = {"bits_per_weight": float(scheme.split()[0])} if "bits" in scheme else {"config": scheme}
    examples = named or positional
    before, started = _peak(), time.process_time()
    small = program.compress(**choice, inputs=examples if "bits" in scheme else None)
    seconds, memory = time.process_time() - started, _peak() - before
    report = small.compression
    assert report is not None
    shown = report if report.output_psnr else program.compress(**choice, inputs=examples).compression
    assert shown is not None
    weights = [weight.signal for weight in report.weights if weight.scheme and weight.signal is not None]
    with tempfile.TemporaryDirectory() as folder:
        small.save_asset(Path(folder) / "small.aimodel")
        rows = [(
            name, scheme, "patcomp", f"{report.after / 1e6:.1f}", f"{_size(Path(folder) / 'small.aimodel') / 1e6:.1f}",
            f"{min(weights):.1f}", f"{min(shown.output_psnr.values()):.1f}", f"{seconds:.1f}", f"{memory:.0f}",
        )]  # fmt: skip
        if other_python is not None and "bits" not in scheme:
            rows.append(_other(name, scheme, program, examples, other_python, Path(folder)))
    return rows


def _other(name: str, scheme: str, program: AIProgram, examples: Any, python: str, folder: Path) -> Row:
    """The same by coreai-opt's passes on the program that patcomp saved; outputs are those of the runtime."""
    program.save_asset(folder / "float.aimodel")
    script = Path(__file__).with_name("compression_passes.py")
    command = [python, str(script), str(folder / "float.aimodel"), scheme, str(folder / "other.aimodel")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return name, scheme, "coreai-opt", *["-"] * 5, done.stderr.strip().splitlines()[-1][:80]
    cost = json.loads(done.stdout.strip().splitlines()[-1])
    values = named_arguments(program.signature(), *call_arguments(examples))
    exact, close = (patcomp.load(folder / f"{each}.aimodel").run(values) for each in ("float", "other"))
    errors = [compare(key, "runtime", *(torch.as_tensor(each[key]) for each in (exact, close))) for key in exact]
    size, psnr = _size(folder / "other.aimodel"), min(error.psnr for error in errors)
    return (
        name, scheme, "coreai-opt", "-", f"{size / 1e6:.1f}", "-", f"{psnr:.1f}", f"{cost['seconds']:.1f}",
        f"{cost['memory']:.0f}",
    )  # fmt: skip


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _peak() -> float:
    """The largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(MODELS), help="models of the suite")
    parser.add_argument("--schemes", nargs="+", default=[*PRESETS, *BUDGETS])
    parser.add_argument(
        "--other-python", help="the Python of an environment with coreai-opt, whose passes are measured too"
    )
    options = parser.parse_args()
    titles = (
        "model",
        "scheme",
        "by",
        "weights, MB",
        "asset, MB",
        "worst weight, dB",
        "worst output, dB",
        "CPU s",
        "MB",
    )
    rows: list[Row] = []
    for name in options.only:
        for scheme in options.schemes:
            with get_context("spawn").Pool(1) as pool:  # a process of its own, for its memory
                rows += pool.apply(measured, (name, scheme, options.other_python))
            print(*(" ".join(row) for row in rows[-2:]), sep="\n", flush=True)
    print(*markdown_table(titles, rows), sep="\n")


if __name__ == "__main__":
    main()

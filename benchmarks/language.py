"""What the conversion of a large language model costs: seconds and memory of each step.

    python -m benchmarks.language [--layers 16] [--width 2048]

A Llama of random float16 weights is written to a folder, which a process of its own converts. The default has 1.04
billion weights, 2.1 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.measurement import memory, reset_peak_memory
from benchmarks.models import declare_torchvision_operators
from patcomp.commands.tables import print_table

HEADINGS = ("step", "seconds", "CPU seconds", "most memory, GB", "GB before")


def write_checkpoint(folder: Path, layers: int, width: int) -> None:
    """A folder with the configuration and the weights of a Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32_000, hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64,
        num_key_value_heads=width // 256, intermediate_size=11 * width // 4, max_position_embeddings=4096,
        dtype=torch.float16,
    )  # fmt: skip
    torch.set_default_dtype(torch.float16)
    LlamaForCausalLM(config).save_pretrained(folder)


def convert(folder: Path) -> list[tuple[Any, ...]]:
    """Convert a checkpoint; a row for each step."""
    from patcomp_models.language import convert_language_model

    rows: list[tuple[Any, ...]] = []

    @contextmanager
    def step(name: str) -> Iterator[None]:
        reset_peak_memory()
        before, started, processor = memory("VmRSS"), time.perf_counter(), time.process_time()
        yield
        seconds, processor, peak = time.perf_counter() - started, time.process_time() - processor, memory("VmHWM")
        sizes = [f"{(size or 0) / 1e9:.2f}" for size in (peak, before)]
        rows.append((name, f"{seconds:.1f}", f"{processor:.1f}", *sizes))

    convert_language_model(folder, out=folder / "bundle", tokenizer=False, progress=step)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--convert", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    declare_torchvision_operators()
    if options.convert:
        print(json.dumps(convert(options.convert)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), options.layers, options.width)
        command = [sys.executable, "-m", "benchmarks.language", "--convert", folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print_table(HEADINGS, json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()

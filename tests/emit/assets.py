"""Small programs to save, and folders that look like assets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from patcomp.emit.files.replacement import replacing
from patcomp.ir import IRModule, Value, coreai
from tests.helpers.programs import program


def adds(*weights: np.ndarray) -> IRModule:
    """A program that adds weights to its input, one after the other."""
    module = IRModule()

    def body(x: Value) -> Value:
        for weight in weights:
            x = coreai.add(x, coreai.constant(weight))
        return x

    shape = "x".join(map(str, weights[0].shape))
    return program({"x": f"{shape}xf32"}, body, module=module)


def ramp(count: int, start: float = 0.0) -> np.ndarray:
    return np.arange(start, start + count, dtype=np.float32)


FILES = ("main.mlirb", "metadata.json", "initial_state.npz")


def write(folder: Path, content: str) -> None:
    """Writes what looks like an asset, file by file."""
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text(content)


def save(target: Path, content: str, *, force: bool = False) -> None:
    """Replaces an asset as `save_asset` does."""
    with replacing(target, force) as draft:
        write(draft, content)

"""Initial state of an asset: `initial_state.npz` in its folder has the initial contents of its buffers.

Every asset has this file, even without state. Older assets have `model.state.npz` next to `model.aimodel` instead; it
is read if the asset has no file of its own.

The file is in numpy's format: an entry `index`, a JSON list of `{"entrypoint", "state", "dtype"}`, and an array
`state_i` for item `i`. Element types that numpy lacks (`bfloat16`, `float8_*`) are stored as unsigned integers.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (numpy then knows the dtypes by name)
import numpy as np

from patcomp.emit.files.replacement import STATE_FILE
from patcomp.errors import PatcompError, shortened

_DAMAGES = (ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError, EOFError, RuntimeError,
            zipfile.BadZipFile, zlib.error, SyntaxError)  # fmt: skip
"""What reading a damaged file raises."""

StateArrays = dict[str, dict[str, np.ndarray]]
"""Arrays by entry point and name of the state."""


class StateFileError(PatcompError, ValueError):
    """The file with the initial state of an asset is damaged, or another file."""


def earlier_state_path(asset: Path) -> Path:
    """The file beside an asset in which earlier versions kept its initial state."""
    return asset.with_suffix(".state.npz")


def write_state(asset: Path, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write the initial state into an asset's folder."""
    listed = [(entrypoint, name, array) for entrypoint, states in state.items() for name, array in states.items()]
    index = [{"entrypoint": entry, "state": name, "dtype": array.dtype.name} for entry, name, array in listed]
    arrays: dict[str, Any] = {f"state_{i}": _storage(array) for i, (_, _, array) in enumerate(listed)}
    np.savez_compressed(asset / STATE_FILE, index=np.array(json.dumps(index)), **arrays)


def read_state(asset: Path) -> StateArrays:
    """The initial state of an asset; empty if it has none.

    Raises:
        StateFileError: the file is damaged.
    """
    own = asset / STATE_FILE
    path = own if own.exists() else earlier_state_path(asset)
    return _read(path) if path.exists() else {}


def remove_earlier_state(asset: Path) -> None:
    """Remove the file beside an asset that an earlier version wrote; leave files of other programs alone."""
    path = earlier_state_path(asset)
    try:
        _read(path)
    except (OSError, StateFileError):
        return  # no such file, or one of another program
    path.unlink()


def _read(path: Path) -> StateArrays:
    state: StateArrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            index = json.loads(str(_array(archive, "index")))
            for number, entry in enumerate(index):
                array = _array(archive, f"state_{number}").view(_dtype(entry["dtype"]))
                state.setdefault(str(entry["entrypoint"]), {})[str(entry["state"])] = array
    except _DAMAGES as error:
        raise StateFileError(
            f"{path.name} does not hold the initial state of an asset: {type(error).__name__}: "
            f"{shortened(str(error))}. Save the asset again"
        ) from error
    return state


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of a file in numpy's format. Its memory is not larger than the bytes of its member.

    Raises:
        ValueError: the member is another file, holds Python objects, or has more or less data than its shape says.
    """
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
            raise ValueError(f"{name} is not an array of numbers of the shape {shape}")
    with archive.open(member) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def _dtype(name: str) -> np.dtype:
    dtype = np.dtype(name)
    if dtype.name != name or dtype.hasobject:
        raise ValueError(f"{name!r} is not an element type")
    return dtype


def _storage(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")

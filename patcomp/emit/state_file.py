"""Initial state of an asset: `initial_state.npz` in its folder has the initial contents of its buffers.

Every asset has this file, even without state. Older assets have `model.state.npz` next to `model.aimodel` instead; it
is read if the asset has no file of its own.

The file is in numpy's format: an entry `index`, a JSON list of `{"entrypoint", "state", "dtype"}`, and an array
`state_i` for item `i`. Element types that numpy lacks (`bfloat16`, `float8_*`) are stored as unsigned integers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import ml_dtypes  # noqa: F401  (numpy then knows the dtypes by name)
import numpy as np

from patcomp.emit.replacement import STATE_FILE

StateArrays = dict[str, dict[str, np.ndarray]]
"""Arrays by entry point and name of the state."""


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
    """The initial state of an asset; empty if it has none."""
    own = asset / STATE_FILE
    path = own if own.exists() else earlier_state_path(asset)
    return _read(path) if path.exists() else {}


def remove_earlier_state(asset: Path) -> None:
    """Remove the file beside an asset that an earlier version wrote; leave files of other programs alone."""
    path = earlier_state_path(asset)
    try:
        _read(path)
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, BadZipFile):
        return  # no such file, or one of another program
    path.unlink()


def _read(path: Path) -> StateArrays:
    state: StateArrays = {}
    with np.load(path) as file:
        for number, entry in enumerate(json.loads(str(file["index"]))):
            array = file[f"state_{number}"].view(np.dtype(entry["dtype"]))
            state.setdefault(entry["entrypoint"], {})[entry["state"]] = array
    return state


def _storage(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")

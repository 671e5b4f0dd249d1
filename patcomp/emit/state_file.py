"""Initial state beside an asset: `model.state.npz` holds what the buffers of `model.aimodel` start from.

The file is numpy's: an entry `index`, a JSON list of `{"entrypoint", "state", "dtype"}`, and for item `i` an
array `state_i`. Element types that numpy lacks (`bfloat16`, `float8_*`) are stored as their bits, in unsigned integers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

StateArrays = dict[str, dict[str, np.ndarray]]
"""Arrays by entry point and name of the state."""


def state_path(asset: Path) -> Path:
    """The file of an asset's initial state."""
    return asset.with_suffix(".state.npz")


def write_state(asset: Path, state: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Writes the initial state of an asset, or removes an old file if there is none."""
    path = state_path(asset)
    listed = [(entrypoint, name, array) for entrypoint, states in state.items() for name, array in states.items()]
    if not listed:
        path.unlink(missing_ok=True)
        return
    index = [{"entrypoint": entry, "state": name, "dtype": array.dtype.name} for entry, name, array in listed]
    arrays: dict[str, Any] = {f"state_{i}": _storage(array) for i, (_, _, array) in enumerate(listed)}
    np.savez_compressed(path, index=np.array(json.dumps(index)), **arrays)


def read_state(asset: Path) -> StateArrays:
    """The initial state of an asset; empty if it has none."""
    path = state_path(asset)
    state: StateArrays = {}
    if not path.exists():
        return state
    with np.load(path) as file:
        for number, entry in enumerate(json.loads(str(file["index"]))):
            array = file[f"state_{number}"].view(_dtype(entry["dtype"]))
            state.setdefault(entry["entrypoint"], {})[entry["state"]] = array
    return state


def _storage(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))

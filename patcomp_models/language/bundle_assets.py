"""The assets of a bundle: opened for a while, with empty states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from patcomp.emit.asset import Asset, load
from patcomp_models.language.generation import AssetCall
from patcomp_models.language.static_contract import EXTEND, PROMPT
from patcomp_models.language.static_run import StaticCall


def opened_asset(path: Path, opened: ExitStack) -> Asset:
    """An asset that is closed at the end."""
    asset = load(path)
    opened.callback(asset.close)
    return asset


def open_size(size: int | None) -> int | None:
    """A size of a description; None if it is open."""
    return None if size is None or size < 0 else size


def empty_states(described: Any) -> dict[str, np.ndarray]:
    """The states of a function before the first call; the open size of those that grow is 0."""
    states = ((name, described.state_descriptor(name)) for name in described.state_names)
    return {
        name: np.zeros([open_size(size) or 0 for size in state.shape], state.dtype.lower()) for name, state in states
    }


def calls_of_asset(asset: Asset) -> AssetCall:
    """Run functions of an asset."""

    def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        return asset.run(inputs, states, name)

    return call


def counted_calls(asset: Asset, calls: Iterator[int]) -> StaticCall:
    """Run functions of an asset, and count the calls of the model."""

    def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
        if name.startswith((EXTEND, PROMPT)):
            next(calls)
        return asset.run(inputs, states or None, name)

    return call


def empty_caches(asset: Asset, sizes: Sequence[tuple[int, int]]) -> dict[str, np.ndarray]:
    """The caches of the largest size of `extend`."""
    size, queries = sizes[-1]
    found = asset.described(f"{EXTEND}_{size}_{queries}")
    each = {name: found.state_descriptor(name) for name in found.state_names}
    return {name: np.zeros(list(state.shape), state.dtype.lower()) for name, state in each.items()}

"""The assets of a bundle, called as a host calls them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from patcomp.emit.asset import load
from patcomp_models.bundle_folders.interfaces import Interfaces

Array = np.ndarray


class Parts:
    """The assets of a bundle, called with numbers in the types that they take."""

    def __init__(self, bundle: Path, stack: ExitStack):
        self.metadata = json.loads((bundle / "metadata.json").read_text())
        self.assets, self.told = {}, {}
        for role, file in self.metadata["assets"].items():
            self.assets[role], self.told[role] = load(bundle / file), Interfaces.of(bundle / file)
            stack.callback(self.assets[role].close)

    def call(self, role: str, function: str, inputs: Mapping[str, Any], states: Any = None) -> Mapping[str, Array]:
        types = self.told[role].function(function).inputs
        typed = {name: np.asarray(value).astype(types[name].dtype) for name, value in inputs.items()}
        return self.assets[role].run(typed, states, function)

    def zeros(self, role: str, function: str, capacity: int) -> dict[str, Array]:
        states = self.told[role].function(function).states
        sizes = {name: [size or capacity for size in state.shape] for name, state in states.items()}
        return {name: np.zeros(size, np.float32) for name, size in sizes.items()}


@contextmanager
def parts_of(bundle: Path) -> Iterator[Parts]:
    with ExitStack() as stack:
        yield Parts(bundle, stack)

"""The comparison on the runtime, which a conversion makes in another process, in this one: a process takes seconds."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from patcomp import load
from patcomp_models.language import checking


class InThisProcess:
    """Calls of saved assets, as `patcomp.emit.native.Native` makes them."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._assets: dict[Path, Any] = {}

    def call(self, asset: Path, inputs: Any, state: Any, entry: str) -> tuple[Any, Any]:
        if asset not in self._assets:
            self._assets[asset] = load(asset)
            self._opened.callback(self._assets[asset].close)
        held = dict(state)
        return self._assets[asset].run(inputs, held, entry), held

    def close(self) -> None:
        self._opened.close()


@pytest.fixture(autouse=True)
def runtime_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "Native", InThisProcess)

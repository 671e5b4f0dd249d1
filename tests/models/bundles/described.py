"""Bundles whose assets are descriptions of functions: what a check reads of converted ones, without a conversion."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patcomp_models.bundle_folders.interfaces import Function, Interfaces, Tensor
from patcomp_models.bundle_folders.revisions import OLD
from patcomp_models.bundles import check_bundle

Sizes = tuple[int | None, ...]
Values = dict[str, tuple[Sizes, str]]
"""Shapes, in which None is open, and types."""


@dataclass
class Described:
    """A bundle.

    Attributes:
        metadata: its `metadata.json`.
        files: beside the assets, with their content.
        functions: inputs, outputs and states by the name of the asset's file and the function.
    """

    metadata: dict[str, Any]
    files: dict[str, Any]
    functions: dict[str, dict[str, tuple[Values, Values, Values]]]

    def problems(self, place: Path, monkeypatch: pytest.MonkeyPatch, revision: str = OLD) -> list[str]:
        """What the check says of the bundle.

        Args:
            place: the folder to write it into, which does not exist.
            monkeypatch: gives the check the descriptions.
            revision: of Apple's package.
        """
        place.mkdir()
        (place / "metadata.json").write_text(json.dumps(self.metadata))
        for name, content in self.files.items():
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(json.dumps(content))
        for file in self.functions:
            (place / file).mkdir()
        monkeypatch.setattr(Interfaces, "of", lambda path: interfaces(self.functions[path.name]))
        return [problem.message for problem in check_bundle(place, revision)]


def interfaces(functions: Mapping[str, tuple[Values, Values, Values]]) -> Interfaces:
    """The description of an asset."""

    def tensors(values: Values) -> dict[str, Tensor]:
        return {name: Tensor(*value) for name, value in values.items()}

    return Interfaces({name: Function(*map(tensors, each)) for name, each in functions.items()})


Change = Callable[[Described], object]


def changed(bundle: Described, *changes: Change) -> Described:
    """A copy with changes."""
    made = copy.deepcopy(bundle)
    for change in changes:
        change(made)
    return made


def config(**values: Any) -> Change:
    """Other values in the block `config`; None for none."""

    def change(bundle: Described) -> None:
        block = {**bundle.metadata["config"], **values}
        bundle.metadata["config"] = {name: value for name, value in block.items() if value is not None}

    return change


def role(name: str, file: str | None) -> Change:
    """Another file of a role; None for no such role."""
    return lambda it: it.metadata["assets"].update({name: file}) if file else it.metadata["assets"].pop(name)


def file(name: str, content: Any = None) -> Change:
    """Another content of a file; None for no file."""
    return lambda it: it.files.pop(name) if content is None else it.files.update({name: content})


_KINDS = ("input", "output", "state")


def put(where: str, kind: str, name: str, shape: Sizes, dtype: str = "float32") -> Change:
    """Another input, output or state of a function, `main.aimodel:main`."""
    asset, _, function = where.partition(":")
    return lambda it: it.functions[asset][function][_KINDS.index(kind)].update({name: (shape, dtype)})


def drop(where: str, kind: str, name: str) -> Change:
    """A function lacks an input, output or state."""
    asset, _, function = where.partition(":")
    return lambda it: it.functions[asset][function][_KINDS.index(kind)].pop(name)


def without_function(where: str) -> Change:
    """An asset lacks a function."""
    asset, _, function = where.partition(":")
    return lambda it: it.functions[asset].pop(function)

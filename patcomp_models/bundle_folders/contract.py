"""What checks of bundles have in common: the functions of assets, read as Apple's Swift package reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from patcomp.emit.files.manifest import DATE, current_recipe
from patcomp.emit.files.metadata import creation_date
from patcomp.errors import AssetError, Problem
from patcomp_models.bundle_folders.interfaces import Function, Interfaces, Tensor

METADATA_VERSION = "0.2"
"""The version of `metadata.json` that Apple's Swift package reads."""
PROCESSOR = "processor"
"""The folder of what prepares inputs of a bundle."""


def compilation() -> dict[str, Any]:
    """The entry `compilation` of `metadata.json`, with the date of the assets and no device; if a command runs, it is
    the `recipe`."""
    date = datetime.strptime(creation_date() or datetime.now(UTC).strftime(DATE), DATE).replace(tzinfo=UTC)
    return {"compilation": {"date": date.isoformat(), "targets": []}, **current_recipe()}


def problem(message: str, advice: str = "convert the model again") -> Problem:
    """Something that Swift would refuse or misread."""
    return Problem(message, advice=advice)


def general_problems(folder: Path, metadata: Mapping[str, Any]) -> list[Problem]:
    """Problems of any kind of bundle: a wrong version, no name, missing assets."""
    problems = []
    if metadata.get("metadata_version") != METADATA_VERSION:
        problems.append(
            problem(f"metadata_version is {metadata.get('metadata_version')!r}, and must be {METADATA_VERSION!r}")
        )
    if not isinstance(metadata.get("name"), str) or not metadata["name"]:
        problems.append(problem("name is missing"))
    assets = metadata.get("assets")
    if not isinstance(assets, dict) or not assets or not all(isinstance(file, str) for file in assets.values()):
        return [*problems, problem("assets is missing, or is no object of names of files")]
    lacking = [f"assets.{role} is {file}, which does not exist" for role, file in assets.items()
               if not (folder / file).is_dir()]  # fmt: skip
    return [*problems, *map(problem, lacking)]


def function_of(path: Path, name: str = "main") -> tuple[Any, list[Problem]]:
    """A function of an asset, or why it cannot be read."""
    try:
        return Interfaces.of(path).function(name), []
    except (FileNotFoundError, AssetError) as error:
        return None, [problem(str(error))]
    except KeyError as error:
        return None, [problem(f"{path.name}: {error.args[0]}")]


InterfaceSizes = tuple[int | str | None, ...]
"""A shape: None is an open size, `"*"` any size."""
Values = Mapping[str, tuple[InterfaceSizes, Sequence[str]]]
"""The inputs or outputs of a function: the shape of each, and the types that it may have."""
FLOATS = ("float16", "float32")


@dataclass(frozen=True)
class Interface:
    """The inputs and outputs of a function, in order: the shape of each, and the types that it may have."""

    inputs: Values
    outputs: Values
    names_count: bool = True
    """Whether Swift takes values by name; otherwise by order."""

    def with_bfloat16(self) -> Interface:
        """The interface for hosts that also fill bfloat16 where Swift fills float16."""

        def wider(values: Values) -> Values:
            return {name: (sizes, (*types, "bfloat16") if "float16" in types else types)
                    for name, (sizes, types) in values.items()}  # fmt: skip

        return Interface(wider(self.inputs), wider(self.outputs), self.names_count)

    def problems(self, where: str, found: Function) -> list[Problem]:
        """What is wrong with a function.

        Args:
            where: it is, for messages.
            found: its description.
        """
        return [
            *self._wrong(where, "input", self.inputs, found.inputs),
            *self._wrong(where, "output", self.outputs, found.outputs),
        ]

    def _wrong(
        self,
        where: str,
        what: str,
        wanted: Values,
        found: Mapping[str, Tensor],
    ) -> Iterable[Problem]:
        names = list(found)
        right = set(names) == set(wanted) if self.names_count else len(names) == len(wanted)
        if not right:
            listed = ", ".join(names) or "none"
            yield problem(f"the {what}s of {where} are {listed}; they must be {', '.join(wanted)}")
            return
        for place, (name, (sizes, types)) in enumerate(wanted.items()):
            own = name if self.names_count else names[place]
            given = found[own]
            fits = len(given.shape) == len(sizes) and all(
                size in ("*", own_size) for size, own_size in zip(sizes, given.shape, strict=True)
            )
            if not fits or given.dtype not in types:
                wanted_sizes = " x ".join("?" if size is None else str(size) for size in sizes)
                yield problem(
                    f"the {what} {own} of {where} is {shown_tensor(given)}, and must be "
                    f"{wanted_sizes} of {' or '.join(types)}"
                )


def shown_tensor(given: Tensor) -> str:
    """The shape and type of an input or output."""
    sizes = " x ".join("?" if size is None else str(size) for size in given.shape)
    return f"{sizes} of {given.dtype}"

"""What a model that speaks is, for the bundle of its kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patcomp.errors import AssetError, Problem
from patcomp_models.bundle_folders.contract import PROCESSOR, Interface, problem
from patcomp_models.bundle_folders.interfaces import Function, Interfaces
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import content_of


@dataclass(frozen=True)
class SynthesisForm(ABC):
    """A checkpoint of one architecture.

    Attributes:
        folder: of the checkpoint.
        dtype: of the weights.
    """

    folder: Path
    dtype: str

    @abstractmethod
    def components(self) -> Sequence[Component]:
        """The parts.

        Raises:
            BundleError: a file is missing, or the model is of a form that is not supported.
        """

    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """What `metadata.json` says as `config`."""

    @abstractmethod
    def write_files(self, bundle: Path) -> None:
        """Write the files beside the assets."""

    @staticmethod
    @abstractmethod
    def problems(bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        """What a host cannot take of a bundle."""

    @property
    def config(self) -> dict[str, Any]:
        """What the folder says of the model."""
        return content_of(self.folder / "config.json")


def number_problems(config: Mapping[str, Any], names: Iterable[str]) -> list[Problem]:
    """Problems of the configuration: a number needed by hosts is missing or no integer."""
    return [problem(f"config.{name} is {config.get(name)!r}, and must be an integer") for name in names
            if type(config.get(name)) is not int]  # fmt: skip


def part_problems(bundle: Path, metadata: Mapping[str, Any], roles: Iterable[str]) -> list[Problem]:
    """The parts that are missing, and the tokenizer."""
    found = [problem(f"assets.{role} is missing") for role in roles if role not in metadata["assets"]]
    if not (bundle / PROCESSOR / "tokenizer_config.json").is_file():
        found.append(problem(f"there is no {PROCESSOR}/tokenizer_config.json"))
    return found


def mismatches(functions: Mapping[str, Function], interfaces: Mapping[str, Interface]) -> list[Problem]:
    """What the functions that are there take or give otherwise."""
    return [each for name, interface in interfaces.items() if name in functions
            for each in interface.problems(name, functions[name])]  # fmt: skip


def functions_of(asset: Path, names: Iterable[str]) -> tuple[dict[str, Function], list[Problem]]:
    """The functions of an asset, and what is wrong with it."""
    try:
        told = Interfaces.of(asset)
    except (FileNotFoundError, AssetError) as error:
        return {}, [problem(str(error))]
    lacking = [problem(f"{asset.name} has no function {name!r}") for name in names if name not in told.names]
    return dict(told.functions), lacking

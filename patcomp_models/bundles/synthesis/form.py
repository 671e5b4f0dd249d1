"""What a model that speaks is, for the bundle of its kind."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from patcomp.errors import AssetError, Problem
from patcomp_models.bundle_folders.contract import PROCESSOR, Interface, problem
from patcomp_models.bundle_folders.interfaces import Function, Interfaces
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import configuration_of, content_of, tokenizer_of
from patcomp_models.bundles.speech.whisper import GENERATION
from patcomp_models.checkpoints.tokenizers import save
from patcomp_models.checkpoints.untrusted import copy_files
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_Form = TypeVar("_Form")
STATES = ("keyCache", "valueCache")
_TOKENIZER = f"{PROCESSOR}/tokenizer_config.json"


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

    @classmethod
    @abstractmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        """What a host cannot take of a bundle."""

    @property
    def config(self) -> dict[str, Any]:
        """What the folder says of the model."""
        return content_of(self.folder / "config.json")


@dataclass(frozen=True)
class Continued(Interface):
    """A function that continues its earlier calls: it has the states of keys and values."""

    def problems(self, where: str, found: Function) -> list[Problem]:
        wrong = super().problems(where, found)
        if set(found.states) != set(STATES):
            listed = ", ".join(found.states) or "none"
            wrong.append(problem(f"the states of {where} are {listed}; they must be {', '.join(STATES)}"))
        return wrong


class FormOfFunctions(SynthesisForm):
    """A checkpoint of transformers with a tokenizer and a generation configuration, whose loop is outside."""

    holds: ClassVar[str]
    architecture: ClassVar[str]
    """The class of transformers, and its `model_type`."""
    numbers_of_hosts: ClassVar[tuple[str, ...]]
    """What of `config` in `metadata.json` must be integers."""
    vocabulary: ClassVar[str | None] = None
    """The file of phonemes, if the tokenizer needs another package."""

    @classmethod
    @abstractmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        """What hosts need to know.

        Args:
            config: of transformers, completed.
            generation: what the folder says of the loop.

        Raises:
            BundleError: the model is of a form that is not supported.
        """

    @classmethod
    @abstractmethod
    def interfaces(cls, config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Interface]]:
        """The functions of each asset, from `config` of `metadata.json`."""

    @classmethod
    @abstractmethod
    def entries(cls, model: Any, role: str) -> list[Entry]:
        """The functions of an asset, to export."""

    def components(self) -> Sequence[Component]:
        if self.vocabulary is None:
            tokenizer_of(self.folder)
        elif not (self.folder / self.vocabulary).is_file():
            raise BundleError(f"{str(self.folder)!r} has no {self.vocabulary}, which has the ids of phonemes")
        roles = self.interfaces(self.metadata())
        return [Component(role, f"{role}.aimodel", partial(self._entries, role)) for role in roles]

    def metadata(self) -> Mapping[str, Any]:
        told = self.numbers(configuration_of(self.folder), content_of(self.folder / GENERATION))
        return {"architecture": self.architecture, **told}

    def write_files(self, bundle: Path) -> None:
        if self.vocabulary is not None:
            copy_files(self.folder / self.vocabulary, bundle / self.vocabulary)
            return
        save(tokenizer_of(self.folder), bundle / PROCESSOR)
        told = content_of(self.folder / GENERATION)
        (bundle / GENERATION).write_text(json.dumps(told, indent=2) + "\n")

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        config = metadata["config"]
        if found := number_problems(config, cls.numbers_of_hosts):
            return found
        assets = cls.interfaces(config)
        if found := part_problems(bundle, metadata, assets, cls.vocabulary or _TOKENIZER):
            return found
        for role, interfaces in assets.items():
            functions, lacking = functions_of(bundle / metadata["assets"][role], interfaces)
            found += lacking + mismatches(functions, interfaces)
        return found

    def _entries(self, role: str) -> list[Entry]:
        from patcomp_models.bundles.loading import model_of

        return self.entries(model_of(self.folder, "transformers", self.holds, self.dtype), role)


def form_of_config(metadata: Mapping[str, Any], forms: Mapping[str, _Form]) -> tuple[_Form | None, list[Problem]]:
    """The form of a bundle, by `config.architecture` of `metadata.json`, or why there is none."""
    config = metadata.get("config")
    if not isinstance(config, Mapping):
        return None, [problem("config is missing")]
    form = forms.get(str(config.get("architecture")))
    known = f"config.architecture is {config.get('architecture')!r}, and must be one of {', '.join(forms)}"
    return form, [problem(known)] if form is None else []


def number_problems(config: Mapping[str, Any], names: Iterable[str]) -> list[Problem]:
    """Problems of the configuration: a number needed by hosts is missing or no integer."""
    return [problem(f"config.{name} is {config.get(name)!r}, and must be an integer") for name in names
            if type(config.get(name)) is not int]  # fmt: skip


def part_problems(
    bundle: Path, metadata: Mapping[str, Any], roles: Iterable[str], words: str = _TOKENIZER
) -> list[Problem]:  # fmt: skip
    """The parts that are missing, and the tokenizer, or the file with the ids of words or phonemes."""
    found = [problem(f"assets.{role} is missing") for role in roles if role not in metadata["assets"]]
    if not (bundle / words).is_file():
        found.append(problem(f"there is no {words}"))
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

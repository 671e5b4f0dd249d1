"""What a bundle of a diffusion language model must know of a checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp_models.bundle_folders.contract import Interface
from patcomp_models.bundles.speech.folders import class_named, content_of
from patcomp_models.bundles.speech.whisper import GENERATION
from patcomp_models.bundles.text_diffusion.loops import LOOPS, Loop, loop_of
from patcomp_models.checkpoints.told import Told

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry


@dataclass(frozen=True)
class TextDiffusionForm(ABC):
    """A checkpoint of a diffusion language model.

    Attributes:
        folder: of the checkpoint.
        dtype: of the weights.
        context: the most tokens of the bundle; None for those of the model, and `MOST` at most.
    """

    folder: Path
    dtype: str
    context: int | None

    numbers: ClassVar[tuple[str, ...]] = ("vocab_size", "max_context_length")
    """The keys of the block `config` of `metadata.json` that must have an integer."""
    loops: ClassVar[tuple[str, ...]]
    """The names of loops that such models have."""

    @abstractmethod
    def configuration(self) -> Any:
        """The configuration of the class of transformers that is converted.

        Raises:
            BundleError: the model is of a form that is not converted.
        """

    @abstractmethod
    def told(self) -> Mapping[str, Any]:
        """What the block `config` says beside the sizes and the loop.

        Raises:
            BundleError: a token of the folder is none of the model.
        """

    @abstractmethod
    def tokenizer(self) -> Any:
        """The tokenizer of the folder."""

    @property
    @abstractmethod
    def loop(self) -> str:
        """The name of the loop."""

    @abstractmethod
    def take(self, told: Told) -> Mapping[str, Any]:
        """The settings of the loop that `generation_config.json` has; each of its fields is asked for."""

    @abstractmethod
    def entries(self) -> Sequence[Entry]:
        """The functions of the asset."""

    @staticmethod
    @abstractmethod
    def interfaces(config: Mapping[str, Any]) -> Mapping[str, Interface]:
        """The functions that a bundle must have, by the block `config`."""

    @property
    def model_class(self) -> str:
        return class_named(content_of(self.folder / "config.json"))

    def settings(self) -> Loop:
        """The loop with the settings of the folder.

        Raises:
            BundleError: `generation_config.json` has a setting that the loop has not.
        """
        file = self.folder / GENERATION
        told = Told(file, content_of(file))
        given = self.take(told)
        told.check("code of the loop")
        return loop_of(self.loop, given, repr(str(file)))


def own_settings(told: Told, loop: str) -> dict[str, Any]:
    """The settings whose fields have the names of the loop's own; a field with null is one that is not there."""
    defaults = {each.name: each.default for each in fields(LOOPS[loop])}
    given = {name: told.take(name, default) for name, default in defaults.items()}
    return {name: defaults[name] if value is None else value for name, value in given.items()}

"""What a kind of bundle is: how its folder is known, its components, its metadata, and what Swift refuses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from patcomp.bundle_folders.errors import BundleError
from patcomp.errors import Problem
from patcomp.families import classes_in

if TYPE_CHECKING:
    from patcomp.tasks.entries import Entry

VERSION = "0.2"
"""The version of `metadata.json` that Apple's Swift package reads."""


@dataclass(frozen=True)
class Component:
    """A part of a bundle: the asset of one model of the folder.

    Attributes:
        role: by which `metadata.json` names the asset.
        file: the name of the asset, `Unet.aimodel`.
        entries: loads the model and gives its functions, when it is their turn, because a folder may hold more than
            fits into memory.
        compressed: whether `compress=` makes the weights smaller.
    """

    role: str
    file: str
    entries: Callable[[], Sequence[Entry]]
    compressed: bool = True


@dataclass(frozen=True)
class Kind(ABC):
    """A kind of bundle, for a folder. The fields without a leading underscore are options of the user.

    Attributes:
        folder: of the models.
        dtype: of the weights.
    """

    name: ClassVar[str]
    """The `kind` of `metadata.json`; one that Swift does not know says that the assets are for other hosts."""
    holds: ClassVar[str]
    """What a folder of this kind holds, for messages."""
    target: ClassVar[str] = "gpu"
    """The device on which Swift runs it."""
    default_dtype: ClassVar[str] = "float16"
    """The type of the weights, unless the user chooses one."""

    folder: Path
    dtype: str

    @classmethod
    @abstractmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        """Whether a folder holds this kind.

        Args:
            folder: of the models.
            config: its `model_index.json`, or else its `config.json`.
        """

    @abstractmethod
    def components(self) -> Sequence[Component]:
        """The parts.

        Raises:
            BundleError: the folder lacks one, or has one that the kind does not take.
        """

    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """What `metadata.json` says beside the name and the assets."""

    @abstractmethod
    def write_files(self, bundle: Path) -> None:
        """Write the files beside the assets, such as tokenizers."""

    @classmethod
    @abstractmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        """What Apple's Swift package would refuse or misread of a bundle.

        Args:
            bundle: its folder.
            metadata: its `metadata.json`, whose version, kind, name and assets are right.
        """

    @classmethod
    def of(cls, folder: Path, dtype: str, options: Mapping[str, Any]) -> Self:
        """The kind for a folder, with options.

        Raises:
            BundleError: the kind has no such option, or not such a value.
        """
        own = {each.name: each for each in fields(cls) if each.default is not MISSING}
        if unknown := [name for name in options if name not in own]:
            raise BundleError(
                f"bundles of the kind {cls.name!r} have no option {unknown[0]!r}; they have {', '.join(own) or 'none'}"
            )
        return cls(folder, dtype, **options)


@cache  # of the process, because the files of a folder do not change
def kinds() -> Sequence[type[Kind]]:
    """The kinds of bundles, ordered by their files."""
    return [kind for kind in classes_in("patcomp.bundles.kinds", Kind) if "name" in vars(kind)]  # type: ignore[type-abstract]

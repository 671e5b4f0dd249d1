"""What a kind of bundle is: how its folder is known, how it is converted, its options, and what Swift refuses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_type_hints

from patcomp.errors import Problem
from patcomp.families import classes_in
from patcomp_models.bundles.option_types import fits_type, shown_type
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp.emit.asset import Writer
    from patcomp.targets import Target
    from patcomp_models.options import Progress
    from patcomp_models.tasks.entries import Entry

_DTYPES = ("float16", "bfloat16", "float32")


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
class Conversion:
    """What the user chooses of every conversion; the arguments of `convert_bundle` say what they mean."""

    out: Path
    target: str | Target | None
    compress: str | Path | Mapping[str, Any] | None
    verify: bool
    name: str | None
    progress: Progress | None
    writer: Writer | None


def check_choices(out: Path, dtype: str | None, name: object) -> None:
    """Check what the user chooses of a bundle before anything is loaded.

    Args:
        out: the folder of the bundle.
        dtype: of the weights; None for that of the kind.
        name: of the bundle; None for the usual one.

    Raises:
        BundleError: the folder exists, or there is no such type or name.
    """
    if dtype is not None and dtype not in _DTYPES:
        raise BundleError(f"dtype is one of {', '.join(_DTYPES)}, got {dtype!r}")
    if name is not None and (not isinstance(name, str) or not name):
        raise BundleError(f"name is {name!r}, and must be a text")
    if out.exists():
        raise BundleError(f"{str(out)!r} exists; choose another folder for the bundle, or move it away")


@dataclass(frozen=True)
class Kind(ABC):
    """A kind of bundle, for a folder. The fields with a default are options of the user.

    Attributes:
        folder: of the models.
        dtype: of the weights.
    """

    name: ClassVar[str]
    """The `kind` of `metadata.json`; one that Swift does not know says that the assets are for other hosts."""
    holds: ClassVar[str]
    """What a folder of this kind holds, for messages."""
    default_dtype: ClassVar[str] = "float16"
    """The type of the weights, unless the user chooses one."""

    folder: Path
    dtype: str

    @classmethod
    @abstractmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        """Whether a folder holds this kind.

        Args:
            folder: of the models, or a GGUF file.
            config: its `model_index.json`, or else its `config.json`; empty for a file.
        """

    @abstractmethod
    def convert(self, chosen: Conversion) -> None:
        """Write the bundle; `convert_bundle` says what of it is there after an error.

        Raises:
            BundleError: the folder lacks a component, or an option does not fit it.
        """

    @classmethod
    @abstractmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        """What Apple's Swift package would refuse or misread of a bundle.

        Args:
            bundle: its folder.
            metadata: its `metadata.json`, whose version, kind, name and assets are right.
            revision: of the package, one of `bundle_folders.revisions.REVISIONS`.
        """

    @classmethod
    def options(cls) -> Mapping[str, Any]:
        """The types of the options, by name."""
        types = get_type_hints(cls)
        return {each.name: types[each.name] for each in fields(cls) if each.default is not MISSING}

    @classmethod
    def of(cls, folder: Path, dtype: str, options: Mapping[str, Any]) -> Self:
        """The kind for a folder, with options.

        Raises:
            BundleError: the kind has no such option, or not such a value.
        """
        own = cls.options()
        for name, value in options.items():
            if name not in own:
                listed = ", ".join(own) or "none"
                raise BundleError(f"bundles of the kind {cls.name!r} have no option {name!r}; they have {listed}")
            if not fits_type(value, own[name]):
                raise BundleError(f"{name} is {value!r}, and must be {shown_type(own[name])}")
        return cls._with(folder, dtype, options)

    @classmethod
    def _with(cls, folder: Path, dtype: str, options: Mapping[str, Any]) -> Self:
        return cls(folder, dtype, **options)


@cache  # of the process, because the files of a folder do not change
def kinds() -> Sequence[type[Kind]]:
    """The kinds of bundles, ordered by their files."""
    return [kind for kind in classes_in("patcomp_models.bundles.kinds", Kind) if "name" in vars(kind)]  # type: ignore[type-abstract]

"""What other packages add to the command: subcommands, and how commands read folders of models and bundles.

A package names an object of the class `Commands` by an entry point of the group `patcomp.commands`. The models and the
laboratory beside this package come in this way, as those of others do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from patcomp.commands.common import UsageError
from patcomp.commands.subjects import Subject
from patcomp.entry_points import entry_points_of
from patcomp.errors import PatcompError, reason_of

if TYPE_CHECKING:
    from patcomp import AIProgram
    from patcomp.commands.exporting import Preparation
    from patcomp.commands.models import ModelOptions
    from patcomp.conversion.source import ModelSource

_GROUP = "patcomp.commands"
"""The entry point group of packaging metadata in which a package names its commands."""


class Commands:
    """What a package adds to the `patcomp` command. A subclass overrides what it has."""

    def add_to(self, app: typer.Typer) -> None:
        """Add the subcommands of the package to the command."""


class Reader(Commands, ABC):
    """A package that reads models by folders and names, and bundles, in the place of patcomp, which reads none."""

    reads: ClassVar[frozenset[Subject]]
    """What it reads."""

    def check(self, model: str, found: Subject, options: ModelOptions) -> None:
        """Check a model and the options for it before PyTorch is imported for `sources`; raises what `sources` does."""

    @abstractmethod
    def sources(self, model: str, found: Subject, options: ModelOptions) -> list[ModelSource]:
        """The exported functions of a model that the user names by its folder or its name."""

    @abstractmethod
    def preprocessing(self, options: ModelOptions) -> Preparation:
        """What `--preprocess` puts before the module of a Python file; a UsageError if an option has another form."""

    @abstractmethod
    def inputs_of_texts(
        self, model: str, texts: Sequence[tuple[str, ...]], program: AIProgram, entry: str
    ) -> list[dict[str, Any]]:
        """The inputs of a model for texts, by the tokenizer of its folder."""

    @abstractmethod
    def convert_to_bundle(self, context: typer.Context, model: str, output: Path | None, **options: Any) -> None:
        """`patcomp convert FOLDER -o BUNDLE`."""

    @abstractmethod
    def bundle_of(self, model: str, out: Path, **options: Any) -> Path:
        """`patcomp.convert("FOLDER", save="BUNDLE")`: the folder of the bundle."""

    @abstractmethod
    def inspect_bundle(self, bundle: Path, *, as_json: bool) -> None:
        """`patcomp inspect BUNDLE`."""

    @abstractmethod
    def compress_bundle(self, bundle: Path, output: Path | None, requests: Sequence[Any], **options: Any) -> None:
        """`patcomp compress BUNDLE`."""

    @abstractmethod
    def generate(self, bundle: Path, prompt: str) -> None:
        """`patcomp run BUNDLE --prompt TEXT`."""

    @abstractmethod
    def problems_of(self, bundle: Path) -> Sequence[object]:
        """What Apple's Swift package would refuse of a bundle."""

    @abstractmethod
    def assets_of(self, bundle: Path) -> dict[str, Path]:
        """The folders of the assets in a bundle, by their roles."""


@cache
def packages() -> tuple[Commands, ...]:
    """What installed packages add, ordered by package and name.

    Raises:
        PatcompError: a package cannot be loaded, or names something else.
    """
    found = []
    for point in entry_points_of(_GROUP):
        try:
            commands = point.load()
        except Exception as error:  # the code of a package can raise anything
            raise PatcompError(f"{point} cannot be loaded: {reason_of(error)}; reinstall or remove it") from error
        if not isinstance(commands, Commands):
            raise PatcompError(f"{point} must be an object of the class patcomp.commands.packages.Commands")
        found.append(commands)
    return tuple(found)


def reader_of(found: Subject) -> Reader:
    """The package that reads a kind of things.

    Raises:
        UsageError: none of the installed ones does.
    """
    for commands in packages():
        if isinstance(commands, Reader) and found in commands.reads:
            return commands
    raise UsageError(f"no installed package reads {found}; install patcomp again with pip, which brings patcomp_models")


def assets_of(bundle: Path) -> dict[str, Path]:
    """The folders of the assets in a bundle, by their roles.

    Raises:
        PatcompError: the bundle's metadata cannot be read, or names no assets.
        FileNotFoundError: an asset is not there.
    """
    return reader_of(Subject.BUNDLE).assets_of(bundle)


def asset_in(name: str, found: Subject, command: str) -> Path:
    """The folder of an asset, or of the only asset in a bundle.

    Raises:
        UsageError: the bundle has several.
    """
    if found is not Subject.BUNDLE:
        return Path(name)
    assets = assets_of(Path(name))
    if len(assets) > 1:
        paths = ", ".join(map(str, assets.values()))
        raise UsageError(f"{name} is a bundle of {len(assets)} assets; name one of them for {command}: {paths}")
    return next(iter(assets.values()))

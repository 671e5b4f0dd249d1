"""`patcomp reproduce`: run the command again that made an asset or a bundle, and compare every byte."""

from __future__ import annotations

import filecmp
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from patcomp.commands.assets import AssetOrBundle
from patcomp.commands.common import ANSWER_IS_NO, AsJson, UsageError, counted, print_json, say, tell
from patcomp.commands.packages import assets_of
from patcomp.commands.recipes import NOT_RECORDED, named_as, path_in
from patcomp.commands.subjects import Subject, subject_of
from patcomp.commands.tables import print_table
from patcomp.emit.files.manifest import creator_entries, manifest_in
from patcomp.emit.files.metadata import epoch_of, read_metadata
from patcomp.errors import PatcompError

_COMMANDS = ("convert", "compress", "convert-lm", "convert-vlm")
"""The commands that write a recipe of themselves."""


def reproduce(
    context: typer.Context,
    asset: AssetOrBundle,
    source: Annotated[
        str | None, typer.Option(help="The model, if it is not where the asset says, or to try another one.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the new asset or bundle here; by default it is deleted.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run the command again that made an asset or a bundle, and compare each byte; say what changed if one differs.

    Paths are those of the folder where the asset was made, so run the command there.

    $ patcomp reproduce net.aimodel
    """
    place = Path(asset)
    is_bundle = subject_of(asset, "reproduce", (Subject.ASSET, Subject.BUNDLE)) is Subject.BUNDLE
    first = next(iter(assets_of(place).values())) if is_bundle else place
    metadata = read_metadata(first)
    root: Any = context.find_root().command
    command, model, options = _command_of(asset, manifest_in(metadata).get("recipe"), source, root.commands)
    with tempfile.TemporaryDirectory() as folder, _dated(epoch_of(metadata)), named_as(model):
        made = output or Path(folder, place.name)
        say(f"running: patcomp {command} {shlex.join([source or model, *options])}")
        shown = ["--quiet"] if command == "convert" else []
        run = [command, source or model, *options, *shown, "--output", str(made)]
        root.main(run, "patcomp", standalone_mode=False)
        found = reproduction_of(place, made)
    if json:
        print_json(found.to_dict())
    else:
        print_table(["file", "bytes"], [(name, state) for name, state in found.files.items()])
        for line in found.lines():
            tell(line)
    if not found:
        sys.exit(ANSWER_IS_NO)


def _command_of(asset: str, recipe: Any, source: str | None, commands: Any) -> tuple[str, str, list[str]]:
    """The command that made an asset, the model, and the options.

    Raises:
        PatcompError: the asset does not name a command, or its files are not here.
        UsageError: the command is none that a recipe names, or has other options.
    """
    if not isinstance(recipe, Mapping):
        raise PatcompError(
            f"{asset} names no command that made it: it was saved from Python, by an older patcomp or another tool; "
            "make it again as it was made, and compare both with `patcomp diff`"
        )
    command, arguments, files = recipe.get("command"), recipe.get("arguments"), recipe.get("files")
    arguments = arguments if isinstance(arguments, list) else []
    whole = arguments and all(isinstance(each, str) for each in arguments)
    if command not in _COMMANDS or not whole or not isinstance(files, dict):
        raise UsageError(f"the recipe of {asset} is none that patcomp writes; make the asset again as it was made")
    model, *options = arguments
    known = {name for each in commands[command].params for name in (*each.opts, *each.secondary_opts)}
    for each in options:
        if each.startswith("-") and (each not in known - NOT_RECORDED or not each.startswith("--")):
            raise UsageError(f"the recipe of {asset} has {each}, which patcomp does not write into one")
    if "--trusted" in options:
        raise UsageError(
            f"{asset} was made with --trusted, which runs code of the model; run this yourself, and compare with "
            f"`patcomp diff`: patcomp {command} {shlex.join(arguments)}"
        )
    own = path_in(model)
    absent = [name for name in files if not Path(name).exists()]
    for name in absent:
        if not (source and (name == own or name.startswith(f"{own}/"))):
            raise PatcompError(
                f"{asset} was made of {name}, which is not here; run the command in the folder where it was made, or "
                "name the model with --source"
            )
    return command, model, options


@contextmanager
def _dated(epoch: int | None) -> Iterator[None]:
    """Give what is written the date of an asset."""
    before = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        if epoch is not None:
            os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
        yield
    finally:
        os.environ.pop("SOURCE_DATE_EPOCH", None)
        if before is not None:
            os.environ["SOURCE_DATE_EPOCH"] = before


_Change = tuple[Any, Any]


@dataclass(frozen=True)
class Reproduction:
    """An asset or bundle and another one, file by file; it is true if every byte is the same."""

    files: Mapping[str, str]
    """`same`, `differs`, `missing` or `new` of each file, by its path."""
    changes: Mapping[str, _Change]
    """What their manifests and other metadata say differently, before and now; None for nothing."""
    weights: Sequence[str]
    """The weights with other values, and those that only one has."""

    def __bool__(self) -> bool:
        return all(state == "same" for state in self.files.values())

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON."""
        changes = {name: {"before": before, "now": now} for name, (before, now) in self.changes.items()}
        return {"same": bool(self), "files": dict(self.files), "changes": changes, "weights": list(self.weights)}

    def lines(self) -> list[str]:
        """What the comparison says, in words."""
        if self:
            return ["every byte is the same"]
        found = [f"{name}: {_text(before)}, now {_text(now)}" for name, (before, now) in self.changes.items()]
        if self.weights:
            listed = ", ".join(self.weights[:5]) + ", ..." * (len(self.weights) > 5)
            found.append(f"{counted(len(self.weights), 'weight')} with other values: {listed}")
        programs = [state for name, state in self.files.items() if name.endswith(_PROGRAM)]
        if all(state == "same" for state in programs):
            found.append("the program and its weights are the same; what is said about them is not")
        elif not any(name.startswith(_CAUSES) for name in self.changes):
            found.append(
                "versions and files are the same: the model draws its weights at random, or depends on what the "
                "command does not name, such as files that it reads or modules that it imports"
            )
        return found


_PROGRAM, _METADATA = "main.mlirb", "metadata.json"
_CAUSES = ("version", "torch", "xdsl", "coreai-core", "catalogs", "recipe")
"""How the names of changes begin that can be the cause of others."""


def reproduction_of(old: Path, new: Path) -> Reproduction:
    """Compare two assets, or two bundles.

    Raises:
        AssetError: an asset is damaged.
    """
    from patcomp.emit.written import hashes_of, written_module

    mine, others = ({each.relative_to(place).as_posix(): each for each in sorted(place.rglob("*")) if each.is_file()}
                    for place in (old, new))  # fmt: skip
    files, changes, weights = {}, dict[str, _Change](), list[str]()
    for name in sorted(mine.keys() | others.keys()):
        if name not in mine or name not in others:
            files[name] = "missing" if name in mine else "new"
            continue
        files[name] = "same" if filecmp.cmp(mine[name], others[name], shallow=False) else "differs"
        if files[name] == "same":
            continue
        before, now = mine[name].parent, others[name].parent
        if mine[name].name == _METADATA:
            changes |= dict(_changes(_said(read_metadata(before)), _said(read_metadata(now))))
        elif mine[name].name == _PROGRAM:
            old_weights, new_weights = (hashes_of(written_module(each)) for each in (before, now))
            weights += [each for each, _ in _changes(old_weights, new_weights)]
    return Reproduction(files, changes, weights)


def _said(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What metadata say, with the manifest as data."""
    rest = {name: value for name, value in metadata.items() if name != "creatorDefinedMetadata"}
    of_others = {name: text for name, text in creator_entries(metadata, "").items() if not name.startswith("patcomp.")}
    return rest | manifest_in(metadata) | of_others


def _changes(before: Mapping[str, Any], now: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, _Change]]:
    """The entries of two mappings that differ, by their paths."""
    for name in dict.fromkeys((*before, *now)):
        first, second = before.get(name), now.get(name)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            yield from _changes(first, second, f"{place}{name}: ")
        elif first != second:
            yield f"{place}{name}", (first, second)


def _text(value: Any) -> str:
    """A value in words; of a hash its start."""
    text = "nothing" if value is None else str(value)
    return f"{text[:12]}..." if len(text) == 64 and text.isalnum() else text

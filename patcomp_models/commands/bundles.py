"""What `patcomp convert` and `inspect` do with bundles."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from patcomp.commands.common import (
    UsageError,
    given_options,
    load_catalogs,
    print_json,
    require_transformers,
    say,
    tell,
)
from patcomp.commands.convert_options import BundleChoices, ShownOptions
from patcomp.commands.models import ModelOptions
from patcomp.commands.progress import working
from patcomp.commands.tables import print_table

if TYPE_CHECKING:
    from patcomp.emit.inspection import Inspection

_OPTIONS = ("model", "output", "kind", "setting", "dtype", "target", "compress", "no_check", "writer", "json", "quiet")
"""The options of `patcomp convert` that bundles take."""
_OF_KINDS = {
    "trusted": "trust_remote_code", "allow_missing": "allow_missing", "allow_unexpected": "allow_unexpected",
    "catalog": "catalog",
}  # fmt: skip
"""Those that only some kinds have, with their names as options of a kind."""


def convert_to_bundle(
    context: typer.Context,
    model: str,
    output: Path | None,
    *,
    bundle: BundleChoices,
    target: Any,
    compress: str | None,
    writer: Any,
    shown: ShownOptions,
    options: ModelOptions,
) -> None:
    """`patcomp convert FOLDER -o BUNDLE`.

    Raises:
        UsageError: an option is for assets only, or the output has the name of an asset.
    """
    _check_options(context)
    if output is not None and output.suffix == ".aimodel":
        raise UsageError(
            f"{model} becomes a bundle, a folder of assets; name the output without .aimodel, got {output}"
        )
    require_transformers("a bundle")
    from patcomp_models.bundles import check_bundle, convert_bundle
    from patcomp_models.checkpoints.json_files import metadata_in

    own = settings_in(bundle.setting) | {
        name: getattr(options, each) for each, name in _OF_KINDS.items() if options.given(each)
    }
    if options.catalog:
        own["catalog"] = load_catalogs(options.catalog)
    if taken := own.keys() & (inspect.signature(convert_bundle).parameters.keys() - {"name"}):
        raise UsageError(f"--set {taken.pop()} is no option of one kind; use the option of the command")
    source = Path(model)
    place = output or Path(f"{source.with_suffix('') if source.suffix == '.gguf' else source}-bundle")
    made = convert_bundle(
        model, out=place, kind=bundle.kind, dtype=bundle.dtype, target=target, compress=compress,
        verify=not bundle.no_check, progress=lambda what: working(what, not shown.quiet), writer=writer, **own,
    )  # fmt: skip
    metadata, problems = metadata_in(made), check_bundle(made)
    if not shown.quiet:
        say(f"bundle: {made}")
    for note in _notes(metadata):
        say(f"note: {note}")
    for problem in problems:
        say(f"warning: {problem}")
    if shown.json:
        print_json({
            "model": model, "bundle": str(made), "metadata": metadata, "problems": [str(each) for each in problems]
        })  # fmt: skip


def settings_in(settings: list[str] | None) -> dict[str, Any]:
    """The options of a kind, `image_size=512`; numbers and `true` are what JSON says, everything else is a text.

    Raises:
        UsageError: one has no name.
    """
    found: dict[str, Any] = {}
    for each in settings or ():
        name, separator, value = each.partition("=")
        if not separator or not name.isidentifier():
            raise UsageError(f"--set takes NAME=VALUE, such as image_size=512, got {each!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _check_options(context: typer.Context) -> None:
    if given := given_options(context, (*_OPTIONS, *_OF_KINDS)):
        raise UsageError(
            f"{', '.join(given)} is for a single asset, and this conversion makes a bundle; name the output "
            "NAME.aimodel for an asset, or leave the option out"
        )


def inspect_bundle(folder: Path, *, as_json: bool) -> None:
    """`patcomp inspect BUNDLE`: its components, and what Apple's Swift package would refuse.

    Raises:
        BundleError: its metadata cannot be read.
    """
    require_transformers("the kinds of bundles")
    from patcomp.emit.inspection import inspect_asset
    from patcomp.program.units import size_text
    from patcomp_models.bundle_folders.revisions import OLD, REVISIONS
    from patcomp_models.bundles.check import check_bundle
    from patcomp_models.checkpoints.json_files import metadata_in

    metadata = metadata_in(folder)
    assets = metadata.get("assets")
    assets = assets if isinstance(assets, dict) else {}
    found = {role: inspect_asset(folder / file) for role, file in assets.items() if (folder / file).is_dir()}
    problems = {revision: [str(each) for each in check_bundle(folder, revision)] for revision in REVISIONS}
    if as_json:
        print_json({
            "path": str(folder), "metadata": metadata, "problems": problems[OLD], "problems_by_revision": problems,
            "assets": {role: each.to_dict() for role, each in found.items()},
        })  # fmt: skip
        return
    tell(f"{folder}: {metadata.get('kind')}, {size_text(sum(each.bytes for each in found.values()))}")
    for note in _notes(metadata):
        tell(f"note: {note}")
    print_table(["role", "asset", "size", "ops", "composites"], [_row(role, each) for role, each in found.items()])
    for role, each in found.items():
        for name, signature in each.functions.items():
            tell(f"{role}, function {name}")
            tell("\n".join(f"  {line}" for line in str(signature).splitlines()))
    for problem in dict.fromkeys(each for found in problems.values() for each in found):
        by = " and ".join(revision for revision, found in problems.items() if problem in found)
        tell(f"Apple's Swift package (revision {by}) refuses it: {problem}")


def bundle_assets(bundle: Path) -> dict[str, Path]:
    """The folders of the assets in a bundle, by their roles.

    Raises:
        BundleError: the bundle's metadata cannot be read, or names no assets.
        FileNotFoundError: an asset is not there.
    """
    from patcomp_models.checkpoints.json_files import metadata_in
    from patcomp_models.errors import BundleError

    named = metadata_in(bundle).get("assets")
    if not isinstance(named, dict) or not named or not all(isinstance(file, str) for file in named.values()):
        raise BundleError(f"{bundle}/metadata.json names no assets; convert the model again")
    assets = {role: bundle / file for role, file in named.items()}
    for role, path in assets.items():
        if not path.is_dir():
            raise FileNotFoundError(f"the bundle {bundle} lacks {path.name}, the asset of its {role}")
    return assets


def _notes(metadata: Mapping[str, Any]) -> list[object]:
    """The notes of a bundle; none if a stranger's metadata have something else there."""
    notes = metadata.get("notes")
    return notes if isinstance(notes, list) else []


def _row(role: str, found: Inspection) -> tuple[str, ...]:
    from patcomp.program.units import size_text

    return (
        role, found.path.name, size_text(found.bytes), str(sum(found.ops.values())), str(sum(found.composites.values()))
    )  # fmt: skip

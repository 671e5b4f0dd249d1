"""A check that reads bundles as Apple's Swift package does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from patcomp.emit.asset import load
from patcomp.errors import AssetError, Problem, reason_of
from patcomp_models.bundle_folders.contract import general_problems, problem
from patcomp_models.bundle_folders.interfaces import Interfaces
from patcomp_models.bundle_folders.revisions import OLD, check_revision, field_problems
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.checkpoints.untrusted import object_in
from patcomp_models.errors import BundleError, LanguageModelError
from patcomp_models.language.contract import AUXILIARY, EMBEDDING, LANGUAGE, MAIN, PER_LAYER, TOWER, VISION
from patcomp_models.language.dynamic_check import dynamic_problems
from patcomp_models.language.hearing import SOUND
from patcomp_models.language.lint import tokenizer_problems
from patcomp_models.language.static_check import is_static_form, static_problems
from patcomp_models.language.static_contract import LAYER_ROLE
from patcomp_models.language.vision.contract import vision_problems


def check_bundle(path: str | Path, revision: str = OLD) -> tuple[Problem, ...]:
    """The parts of a bundle that Apple's Swift package would refuse or misread; empty if there are none.

    Args:
        path: the folder of the bundle.
        revision: of Apple's package, `"86b363d"` or the later `"34ab73d"`. Of the later one, the fields of `language`,
            and the functions of growing caches and of fixed sizes are known; in all else it is checked as the earlier
            one.

    Raises:
        BundleError: there is no contract of this revision.
    """
    check_revision(revision)
    folder = Path(path)
    try:
        metadata = metadata_in(folder)
    except BundleError as error:
        return (problem(str(error)),)
    found = [*general_problems(folder, metadata), *field_problems(metadata, revision)]
    if metadata.get("kind") not in (LANGUAGE, VISION):
        found.append(problem(f"kind is {metadata.get('kind')!r}, and must be {LANGUAGE!r} or {VISION!r}"))
    return (*found, *language_problems(folder, metadata, revision))


def language_problems(folder: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
    """The problems of what bundles of these kinds have beside the fields of their metadata.

    Args:
        folder: of the bundle.
        metadata: its `metadata.json`.
        revision: of Apple's package.
    """
    problems = _roles(metadata)
    language = metadata.get("language") if isinstance(metadata.get("language"), dict) else {}
    assert isinstance(language, dict)
    if language.get("embedded_tokenizer", True):
        problems += _tokenizer(folder / "tokenizer" / "tokenizer.json") or tokenizer_problems(folder, language)
    assets = metadata.get("assets") if isinstance(metadata.get("assets"), dict) else {}
    assert isinstance(assets, dict)
    if metadata.get("kind") == VISION:
        problems += vision_problems(folder, assets, language, metadata.get("vision"), metadata.get(SOUND))
    elif isinstance(assets.get(MAIN), str):
        problems += _asset(folder / assets[MAIN], metadata, language, revision)
        if PER_LAYER in metadata:
            problems += _table(folder, metadata[PER_LAYER])
    return problems


def _roles(metadata: Mapping[str, Any]) -> list[Problem]:
    """The assets that are not named."""
    assets = metadata.get("assets")
    named = assets if isinstance(assets, dict) else {}
    wanted = (MAIN, EMBEDDING, TOWER) if metadata.get("kind") == VISION else (MAIN,)
    return [problem(f"assets.{role} is missing") for role in wanted if not isinstance(named.get(role), str)]


def _tokenizer(file: Path) -> list[Problem]:
    """The problems of the tokenizer's file."""
    try:
        object_in(file)
    except FileNotFoundError:
        return [problem("there is no tokenizer/tokenizer.json, so the package would ask the hub for it")]
    except BundleError as error:
        return [problem(str(error))]
    return []


def _table(folder: Path, described: Any) -> list[Problem]:
    """The problems of a table of embeddings outside of the asset."""
    from patcomp_models.language.per_layer import PerLayerTable

    try:
        PerLayerTable(folder, described)
    except LanguageModelError as error:
        return [problem(str(error))]
    except (KeyError, TypeError, ValueError) as error:
        return [problem(f"{PER_LAYER} does not describe a table: {reason_of(error)}")]
    return []


def _static(path: Path, metadata: Mapping[str, Any], language: dict[str, Any], revision: str) -> list[Problem]:
    """The problems of functions of fixed sizes, whose constraints the toolchain tells."""
    table = metadata.get(PER_LAYER)
    with closing(load(path)) as asset:
        found = [problem(each) for each in static_problems(asset, language, table, revision)]
    if isinstance(table, dict) and metadata.get(AUXILIARY) != {LAYER_ROLE: table.get("file")}:
        found.append(problem(f"{AUXILIARY}.{LAYER_ROLE} is not {table.get('file')}, the table of per-layer embeddings"))
    return found


def _asset(path: Path, metadata: Mapping[str, Any], language: dict[str, Any], revision: str) -> list[Problem]:
    """The problems of an asset's functions."""
    try:
        asset = Interfaces.of(path)
    except (FileNotFoundError, AssetError) as error:
        return [problem(str(error))]
    try:
        if is_static_form(list(asset.names)):
            return _static(path, metadata, language, revision)
        return dynamic_problems(asset, language, revision)
    except KeyError as error:
        return [problem(str(error.args[0]))]

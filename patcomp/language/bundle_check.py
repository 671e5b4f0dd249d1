"""A check that reads bundles as Apple's Swift package does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from patcomp.errors import Problem
from patcomp.language.contract import VERSION
from patcomp.language.dynamic_check import dynamic_problems
from patcomp.language.static_check import is_static, static_problems


def check_bundle(path: str | Path) -> tuple[Problem, ...]:
    """The parts of a bundle that Apple's Swift package would refuse or misread; empty if there are none.

    Args:
        path: the folder of the bundle.
    """
    folder = Path(path)
    if not folder.is_dir():
        return (_problem(f"{str(folder)!r} is not a folder"),)
    metadata, problems = _metadata(folder)
    if metadata is None:
        return tuple(problems)
    problems += _keys(metadata)
    language = metadata.get("language") if isinstance(metadata.get("language"), dict) else {}
    assert isinstance(language, dict)
    if language.get("embedded_tokenizer", True) and not (folder / "tokenizer" / "tokenizer.json").is_file():
        problems.append(_problem("there is no tokenizer/tokenizer.json, so the package would ask the hub for it"))
    main = metadata.get("assets", {}).get("main") if isinstance(metadata.get("assets"), dict) else None
    if isinstance(main, str):
        problems += _asset(folder / main, language)
    return tuple(problems)


def _problem(message: str, advice: str = "convert the model again") -> Problem:
    return Problem(message, advice=advice)


def _metadata(folder: Path) -> tuple[dict[str, Any] | None, list[Problem]]:
    file = folder / "metadata.json"
    if not file.is_file():
        return None, [_problem("there is no metadata.json")]
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        return None, [_problem(f"metadata.json is not JSON: {error}")]
    return (found, []) if isinstance(found, dict) else (None, [_problem("metadata.json is not an object")])


def _keys(metadata: dict[str, Any]) -> list[Problem]:
    problems = []
    if metadata.get("metadata_version") != VERSION:
        problems.append(_problem(f"metadata_version is {metadata.get('metadata_version')!r}, and must be {VERSION!r}"))
    if metadata.get("kind") != "llm":
        problems.append(_problem(f"kind is {metadata.get('kind')!r}, and must be 'llm'"))
    if not isinstance(metadata.get("name"), str) or not metadata["name"]:
        problems.append(_problem("name is missing"))
    assets = metadata.get("assets")
    if not isinstance(assets, dict) or not isinstance(assets.get("main"), str):
        problems.append(_problem("assets.main is missing"))
    language = metadata.get("language")
    if not isinstance(language, dict):
        return [*problems, _problem("language is missing")]
    if not isinstance(language.get("tokenizer"), str):
        problems.append(_problem("language.tokenizer is missing"))
    for key in ("vocab_size", "max_context_length"):
        if type(language.get(key)) is not int or language[key] < 1:
            problems.append(_problem(f"language.{key} is {language.get(key)!r}, and must be a positive integer"))
    return problems


def _asset(path: Path, language: dict[str, Any]) -> list[Problem]:
    """The problems of an asset's functions."""
    from patcomp.emit.asset import AssetError, load

    try:
        asset = load(path)
    except (FileNotFoundError, AssetError) as error:
        return [_problem(str(error))]
    try:
        if is_static(asset.function_names):
            return [_problem(problem) for problem in static_problems(asset, language)]
        return dynamic_problems(asset, language)
    except KeyError as error:
        return [_problem(str(error.args[0]))]
    finally:
        asset.close()

"""The contract of a language model bundle with Apple's Swift package, and a check that reads bundles as the package
does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patcomp.errors import Problem
from patcomp.language.static_check import is_static, static_problems

TOKENS, POSITIONS, LOGITS = "input_ids", "position_ids", "logits"
KEYS, VALUES, CONVOLUTION, RECURRENCE = "keyCache", "valueCache", "convState", "recState"
"""The names of states. A second state of a kind has the number 2 behind its name."""
_MOST_STATES = 4

VERSION = "0.2"
"""The only version of `metadata.json` that is accepted."""

CAPACITY = 256
"""How many tokens the first cache holds; it is doubled as needed."""


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
        described = asset.described()
    except KeyError as error:
        return [_problem(str(error.args[0]))]
    finally:
        asset.close()
    problems = _interface(described)
    if problems:
        return problems
    tokens, positions = (described.input_descriptor(name) for name in described.input_names)
    logits = described.output_descriptor(described.output_names[0])
    for name, given in ((TOKENS, tokens), (POSITIONS, positions)):
        if given.dtype.lower() != "int32" or [*given.shape][:1] != [1] or len(given.shape) != 2 or given.shape[1] >= 0:
            problems.append(_problem(f"{name} is {_shown(given)}, and must be 1 x ? of int32"))
    if logits.dtype.lower() != "float16":
        problems.append(_problem(f"{LOGITS} are {logits.dtype}, and must be float16", "convert with dtype='float16'"))
    if len(logits.shape) != 3 or logits.shape[-1] != language.get("vocab_size"):
        problems.append(_problem(f"{LOGITS} are {_shown(logits)}; their last size must be language.vocab_size"))
    return [*problems, *_states(described)]


def engine_refusal(grows: Sequence[bool]) -> str:
    """Why Apple's engines do not take a model with such states; empty if they do.

    Args:
        grows: for each state, in order, whether it has an open size.
    """
    if len(grows) > _MOST_STATES:
        return f"Apple's engines take {_MOST_STATES} states at most, and this model keeps {len(grows)}"
    if grows[:2] != [True, True]:
        return "Apple's engines take growing caches of keys and of values as the first two states; this model has none"
    return ""


def _states(described: Any) -> list[Problem]:
    """The problems of the states of `main`: two growing caches, and perhaps two more states."""
    states = {name: described.state_descriptor(name) for name in described.state_names}
    is_open = {name: [size is None or size < 0 for size in state.shape] for name, state in states.items()}
    grows = {name: any(sizes) for name, sizes in is_open.items()}
    problems = []
    if refusal := engine_refusal(list(grows.values())):
        problems.append(_problem(refusal, "run the bundle with Bundle.generate, or in a host of your own"))
    for name, state in states.items():
        if grows[name]:
            if is_open[name] != [False, False, False, True, False] or state.shape[1] != 1:
                problems.append(_problem(f"{name} is {_shown(state)}, and must be layers x 1 x heads x ? x width"))
        elif any(part in name.lower() for part in ("cache", "kv")):
            # the engines take it for a window of keys, in which they go back by counting
            problems.append(_problem(f"{name} is {_shown(state)}; its size must be open, or its name another"))
    growing = [state for name, state in states.items() if grows[name]]
    for keys, values in zip(growing[::2], growing[1::2], strict=False):
        if (tuple(keys.shape), keys.dtype) != (tuple(values.shape), values.dtype):
            problems.append(_problem("the caches of keys and values differ in type or shape"))
    if len(growing) % 2:
        problems.append(_problem("a cache of keys has no cache of values"))
    return problems


def _interface(described: Any) -> list[Problem]:
    """The names of a function, in the order in which the package takes them."""
    found = []
    for what, names, wanted in (
        ("inputs", list(described.input_names), [TOKENS, POSITIONS]),
        ("outputs", list(described.output_names), [LOGITS]),
    ):
        if names != wanted:
            given = ", ".join(names) or "none"
            found.append(_problem(f"the {what} of main are {given}; they must be {', '.join(wanted)}"))
    return found


def _shown(described: Any) -> str:
    sizes = " x ".join("?" if size is None or size < 0 else str(size) for size in described.shape)
    return f"{sizes} of {described.dtype}"

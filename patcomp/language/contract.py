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
PIXELS, FEATURES = "pixel_values", "image_features"
EMBEDDINGS, EMBEDDED = "embeddings", "inputs_embeds"
"""The names of inputs and outputs."""
LANGUAGE, VISION = "llm", "vlm"
"""The kinds of bundles."""
MAIN, EMBEDDING, TOWER = "main", "embedding", "vision"
"""The assets of a bundle with vision, by role; one of text only has the first."""
KEYS, VALUES, CONVOLUTION, RECURRENCE = "keyCache", "valueCache", "convState", "recState"
"""The names of states. A second state of a kind has the number 2 behind its name."""
_MOST_STATES = {LANGUAGE: 4, VISION: 2}

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
        return (problem(f"{str(folder)!r} is not a folder"),)
    metadata, problems = _metadata(folder)
    if metadata is None:
        return tuple(problems)
    problems += _keys(metadata)
    language = metadata.get("language") if isinstance(metadata.get("language"), dict) else {}
    assert isinstance(language, dict)
    if language.get("embedded_tokenizer", True) and not (folder / "tokenizer" / "tokenizer.json").is_file():
        problems.append(problem("there is no tokenizer/tokenizer.json, so the package would ask the hub for it"))
    assets = metadata.get("assets") if isinstance(metadata.get("assets"), dict) else {}
    assert isinstance(assets, dict)
    if metadata.get("kind") == VISION:
        from patcomp.language.vision.contract import vision_problems

        return (*problems, *vision_problems(folder, assets, language, metadata.get("vision")))
    if isinstance(assets.get("main"), str):
        problems += _asset(folder / assets["main"], language)
    return tuple(problems)


def problem(message: str, advice: str = "convert the model again") -> Problem:
    return Problem(message, advice=advice)


def _metadata(folder: Path) -> tuple[dict[str, Any] | None, list[Problem]]:
    file = folder / "metadata.json"
    if not file.is_file():
        return None, [problem("there is no metadata.json")]
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        return None, [problem(f"metadata.json is not JSON: {error}")]
    return (found, []) if isinstance(found, dict) else (None, [problem("metadata.json is not an object")])


def _keys(metadata: dict[str, Any]) -> list[Problem]:
    problems = []
    if metadata.get("metadata_version") != VERSION:
        problems.append(problem(f"metadata_version is {metadata.get('metadata_version')!r}, and must be {VERSION!r}"))
    if metadata.get("kind") not in (LANGUAGE, VISION):
        problems.append(problem(f"kind is {metadata.get('kind')!r}, and must be {LANGUAGE!r} or {VISION!r}"))
    if not isinstance(metadata.get("name"), str) or not metadata["name"]:
        problems.append(problem("name is missing"))
    assets = metadata.get("assets")
    for role in (MAIN, EMBEDDING, TOWER) if metadata.get("kind") == VISION else (MAIN,):
        if not isinstance(assets, dict) or not isinstance(assets.get(role), str):
            problems.append(problem(f"assets.{role} is missing"))
    language = metadata.get("language")
    if not isinstance(language, dict):
        return [*problems, problem("language is missing")]
    if not isinstance(language.get("tokenizer"), str):
        problems.append(problem("language.tokenizer is missing"))
    for key in ("vocab_size", "max_context_length"):
        if type(language.get(key)) is not int or language[key] < 1:
            problems.append(problem(f"language.{key} is {language.get(key)!r}, and must be a positive integer"))
    return problems


def _asset(path: Path, language: dict[str, Any]) -> list[Problem]:
    """The problems of an asset's functions."""
    from patcomp.emit.asset import AssetError, load

    try:
        asset = load(path)
    except (FileNotFoundError, AssetError) as error:
        return [problem(str(error))]
    try:
        if is_static(asset.function_names):
            return [problem(each) for each in static_problems(asset, language)]
        described = asset.described()
    except KeyError as error:
        return [problem(str(error.args[0]))]
    finally:
        asset.close()
    if problems := interface_problems("main", described, [TOKENS, POSITIONS], [LOGITS]):
        return problems
    for name in (TOKENS, POSITIONS):
        problems += size_problems(described.input_descriptor(name), name, (1, None), "int32")
    return [*problems, *logits_problems(described, language), *state_problems(described)]


def size_problems(given: Any, name: str, shape: Sequence[int | None], dtype: str) -> list[Problem]:
    """What is wrong with the type or the shape of an input or output; None is any open size."""
    sizes = [None if size is None or size < 0 else size for size in given.shape]
    if sizes == [*shape] and given.dtype.lower() == dtype:
        return []
    wanted = " x ".join("?" if size is None else str(size) for size in shape)
    return [problem(f"{name} is {_shown(given)}, and must be {wanted} of {dtype}")]


def logits_problems(described: Any, language: dict[str, Any]) -> list[Problem]:
    """What is wrong with the logits of `main`."""
    problems = []
    logits = described.output_descriptor(described.output_names[0])
    if logits.dtype.lower() != "float16":
        problems.append(problem(f"{LOGITS} are {logits.dtype}, and must be float16", "convert with dtype='float16'"))
    if len(logits.shape) != 3 or logits.shape[-1] != language.get("vocab_size"):
        problems.append(problem(f"{LOGITS} are {_shown(logits)}; their last size must be language.vocab_size"))
    return problems


def engine_refusal(grows: Sequence[bool], kind: str = LANGUAGE) -> str:
    """Why Apple's engines do not take a model with such states; empty if they do.

    Args:
        grows: for each state, in order, whether it has an open size.
        kind: of the bundle.
    """
    most = _MOST_STATES[kind]
    if len(grows) > most:
        beside = " beside an image" if kind == VISION else ""
        return f"Apple's engines take {most} states at most{beside}, and this model keeps {len(grows)}"
    if grows[:2] != [True, True]:
        return "Apple's engines take growing caches of keys and of values as the first two states; this model has none"
    return ""


def state_problems(described: Any, kind: str = LANGUAGE) -> list[Problem]:
    """The problems of the states of `main`: two growing caches, and perhaps two more states."""
    states = {name: described.state_descriptor(name) for name in described.state_names}
    is_open = {name: [size is None or size < 0 for size in state.shape] for name, state in states.items()}
    grows = {name: any(sizes) for name, sizes in is_open.items()}
    problems = []
    if refusal := engine_refusal(list(grows.values()), kind):
        problems.append(problem(refusal, "run the bundle with Bundle.generate, or in a host of your own"))
    for name, state in states.items():
        if grows[name]:
            if is_open[name] != [False, False, False, True, False] or state.shape[1] != 1:
                problems.append(problem(f"{name} is {_shown(state)}, and must be layers x 1 x heads x ? x width"))
        elif any(part in name.lower() for part in ("cache", "kv")):
            # the engines take it for a window of keys, in which they go back by counting
            problems.append(problem(f"{name} is {_shown(state)}; its size must be open, or its name another"))
    growing = [state for name, state in states.items() if grows[name]]
    for keys, values in zip(growing[::2], growing[1::2], strict=False):
        if (tuple(keys.shape), keys.dtype) != (tuple(values.shape), values.dtype):
            problems.append(problem("the caches of keys and values differ in type or shape"))
    if len(growing) % 2:
        problems.append(problem("a cache of keys has no cache of values"))
    return problems


def interface_problems(function: str, described: Any, inputs: Sequence[str], outputs: Sequence[str]) -> list[Problem]:
    """What is wrong with the names of a function, in the order in which the package takes them."""
    found = []
    for what, names, wanted in (
        ("inputs", list(described.input_names), [*inputs]),
        ("outputs", list(described.output_names), [*outputs]),
    ):
        if names != wanted:
            given = ", ".join(names) or "none"
            found.append(problem(f"the {what} of {function} are {given}; they must be {', '.join(wanted)}"))
    return found


def _shown(described: Any) -> str:
    sizes = " x ".join("?" if size is None or size < 0 else str(size) for size in described.shape)
    return f"{sizes} of {described.dtype}"

"""Whether the tokenizer of a bundle, its chat template and the vocabulary of the model fit each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import problem
from patcomp_models.checkpoints.untrusted import bytes_of, object_in
from patcomp_models.errors import BundleError
from patcomp_models.language.contract import STOPS

_SPECIAL = re.compile(r"<\|[^|<>\s{}]+\|>|<(?:start|end)_of_turn>")
"""Finds tokens in a chat template that mean something as a whole only."""
_NAMED = re.compile(r"\b((?:bos|eos|unk|pad)_token)\b")


def tokenizer_problems(folder: Path, language: Mapping[str, Any]) -> list[Problem]:
    """What does not fit in the tokenizer of a bundle.

    Args:
        folder: of the bundle, which has `tokenizer/tokenizer.json`.
        language: the `language` of `metadata.json`.
    """
    place = folder / "tokenizer"
    try:
        words = _words(object_in(place / "tokenizer.json"))
        settings = object_in(place / "tokenizer_config.json") if (place / "tokenizer_config.json").is_file() else {}
    except BundleError as error:
        return [problem(str(error))]
    problems = []
    size = language.get("vocab_size")
    if type(size) is int and words and (largest := max(words.values())) >= size:
        name = next(word for word, number in words.items() if number == largest)
        problems.append(problem(
            f"the tokenizer has the token {largest} ({name!r}), and language.vocab_size is {size}",
            "give the tokenizer of the model",
        ))  # fmt: skip
    stops = language.get(STOPS, [])
    if not isinstance(stops, list) or not all(type(each) is int for each in stops):
        problems.append(problem(f"language.{STOPS} is {stops!r}, and must be a list of token ids"))
        stops = []
    for stop in stops:
        if type(size) is int and not 0 <= stop < size:
            problems.append(problem(f"language.{STOPS} has {stop}, and language.vocab_size is {size}"))
    for template in _templates(place, settings):
        lacking = sorted({*_SPECIAL.findall(template)} - {*words})
        if lacking:
            problems.append(problem(
                f"the chat template writes {', '.join(lacking[:3])}, which {'is' if len(lacking) == 1 else 'are'} no "
                "token of the tokenizer",
                "give the tokenizer and the template of one model",
            ))  # fmt: skip
        unnamed = sorted(name for name in {*_NAMED.findall(template)} if settings.get(name) is None)
        if unnamed:
            problems.append(problem(
                f"the chat template writes {', '.join(unnamed)}, which tokenizer_config.json does not name",
            ))  # fmt: skip
    end = settings.get("eos_token")
    end = end.get("content") if isinstance(end, dict) else end
    if stops and isinstance(end, str) and words.get(end) not in stops:
        problems.append(problem(
            f"the tokenizer ends with {end!r}, token {words.get(end)}, and the model with {', '.join(map(str, stops))} "
            f"(language.{STOPS})",
            "give the tokenizer of the model, or correct eos_token of tokenizer_config.json",
        ))  # fmt: skip
    return problems


def _words(content: Mapping[str, Any]) -> dict[str, int]:
    """All tokens of a `tokenizer.json`, with their numbers."""
    model = content.get("model")
    listed = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(listed, list):  # a token and its probability each
        words = {str(each[0]): number for number, each in enumerate(listed) if isinstance(each, list) and each}
    else:
        words = {word: number for word, number in (listed or {}).items() if type(number) is int}
    added = content.get("added_tokens")
    for each in added if isinstance(added, list) else []:
        if isinstance(each, dict) and type(each.get("id")) is int:
            words[str(each.get("content"))] = each["id"]
    return words


def _templates(place: Path, settings: Mapping[str, Any]) -> list[str]:
    """The chat templates of a tokenizer."""
    file = place / "chat_template.jinja"
    found = [bytes_of(file).decode("utf-8", "replace")] if file.is_file() else []
    given = settings.get("chat_template")
    named = [each.get("template") for each in given if isinstance(each, dict)] if isinstance(given, list) else [given]
    return [*found, *(each for each in named if isinstance(each, str))]

"""Tokenizers: in the files that Apple's Swift package reads, and those of strangers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patcomp.errors import reason_of, shortened
from patcomp_models.checkpoints.config_numbers import MOST_TOKENS
from patcomp_models.checkpoints.untrusted import object_in
from patcomp_models.errors import BundleError


def check_ids(folder: Path, error: type[BundleError] = BundleError) -> None:
    """Check the ids of tokens in the JSON files of a tokenizer, before it is loaded.

    Raises:
        BundleError: an id is beyond every vocabulary.
    """
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "added_tokens.json"):
        file = folder / name
        try:
            found = object_in(file)
        except (FileNotFoundError, BundleError):
            continue  # who loads the tokenizer says that the file is damaged
        for each in _ids_in(name, found):
            if isinstance(each, int) and not 0 <= each < MOST_TOKENS:
                raise error(f"{str(file)!r} has the token id {shortened(str(each), 40)}; ids are below {MOST_TOKENS}")


def _ids_in(name: str, found: dict[str, Any]) -> Iterator[object]:
    if name == "tokenizer.json":
        model, added = found.get("model"), found.get("added_tokens")
        words = model.get("vocab") if isinstance(model, dict) else None
        yield from words.values() if isinstance(words, dict) else ()
        yield from (each.get("id") for each in added if isinstance(each, dict)) if isinstance(added, list) else ()
    elif name == "tokenizer_config.json":
        added = found.get("added_tokens_decoder")
        plain = added if isinstance(added, dict) else ()
        yield from (int(each) if len(each) < 20 else MOST_TOKENS for each in plain if each.isdecimal())
    else:
        yield from found.values()


@contextmanager
def tokenizing(said: str, error: type[BundleError] = BundleError, advice: str = "correct it") -> Iterator[None]:
    """While a tokenizer of a stranger is loaded or used, whatever it raises is one error.

    Its library panics if a pattern takes too many steps on a text, which is no `Exception` of Python.

    Args:
        said: that it fails, the beginning of the error.
        error: what is raised.
        advice: the end of the error.

    Raises:
        BundleError: the tokenizer fails.
    """
    try:
        yield
    except BundleError:
        raise
    except BaseException as reason:  # a panic of Rust code is no `Exception`
        if not isinstance(reason, Exception) and type(reason).__name__ != "PanicException":
            raise
        raise error(f"{said}: {reason_of(reason)}; {advice}") from reason


def save(made: Any, place: Path, error: type[BundleError] = BundleError) -> None:
    """Write a tokenizer or processor of a stranger into a folder, as transformers writes it.

    Raises:
        BundleError: a setting of it cannot be written, a chat template that is no text, say.
    """
    with tokenizing(f"transformers cannot save the {type(made).__name__} of the checkpoint", error):
        made.save_pretrained(place)


def write_clip_files(folder: Path) -> None:
    """Write `vocab.json` and `merges.txt` for Swift's CLIP tokenizer, from the `tokenizer.json` of the folder. Newer
    versions of transformers write only `tokenizer.json`.

    Args:
        folder: of the tokenizer.

    Raises:
        BundleError: the folder has neither.
    """
    files = [folder / name for name in ("vocab.json", "merges.txt")]
    if all(file.is_file() for file in files):
        return
    whole = folder / "tokenizer.json"
    if not whole.is_file():
        raise BundleError(f"{folder.name} has neither vocab.json and merges.txt nor tokenizer.json; save the tokenizer")
    model = object_in(whole).get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if not isinstance(model, dict) or kind != "BPE":
        raise BundleError(f"{folder.name} is of {kind}, and CLIP's is of BPE (byte pair encoding)")
    words, merges = model.get("vocab"), model.get("merges")
    if not isinstance(words, dict) or not isinstance(merges, list) or not all(map(_is_merge, merges)):
        raise BundleError(f"tokenizer.json of {folder.name} has no words and merges; save the tokenizer")
    files[0].write_text(json.dumps(words, ensure_ascii=False), encoding="utf-8")
    pairs = (merge if isinstance(merge, str) else " ".join(merge) for merge in merges)
    files[1].write_text("\n".join(["#version: 0.2", *pairs]) + "\n", encoding="utf-8")


def _is_merge(merge: object) -> bool:
    """Whether a merge is a text, or two of them."""
    return isinstance(merge, str) or (isinstance(merge, list) and all(isinstance(each, str) for each in merge))


def write_with_pairs(file: Path, out: Path) -> None:
    """Write a `tokenizer.json` whose merges are pairs, which Swift's tokenizer of segmenters reads.

    Args:
        file: of the tokenizer, whose merges may be texts with a space.
        out: the file to write; its folder may not exist.

    Raises:
        BundleError: the tokenizer is not CLIP's.
    """
    try:
        whole = object_in(file)
        model = whole["model"]
        merges = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
    except (ValueError, LookupError, TypeError):
        raise BundleError(f"{str(file)!r} has no model with merges, as CLIP's tokenizer of byte pairs has it") from None
    out.parent.mkdir(parents=True, exist_ok=True)
    whole["model"] = {**model, "merges": merges}
    out.write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")

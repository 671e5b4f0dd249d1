"""Tokenizers in the files that Apple's Swift package reads."""

from __future__ import annotations

import json
from pathlib import Path

from patcomp.bundle_folders.errors import BundleError


def write_clip_files(folder: Path) -> None:
    """Write `vocab.json` and `merges.txt`, which Swift's tokenizer of CLIP reads, from a `tokenizer.json` beside them;
    newer versions of transformers write only that.

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
    model = json.loads(whole.read_text(encoding="utf-8")).get("model", {})
    if model.get("type") != "BPE":
        raise BundleError(f"{folder.name} is of {model.get('type')}, and CLIP's is of BPE (byte pair encoding)")
    files[0].write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
    pairs = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    files[1].write_text("\n".join(["#version: 0.2", *pairs]) + "\n", encoding="utf-8")


def write_with_pairs(file: Path, out: Path) -> None:
    """Write a `tokenizer.json` whose merges are pairs, which Swift's tokenizer of segmenters reads.

    Args:
        file: of the tokenizer, whose merges may be texts with a space.
        out: the file to write; its folder may not exist.

    Raises:
        BundleError: the tokenizer is not CLIP's.
    """
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
        model = whole["model"]
        merges = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
    except (ValueError, LookupError, TypeError):
        raise BundleError(f"{str(file)!r} has no model with merges, as CLIP's tokenizer of byte pairs has it") from None
    out.parent.mkdir(parents=True, exist_ok=True)
    whole["model"] = {**model, "merges": merges}
    out.write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")

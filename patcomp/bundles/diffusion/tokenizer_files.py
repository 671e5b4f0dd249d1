"""The tokenizers of pipelines in the files that Apple's Swift package reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from patcomp.bundle_folders.errors import BundleError
from patcomp.bundle_folders.tokenizers import write_clip_files


def write_tokenizer(source: Path, place: Path, kind: str) -> None:
    """Copy a tokenizer, and add what Swift reads.

    Args:
        source: its folder.
        place: the new folder.
        kind: the `type` of the bundle. FLUX.2's is read as one of GPT-2; every other one is CLIP's, where it has its
            form.

    Raises:
        BundleError: it lacks a file.
    """
    shutil.copytree(source, place)
    if kind != "flux2":
        if _is_clip(place):
            write_clip_files(place)
        return
    if not (place / "tokenizer.json").is_file():
        raise BundleError(
            f"{source.name} has no tokenizer.json, which Swift reads; save it with transformers' fast class"
        )
    file = place / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8")) | {"tokenizer_class": "GPT2Tokenizer"}
    for name in (file.name, "config.json"):
        (place / name).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _is_clip(folder: Path) -> bool:
    config = folder / "tokenizer_config.json"
    named = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    return "CLIP" in str(named.get("tokenizer_class", "CLIP"))

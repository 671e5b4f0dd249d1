"""The tokenizers of pipelines in the files that Apple's Swift package reads."""

from __future__ import annotations

import json
from pathlib import Path

from patcomp_models.checkpoints.tokenizers import write_clip_files
from patcomp_models.checkpoints.untrusted import copy_files, object_in
from patcomp_models.errors import BundleError


def write_tokenizer(source: Path, place: Path, *, is_clip: bool, is_gpt2: bool) -> None:
    """Copy a tokenizer, and add what Swift reads.

    Args:
        source: its folder.
        place: the new folder.
        is_clip: whether it is one of CLIP.
        is_gpt2: whether Swift reads it as one of GPT-2, as that of FLUX.2.

    Raises:
        BundleError: it lacks a file, or has a link that leads out of it.
    """
    copy_files(source, place)
    if is_clip:
        write_clip_files(place)
    if is_gpt2:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if not (place / name).is_file():
                raise BundleError(f"{source.name} has no {name}, which Swift reads; save it with transformers")
        config = object_in(place / "tokenizer_config.json")
        written = json.dumps(config | {"tokenizer_class": "GPT2Tokenizer"}, indent=2, ensure_ascii=False) + "\n"
        for name in ("tokenizer_config.json", "config.json"):
            (place / name).write_text(written, encoding="utf-8")

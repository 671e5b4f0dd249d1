"""The folders of models of speech: what their configurations say, and the files that go beside the assets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from patcomp.errors import reason_of
from patcomp_models.checkpoints.tokenizers import check_ids, save, tokenizing
from patcomp_models.checkpoints.untrusted import named_class, object_in
from patcomp_models.errors import BundleError


def content_of(file: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no such file.

    Raises:
        BundleError: it holds something else.
    """
    return object_in(file) if file.is_file() else {}


def class_named(config: Mapping[str, Any]) -> str:
    """The class that a configuration of transformers names; empty if it names none."""
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    return name if name.isidentifier() else ""


def configuration_of(folder: Path) -> Any:
    """The configuration of a checkpoint, as transformers completes it."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def extractor_of(folder: Path) -> Any:
    """The feature extractor of a checkpoint, or of a bundle.

    Raises:
        BundleError: the folder has none, or transformers cannot load it.
    """
    from transformers import AutoFeatureExtractor

    from patcomp_models.checkpoints.own_extractors import own_extractor

    names = ("preprocessor_config.json", "processor_config.json")
    if not any((folder / name).is_file() for name in names):
        raise BundleError(
            f"{str(folder)!r} has no preprocessor_config.json, which says how samples become features; save the "
            "processor of the model into the folder"
        )
    try:
        return own_extractor(folder) or AutoFeatureExtractor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # the files can make transformers raise anything
        raise BundleError(f"transformers cannot load the extractor of {str(folder)!r}: {reason_of(error)}") from error


def unpadded(extractor: Any, samples: Any, multiple: int = 1) -> tuple[str, Any]:
    """What an extractor makes of one recording, without what it marks as padding.

    Args:
        extractor: of transformers.
        samples: (samples,) of float32.
        multiple: the size is a multiple of it; the last ones, if they are fewer, are silence, as transformers makes of
            them.

    Returns:
        Its name, `input_features` or `input_values`, and the numbers, (1, frames, bins) or (1, samples).

    Raises:
        BundleError: the extractor cuts the recording into parts.
    """
    made = extractor(samples, sampling_rate=extractor.sampling_rate, return_tensors="np")
    name = "input_features" if "input_features" in made else "input_values"
    read, mask = made[name], made.get("attention_mask")
    if len(read) != 1:
        raise BundleError(f"the model reads the recording in {len(read)} parts; cut it, and transcribe each part")
    count = read.shape[1] if mask is None else int(mask.sum())
    whole = count // multiple * multiple
    silence = [(0, 0), (0, -(-count // multiple) * multiple - whole), *[(0, 0)] * (read.ndim - 2)]
    return name, np.pad(read[:, :whole], silence)


_VOCABULARIES = ("tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model")
_OF_BYTES = ("ByT5Tokenizer", "DiaTokenizer")
"""Tokenizers without a vocabulary."""


def tokenizer_of(folder: Path, kind: str = "AutoTokenizer") -> Any:
    """The tokenizer of a checkpoint, or of a bundle.

    Args:
        folder: which has it.
        kind: the class of transformers that loads it, where its own class lies in the checkpoint.

    Raises:
        BundleError: the folder has none, or transformers cannot load it.
    """
    from transformers import AutoTokenizer

    loader = AutoTokenizer if kind == "AutoTokenizer" else named_class("transformers", kind, "tokenizer")
    is_of_bytes = content_of(folder / "tokenizer_config.json").get("tokenizer_class") in _OF_BYTES
    if not is_of_bytes and not any((folder / name).is_file() for name in _VOCABULARIES):
        raise BundleError(f"{str(folder)!r} has no tokenizer.json; save the processor of the model into the folder")
    check_ids(folder)
    with tokenizing(f"transformers cannot load the tokenizer of {str(folder)!r}"):
        return loader.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def write_processor(folder: Path, place: Path, *, is_read_by_swift: bool = True) -> None:
    """Write the extractor's configuration and the tokenizer.

    Args:
        folder: of the checkpoint.
        place: a folder of the bundle.
        is_read_by_swift: whether the tokenizer needs a `tokenizer.json`.

    Raises:
        BundleError: the checkpoint lacks one, or the tokenizer has no form that Apple's Swift package reads.
    """
    tokenizer = tokenizer_of(folder)
    for each in (extractor_of(folder), tokenizer):
        save(each, place)
    if is_read_by_swift and not (place / "tokenizer.json").is_file():
        raise BundleError(
            f"{type(tokenizer).__name__} writes no tokenizer.json, which Apple's Swift package needs; save a fast "
            "tokenizer"
        )


def check_processor(folder: Path) -> None:
    """Check before the conversion that a checkpoint has an extractor and a tokenizer.

    Raises:
        BundleError: one is missing.
    """
    extractor_of(folder)
    tokenizer_of(folder)

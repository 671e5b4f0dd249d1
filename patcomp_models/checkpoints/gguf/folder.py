"""A folder as of a checkpoint of transformers, for a GGUF file: its configuration, its tokenizer, and a link to it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from patcomp.errors import ConversionWarning, shortened
from patcomp_models.checkpoints.config_numbers import check_numbers
from patcomp_models.checkpoints.gguf.header import Header, read_header
from patcomp_models.checkpoints.gguf.models import config_of
from patcomp_models.checkpoints.tokenizers import tokenizing
from patcomp_models.errors import BundleError, LanguageModelError

_FILE = "model.gguf"
"""The name of the link to the file."""
_SPECIAL = {
    "bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}  # fmt: skip


def is_gguf(given: object) -> bool:
    """Whether what is given is the path of a GGUF file."""
    return isinstance(given, str | Path) and Path(given).suffix == ".gguf" and Path(given).is_file()


def gguf_folder(file: Path) -> TemporaryDirectory[str]:
    """A folder for a file; it is there until the object is cleaned up or not used any more.

    Raises:
        LanguageModelError: the file is damaged, or its model is not read.
    """
    header = read_header(file)
    config = config_of(header)
    check_numbers(file, config, LanguageModelError)
    made = TemporaryDirectory(prefix="patcomp-gguf-")
    place = Path(made.name)
    (place / _FILE).symlink_to(file.resolve())
    (place / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    if "tokenizer.ggml.tokens" in header.keys:
        kind = shortened(repr(header.keys.get("tokenizer.ggml.model")), 80)
        try:
            with tokenizing(f"the tokenizer of the file ({kind}) cannot be made"):
                _write_tokenizer(place, header)
        except BundleError as error:  # the keys of a file can make transformers raise anything
            warnings.warn(str(error), ConversionWarning, stacklevel=3)
    return made


def _write_tokenizer(place: Path, header: Header) -> None:
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    keys, tokens = header.keys, header.keys["tokenizer.ggml.tokens"]
    ids = {name: keys.get(f"tokenizer.ggml.{key}") for name, key in _SPECIAL.items()}
    special = {name: tokens[each] for name, each in ids.items() if isinstance(each, int) and 0 <= each < len(tokens)}
    backend = _tokenizer(header)
    is_first = keys.get("tokenizer.ggml.add_bos_token", keys.get("tokenizer.ggml.model") == "llama")
    if is_first and "bos_token" in special:
        first = special["bos_token"]
        backend.post_processor = TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A {first} $B",
            special_tokens=[(first, keys["tokenizer.ggml.bos_token_id"])],
        )  # fmt: skip
    made = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    made.chat_template = keys.get("tokenizer.chat_template")
    made.save_pretrained(place)


def _tokenizer(header: Header) -> Any:
    """The tokenizer that transformers makes of the keys of a file."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer

    keys = header.keys
    described = {
        name: keys[f"tokenizer.{key}"] for key, name in GGUF_TOKENIZER_MAPPING["tokenizer"].items()
        if f"tokenizer.{key}" in keys
    }  # fmt: skip
    return convert_gguf_tokenizer(str(keys["general.architecture"]), described)[0]

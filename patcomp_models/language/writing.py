"""The files of a bundle beside the asset: the tokenizer and `metadata.json`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from patcomp.errors import ConversionWarning, reason_of
from patcomp_models.bundle_folders.contract import METADATA_VERSION, compilation
from patcomp_models.checkpoints.tokenizers import check_ids, save, tokenizing
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import LANGUAGE, MAIN, STOPS


def write_description(folder: Path, described: dict[str, Any], tokenizer: Any) -> None:
    """Write all of a bundle but the asset: the tokenizer and `metadata.json`.

    Args:
        folder: of the bundle.
        described: from `description`.
        tokenizer: a tokenizer of transformers, or None.

    Raises:
        LanguageModelError: the tokenizer has no form that the Swift package reads.
    """
    if tokenizer is not None:
        _write_tokenizer(folder, tokenizer)
    described["language"]["embedded_tokenizer"] = tokenizer is not None
    (folder / "metadata.json").write_text(json.dumps(described, indent=2) + "\n")


_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "tokenizer.*.model", "spiece.model", "vocab.*", "*.tiktoken",
                 "tekken.json")  # fmt: skip
"""The files that tokenizers read their vocabulary from."""
_NO_TOKENIZER = (
    "pass tokenizer= with that of the model, or tokenizer=False (--no-tokenizer) for a bundle that takes token ids only"
)


def chosen_tokenizer(tokenizer: Any, source: Path | None, *, trust_remote_code: bool) -> Any:
    """The tokenizer of a bundle, or None.

    Args:
        tokenizer: what the user chose: a tokenizer of transformers, False for none, None for that of the folder.
        source: the checkpoint's folder, if there is one.
        trust_remote_code: whether to run code of the folder.

    Raises:
        LanguageModelError: the folder has none, transformers cannot load it, or it knows no word.
    """
    from transformers import PreTrainedTokenizerBase

    if tokenizer is None and source is not None:
        tokenizer = _tokenizer_of(source, trust_remote_code)
    if tokenizer is None or tokenizer is False:
        return None
    name = type(tokenizer).__name__
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise LanguageModelError(f"tokenizer= takes a tokenizer of transformers, None or False, got {name}")
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise LanguageModelError(f"the tokenizer ({name}) has no vocabulary; {_NO_TOKENIZER}")
    return tokenizer


def _tokenizer_of(source: Path, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    if not any(any(source.glob(pattern)) for pattern in _VOCABULARIES):
        raise LanguageModelError(f"{str(source)!r} has no tokenizer; {_NO_TOKENIZER}")
    said = f"transformers cannot load the tokenizer of {str(source)!r}"
    check_ids(source, LanguageModelError)
    with tokenizing(said, LanguageModelError, _NO_TOKENIZER):
        return AutoTokenizer.from_pretrained(source, local_files_only=True, trust_remote_code=trust_remote_code)


def _write_tokenizer(folder: Path, tokenizer: Any) -> None:
    save(tokenizer, folder / "tokenizer", LanguageModelError)
    if not (folder / "tokenizer" / "tokenizer.json").is_file():
        raise LanguageModelError(
            f"{type(tokenizer).__name__} writes no tokenizer.json, which the Swift package needs; use a fast tokenizer"
        )


def card(source: Path | None) -> dict[str, str]:
    """Author and licence of a checkpoint, from its model card."""
    card = source / "README.md" if source is not None else None
    if card is None or not card.is_file():
        return {}
    from huggingface_hub import ModelCard

    try:
        data = ModelCard.load(card).data.to_dict()
    except Exception as error:  # its text can make the parser raise anything
        warnings.warn(
            f"{str(card)!r} cannot be read, so author and licence are left out: {reason_of(error)}",
            ConversionWarning,
            stacklevel=3,
        )
        return {}
    found = {"author": data.get("author"), "license": data.get("license_name") or data.get("license")}
    return {key: str(value) for key, value in found.items() if value}


def stop_token_ids(model: Any) -> list[int]:
    """The stop tokens of a model, in order, from its generation_config, otherwise from its config.

    A tokenizer has one of them only.
    """
    sources = (getattr(model, "generation_config", None), model.config, model.config.get_text_config())
    found: Any = next((stop for each in sources if (stop := getattr(each, "eos_token_id", None)) is not None), [])
    return [int(token) for token in (found if isinstance(found, list | tuple) else [found])]


_CHOICES: Mapping[str, Any] = {
    "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_new_tokens": 0, "min_length": 0, "guidance_scale": 1.0,
    "bad_words_ids": None, "suppress_tokens": None, "begin_suppress_tokens": None, "sequence_bias": None,
    "forced_bos_token_id": None, "forced_eos_token_id": None, "exponential_decay_length_penalty": None,
}  # fmt: skip
"""What of a generation_config.json changes which token is the most probable one, and with which value it does not."""


def notes_on_choices(model: Any) -> list[str]:
    """What a host must do to the logits before it takes the most probable token, as the model's own settings say."""
    told = getattr(model, "generation_config", None)
    found = {name: getattr(told, name, None) for name in _CHOICES}
    changed = [f"{name}={value!r}" for name, value in found.items() if value not in (None, _CHOICES[name])]
    return [
        f"generation_config.json of the model has {', '.join(changed)}, which a host applies to the logits; "
        "Bundle.generate takes the most probable tokens without it"
    ] if changed else []  # fmt: skip


def description(
    model: Any,
    context: int,
    name: str,
    identifier: str | None,
    notes: Sequence[str] = (),
    functions: Mapping[str, Sequence[str]] = MappingProxyType({MAIN: [MAIN]}),
    compression: str | None = None,
) -> dict[str, Any]:
    """The content of `metadata.json`.

    Args:
        model: the model of transformers.
        context: the most tokens.
        name: of the bundle.
        identifier: of the checkpoint: its path or id; by default the name.
        notes: what a user of the bundle must know: what was left out, why Apple's engines do not take it.
        functions: the names of the functions by role.
        compression: the word for how small the weights are; None for floats.
    """
    identifier = identifier or name
    stops, notes = stop_token_ids(model), [*notes, *notes_on_choices(model)]
    return {
        "metadata_version": METADATA_VERSION,
        "kind": LANGUAGE,
        "name": name,
        "assets": {MAIN: f"{name}.aimodel"},
        "language": {
            "tokenizer": identifier,
            "vocab_size": model.config.get_text_config().vocab_size,
            "max_context_length": context,
            "embedded_tokenizer": False,
            "function_map": {role: [*names] for role, names in functions.items()},
            **({STOPS: stops} if stops else {}),
        },
        "source": {"model_definition": "torch", "hf_model_id": identifier},
        "compression": compression,
        **compilation(),
        **({"notes": notes} if notes else {}),
    }

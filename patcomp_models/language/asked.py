"""What a user asks of a conversion: prompts, texts, and the most tokens."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.tokenizers import tokenizing
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.conventions import first_position
from patcomp_models.language.dynamic_form import TOTAL
from patcomp_models.language.rotary import first_length
from patcomp_models.language.texts import text_at


def prompt_of(check: bool | str | Sequence[int], tokenizer: Any, context: int | None) -> list[int]:
    """The tokens to compare program and model on; none for the built-in ones.

    Raises:
        LanguageModelError: the prompt is empty, longer than the context, or a text without a tokenizer.
    """
    if isinstance(check, bool):
        return []
    if isinstance(check, str) and tokenizer is None:
        raise LanguageModelError("check= is a text, and the bundle has no tokenizer; give token ids")
    prompt = _split(check, "check=", tokenizer) if isinstance(check, str) else [int(token) for token in check]
    if not prompt or (context is not None and len(prompt) > context):
        raise LanguageModelError(f"check= is a prompt of {len(prompt)} tokens; it must be of 1 to {context or 'all'}")
    return prompt


def tokens_of(text: str | Path | Sequence[int], tokenizer: Any) -> list[int]:
    """The token ids of a text file or of a folder of texts, or the given token ids.

    Raises:
        LanguageModelError: there is no such file or folder, or no tokenizer.
    """
    if not isinstance(text, str | Path):
        return [int(token) for token in text]
    if tokenizer is None:
        raise LanguageModelError("calibrate= is a text, and the bundle has no tokenizer; give token ids")
    return _split(text_at(Path(text)), str(text), tokenizer, add_special_tokens=False)


def _split(text: str, called: str, tokenizer: Any, **options: bool) -> list[int]:
    with tokenizing(f"the tokenizer cannot split the text of {called}", LanguageModelError):
        return [int(token) for token in tokenizer(text, **options)["input_ids"]]


_LIMITS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "max_seq_length", "n_ctx",
)  # fmt: skip
"""How configurations call the most tokens of a model."""
_UNLIMITED = 4096
"""The most tokens of a bundle if the model takes any number, and the user does not say it."""


def context_of(model: Any, wanted: int | None) -> int:
    """The most tokens of a bundle; a warning says it where nobody does, and where there could be more.

    Raises:
        LanguageModelError: the model takes fewer, or the number is too small.
    """
    own = own_context(model)
    if wanted is not None and (wanted < TOTAL or (own is not None and wanted > own)):
        raise LanguageModelError(
            f"max_context is {wanted}; the model takes {TOTAL} to {own} tokens" if own else
            f"max_context is {wanted}; it must be at least {TOTAL}"
        )  # fmt: skip
    length = first_length(model)
    if wanted is None and length is not None and (own is None or length < own):
        warnings.warn(
            f"the bundle takes the {length} tokens of the model's first rotary embedding, with which all engines are "
            f"right; max_context={own or _UNLIMITED} (--max-context) takes more, in Bundle.generate only",
            ConversionWarning,
            stacklevel=4,
        )
        return length
    if wanted is None and own is None:
        warnings.warn(
            f"the configuration of {type(model).__name__} does not say how many tokens it takes; the bundle takes "
            f"{_UNLIMITED}, and max_context= (--max-context) another number",
            ConversionWarning,
            stacklevel=4,
        )
    return wanted or own or _UNLIMITED


def own_context(model: Any) -> int | None:
    """The most tokens that a model takes, as far as its configuration says it."""
    config = model.config.get_text_config()
    found = (getattr(config, name, None) for name in _LIMITS)
    own = next((size for size in found if type(size) is int and size > 0), None)
    return None if own is None else own - first_position(model)

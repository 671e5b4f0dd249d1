"""Bundles: an asset, a tokenizer and `metadata.json` in a folder, as Apple's Swift package loads them."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from patcomp.errors import reason_of
from patcomp.language.contract import (
    CAPACITY,
    LANGUAGE,
    LOGITS,
    MAIN,
    POSITIONS,
    TOKENS,
    VERSION,
    VISION,
)
from patcomp.language.errors import LanguageModelError
from patcomp.language.static_contract import CACHES, EXTEND
from patcomp.language.static_run import StaticCall, generate_static, sizes_of
from patcomp.language.vision.generating import expanded, opened
from patcomp.language.vision.images import pixels_of
from patcomp.language.vision.prompts import PLACEHOLDER, placed

if TYPE_CHECKING:
    from patcomp.emit.asset import Asset

Call = Callable[[Mapping[str, Any], dict[str, Any]], Mapping[str, Any]]
"""Runs the function `main` on inputs and states by name; the states are updated in place."""

_TOKENIZER = Path("tokenizer", "tokenizer.json")
_PIECE = 512
"""The most tokens of a prompt in one call."""


@dataclass(frozen=True)
class Bundle:
    """A language model on disk."""

    path: Path
    """The folder."""

    @property
    def metadata(self) -> dict[str, Any]:
        """The content of `metadata.json`."""
        found: dict[str, Any] = json.loads((self.path / "metadata.json").read_text())
        return found

    @property
    def asset(self) -> Path:
        """The `.aimodel` folder."""
        return self.path / str(self.metadata["assets"]["main"])

    def generate(self, prompt: Sequence[int] | str, max_new_tokens: int = 16, image: Any = None) -> list[int]:
        """The most probable next tokens, on the Core AI runtime. It is for checks, not for speed.

        Args:
            prompt: token ids; or a text, which the bundle's tokenizer splits. With an image it has the image token
                once, at the place of the image.
            max_new_tokens: how many tokens to generate.
            image: of a bundle with vision: the path of a file, an image of Pillow, or pixels that are prepared already,
                a NumPy array of the shape (1, 3, size, size).

        Raises:
            LanguageModelError: the prompt is empty or too long, the bundle has no tokenizer for a text, or takes no
                image; the image cannot be read, or the prompt has no place for it.
            MissingToolchainError: coreai-core is not installed.
        """
        from patcomp.emit.asset import load
        from patcomp.emit.unconstrained import unconstrained

        metadata = self.metadata
        limit = int(metadata["language"]["max_context_length"])
        vision = metadata["vision"] if metadata["kind"] == VISION else {}
        if image is not None and not vision:
            raise LanguageModelError(f"the bundle {str(self.path)!r} takes no image; `patcomp convert-vlm` makes one")
        text = placed(prompt, vision) if isinstance(prompt, str) else ""
        tokens = self._tokenizer().encode(text).ids if isinstance(prompt, str) else list(prompt)
        if prompt and not tokens:
            raise LanguageModelError(
                f"the tokenizer of {str(self.path)!r} finds no token in {prompt!r}; give token ids"
            )
        if vision:
            tokens = expanded(tokens, vision, has_image=image is not None, shown=self._image_token(vision))
        if not tokens or len(tokens) + max_new_tokens > limit:
            raise LanguageModelError(
                f"a prompt of {len(tokens)} tokens and {max_new_tokens} new ones; the bundle takes 1 to {limit} in all"
            )
        if vision:
            pixels = None if image is None else pixels_of(image, vision)
            with opened(self.path, metadata, pixels) as (
                call,
                main,
            ):  # the whole prompt is one call, as Apple's engine does
                return greedy(call, tokens, max_new_tokens, _empty_states(main), limit, piece=len(tokens))
        asset = load(self.asset)
        try:
            sizes = sizes_of(asset.function_names)
            if sizes:
                with unconstrained(asset) as runnable:
                    empty = _empty_cache(runnable, sizes)
                    return generate_static(_static_call(runnable), sizes, empty, tokens, max_new_tokens)
            return greedy(asset.run, tokens, max_new_tokens, _empty_states(asset), limit)
        finally:
            asset.close()

    def text(self, prompt: str, max_new_tokens: int = 16, image: Any = None) -> str:
        """The text that continues a prompt.

        Raises: as `generate`.
        """
        return str(self._tokenizer().decode(self.generate(prompt, max_new_tokens, image)))

    def _image_token(self, vision: Mapping[str, Any]) -> str:
        """What stands for the image in a prompt, if it is known."""
        if not (self.path / _TOKENIZER).is_file():
            return ""
        return vision.get(PLACEHOLDER) or self._tokenizer().id_to_token(vision["image_token_id"]) or ""

    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        file = self.path / _TOKENIZER
        if not file.is_file():
            raise LanguageModelError(f"the bundle {str(self.path)!r} has no tokenizer; give token ids")
        return Tokenizer.from_file(str(file))


def greedy(
    call: Call, prompt: Sequence[int], new_tokens: int, empty: Mapping[str, np.ndarray], limit: int, piece: int = _PIECE
) -> list[int]:
    """The most probable next tokens.

    Args:
        call: runs `main`.
        prompt: token ids.
        new_tokens: how many to generate.
        empty: the states by name; those that grow are of capacity 0.
        limit: the largest capacity.
        piece: the most tokens of the prompt in one call.
    """
    capacity = min(CAPACITY, limit)
    growing = [name for name, state in empty.items() if not state.size]
    states: dict[str, Any] = {name: state.copy() for name, state in empty.items()}
    states |= {name: _grown(empty[name], capacity) for name in growing}
    made: list[int] = []
    done, waiting = 0, list(prompt)
    while len(made) < new_tokens:
        given, waiting = waiting[:piece], waiting[piece:]
        done += len(given)
        while capacity < done:
            capacity = min(2 * capacity, limit)
            states |= {name: _grown(states[name], capacity) for name in growing}
        inputs = {TOKENS: np.array([given], np.int32), POSITIONS: np.arange(done, dtype=np.int32)[None]}
        logits = np.asarray(call(inputs, states)[LOGITS], np.float32)
        if not waiting:
            made.append(int(logits[0, -1].argmax()))
            waiting = made[-1:]
    return made


def _empty_states(asset: Asset) -> dict[str, np.ndarray]:
    """The states of `main` before the first call; the open size of those that grow is 0."""
    described = asset.described()
    states = ((name, described.state_descriptor(name)) for name in described.state_names)
    return {
        name: np.zeros([0 if size is None or size < 0 else size for size in state.shape], state.dtype.lower())
        for name, state in states
    }


def _static_call(asset: Asset) -> StaticCall:
    return lambda name, inputs, states: asset.run(inputs, states or None, name)


def _empty_cache(asset: Asset, sizes: Sequence[tuple[int, int]]) -> np.ndarray:
    """A cache of the largest size of `extend`."""
    size, queries = sizes[-1]
    described = asset.described(f"{EXTEND}_{size}_{queries}").state_descriptor(CACHES[0])
    return np.zeros(list(described.shape), described.dtype.lower())


def _grown(cache: Any, capacity: int) -> np.ndarray:
    """A cache of a larger capacity with the same content."""
    held = np.asarray(cache)
    made = np.zeros((*held.shape[:3], capacity, held.shape[4]), held.dtype)
    made[:, :, :, : held.shape[3]] = held
    return made


# ---- writing ----------------------------------------------------------------------------------------


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
    try:
        return AutoTokenizer.from_pretrained(source, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as error:  # its files and its code can make transformers raise anything
        raise LanguageModelError(
            f"transformers cannot load the tokenizer of {str(source)!r}: {reason_of(error)}; {_NO_TOKENIZER}"
        ) from error


def _write_tokenizer(folder: Path, tokenizer: Any) -> None:
    tokenizer.save_pretrained(folder / "tokenizer")
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

    data = ModelCard.load(card).data.to_dict()
    found = {"author": data.get("author"), "license": data.get("license_name") or data.get("license")}
    return {key: str(value) for key, value in found.items() if value}


def description(
    model: Any, context: int, name: str, identifier: str | None, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """The content of `metadata.json`.

    Args:
        model: the model of transformers.
        context: the most tokens.
        name: of the bundle.
        identifier: of the checkpoint: its path or id; by default the name.
        notes: what a user of the bundle must know: what was left out, why Apple's engines do not take it.
    """
    identifier = identifier or name
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    utc = datetime.UTC
    now = datetime.datetime.fromtimestamp(int(seconds), utc) if seconds else datetime.datetime.now(utc)
    return {
        "metadata_version": VERSION,
        "kind": LANGUAGE,
        "name": name,
        "assets": {MAIN: f"{name}.aimodel"},
        "language": {
            "tokenizer": identifier,
            "vocab_size": model.config.get_text_config().vocab_size,
            "max_context_length": context,
            "embedded_tokenizer": False,
            "function_map": {"main": ["main"]},
        },
        "source": {"model_definition": "torch", "hf_model_id": identifier},
        "compression": None,
        "compilation": {"date": now.isoformat(), "targets": []},
        **({"notes": [*notes]} if notes else {}),
    }

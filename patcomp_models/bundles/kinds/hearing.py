"""Language models that hear: one asset with the functions `audio`, `embed` and `main`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import (
    FLOATS,
    PROCESSOR,
    Interface,
    function_of,
    problem,
)
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.hearing.rows import HEARING_MODELS
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import class_named, configuration_of, content_of, extractor_of, tokenizer_of
from patcomp_models.bundles.speech.whisper import GENERATION
from patcomp_models.bundles.synthesis.form import part_problems
from patcomp_models.checkpoints.contents import ADAPTER
from patcomp_models.checkpoints.tokenizers import save
from patcomp_models.errors import BundleError
from patcomp_models.language.contract import EMBEDDED, EMBEDDINGS, LOGITS, MAIN, POSITIONS, STOPS, TOKENS
from patcomp_models.language.hearing import EMBED, SOUND, rate_of
from patcomp_models.language.sound_contract import SOUND_NUMBERS, sound_interface, sound_key_problems
from patcomp_models.language.sound_encoders import HearingRow
from patcomp_models.language.vision.pictures import loaded_processor

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_MOST = 4096
"""The most tokens of a bundle, if the user does not say."""
_MOST_HEARD = 2**17
"""The most tokens of a model that hears beside each token."""


@dataclass(frozen=True)
class Hearing(KindOfComponents):
    """Language models with an encoder of sound.

    Attributes:
        max_context: the most tokens, those of the recording too.
    """

    max_context: int = _MOST

    name: ClassVar[str] = "hearing"
    holds: ClassVar[str] = f"a language model that hears: {', '.join(HEARING_MODELS)} of transformers"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) in HEARING_MODELS

    def components(self) -> Sequence[Component]:
        if self._class not in HEARING_MODELS:
            raise BundleError(f"{str(self.folder)!r} holds {self._class or 'no class'}, and not {self.holds}")
        self._processor()
        if getattr(self._config, "has_lora_adapter", False) and not (self.folder / ADAPTER).is_file():
            raise BundleError(
                f"config.json of {str(self.folder)!r} says has_lora_adapter, and there is no {ADAPTER}; copy the two "
                'files of the adapter into the folder, or write "has_lora_adapter": false if it is merged'
            )
        if not 1 <= self.max_context <= self._own_context:
            raise BundleError(f"max_context is {self.max_context}; the model takes 1 to {self._own_context} tokens")
        return [Component(MAIN, "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        config = self._config
        text, generation = config.get_text_config(), content_of(self.folder / GENERATION)
        ends: Any = next((found for each in (generation, config.to_dict(), text.to_dict())
                     if (found := each.get("eos_token_id")) is not None), [])  # fmt: skip
        return {
            "language": {
                "vocab_size": text.vocab_size, "max_context_length": self.max_context,
                STOPS: [*ends] if isinstance(ends, list | tuple) else [ends],
            },
            SOUND: self._row.keys(config, rate_of(self._processor())),
        }  # fmt: skip

    def write_files(self, bundle: Path) -> None:
        self._processor().save_pretrained(bundle / PROCESSOR)
        if self._row.is_added and (self.folder / "tokenizer.json").is_file():
            save(tokenizer_of(self.folder), bundle / PROCESSOR)
        if generation := content_of(self.folder / GENERATION):
            (bundle / GENERATION).write_text(json.dumps(generation, indent=2) + "\n")

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        found = _missing(bundle, metadata)
        if found:
            return found
        asset, audio = bundle / metadata["assets"][MAIN], metadata["audio"]
        functions: dict[str, Any] = {}
        for name in (SOUND, EMBED, MAIN):
            functions[name], wrong = function_of(asset, name)
            found += wrong
        if found:
            return found
        width = functions[EMBED].outputs[EMBEDDINGS].shape[-1] if EMBEDDINGS in functions[EMBED].outputs else "*"
        vocabulary = metadata["language"]["vocab_size"]
        for name, interface in (
            (SOUND, sound_interface(audio, width)),
            (EMBED, Interface({TOKENS: ((1, None), ("int32",))}, {EMBEDDINGS: ((1, None, width), FLOATS)})),
            (MAIN, Interface({EMBEDDED: ((1, None, width), FLOATS), POSITIONS: ((1, None), ("int32",))},
                             {LOGITS: ((1, None, vocabulary), FLOATS)})),
        ):  # fmt: skip
            found += interface.problems(name, functions[name])
        return found

    def _processor(self) -> Any:
        """The processor; of a model that hears beside each token the extractor alone, because its prompt is no text."""
        return extractor_of(self.folder) if self._row.is_added else loaded_processor(self.folder)

    @property
    def _row(self) -> HearingRow:
        return HEARING_MODELS[self._class]

    @property
    def _class(self) -> str:
        return class_named(content_of(self.folder / "config.json"))

    @property
    def _config(self) -> Any:
        """The configuration, as transformers completes it."""
        return configuration_of(self.folder)

    @property
    def _own_context(self) -> int:
        own = int(self._config.get_text_config().max_position_embeddings)
        return max(own, _MOST_HEARD) if self._row.is_added else own  # layers that see a window go on

    def _entries(self) -> list[Entry]:
        from patcomp_models.bundles.hearing.functions import hearing_functions
        from patcomp_models.bundles.loading import merged_model, model_of
        from patcomp_models.checkpoints.loading import attention_of

        takes_adapter = hasattr(self._config, "has_lora_adapter")
        model = (
            merged_model(self.folder, self._class, self.dtype) if takes_adapter
            else model_of(self.folder, "transformers", self._class, self.dtype)
        )  # fmt: skip
        model.set_attn_implementation(attention_of(model))
        return hearing_functions(model, self._row, self.max_context)


def _missing(bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
    """What `metadata.json` and the folder lack."""
    language, audio = metadata.get("language"), metadata.get("audio")
    if not isinstance(language, Mapping) or not isinstance(audio, Mapping):
        return [problem("language or audio is missing")]
    found = [
        problem(f"language.{name} is {language.get(name)!r}, and must be a positive integer")
        for name in ("vocab_size", "max_context_length")
        if type(language.get(name)) is not int or language[name] < 1
    ]
    if audio.get("is_added"):
        return found + sound_key_problems(audio, ("axis", "sample_rate"))
    return found + sound_key_problems(audio, (*SOUND_NUMBERS, "sample_rate")) + part_problems(bundle, metadata, (MAIN,))

"""Models of speech with an encoder and a decoder of text, all but Whisper: one asset with the functions `encode` and
`decode`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import (
    check_processor,
    class_named,
    configuration_of,
    content_of,
    extractor_of,
    tokenizer_of,
    unpadded,
    write_processor,
)
from patcomp_models.bundles.speech.host_checks import seq2seq_problems
from patcomp_models.bundles.speech.refused import RECOGNISERS, not_a_bundle
from patcomp_models.bundles.speech.whisper import FORCED, GENERATION
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry


@dataclass(frozen=True)
class SpeechRow:
    """What is particular to a class.

    Attributes:
        longest: the number of the decoder's configuration that says how many tokens it writes.
        most_texts: how many texts a call of `decode` continues, such as beams.
        is_masked: whether the encoder has its windows only with a mask.
        samples_of_frame: the number of samples is a multiple of it.
    """

    longest: str = "max_position_embeddings"
    most_texts: int = 64
    is_masked: bool = False
    samples_of_frame: int = 1


RECOGNISED: Mapping[str, SpeechRow] = {
    "CanaryForConditionalGeneration": SpeechRow(),
    "CohereAsrForConditionalGeneration": SpeechRow(),
    "MoonshineForConditionalGeneration": SpeechRow(),
    "MoonshineStreamingForConditionalGeneration": SpeechRow(is_masked=True, samples_of_frame=80),
    "SeamlessM4TForSpeechToText": SpeechRow(most_texts=1),
    "SeamlessM4Tv2ForSpeechToText": SpeechRow(most_texts=1),
    "Speech2TextForConditionalGeneration": SpeechRow("max_target_positions", most_texts=1),
    "SpeechEncoderDecoderModel": SpeechRow(),
    "SpeechT5ForSpeechToText": SpeechRow("max_text_positions"),
}
"""By the class of transformers."""
_EXAMPLE_SAMPLES = 24000


@dataclass(frozen=True)
class SpeechSeq2Seq(KindOfComponents):
    """Models that read a recording once and write its text token by token, with two caches.

    Attributes:
        prompt: a text of special tokens in front of the written text, such as `"__deu__"` of SeamlessM4T.
    """

    prompt: str | None = None

    name: ClassVar[str] = "speech_seq2seq"
    holds: ClassVar[str] = f"{', '.join(RECOGNISED)} of transformers"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) in (*RECOGNISED, *RECOGNISERS)

    def components(self) -> Sequence[Component]:
        if reason := RECOGNISERS.get(self._class):
            raise not_a_bundle(self.folder, self._class, reason)
        check_processor(self.folder)
        self._prefix()
        return [Component("main", "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        config = content_of(self.folder / "config.json")
        told = {"architecture": config["model_type"], "sample_rate": extractor_of(self.folder).sampling_rate,
                "samples_of_frame": self._row.samples_of_frame}  # fmt: skip
        return {"config": told}

    def write_files(self, bundle: Path) -> None:
        write_processor(self.folder, bundle / PROCESSOR, is_read_by_swift=False)
        prefix, generation = self._prefix(), content_of(self.folder / GENERATION)
        longest = int(self._of_decoder(self._row.longest))
        most = int(generation.get("max_new_tokens") or (generation.get("max_length") or longest) - len(prefix))
        told = {
            **generation,
            FORCED: [[place, token] for place, token in enumerate(prefix)],
            "decoder_start_token_id": prefix[0],
            "eos_token_id": self._setting("eos_token_id"),
            "max_new_tokens": min(most, longest - len(prefix)),
        }
        (bundle / GENERATION).write_text(json.dumps(told, indent=2) + "\n")

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        return seq2seq_problems(bundle, metadata)

    @property
    def _class(self) -> str:
        return class_named(content_of(self.folder / "config.json"))

    @property
    def _row(self) -> SpeechRow:
        if self._class not in RECOGNISED:
            held = self._class or "no class that it names"
            raise BundleError(f"{str(self.folder)!r} holds {held}, and not {self.holds}")
        return RECOGNISED[self._class]

    def _of_decoder(self, name: str) -> Any:
        """A number of the configuration of the decoder, as transformers completes it."""
        return getattr(configuration_of(self.folder).get_text_config(decoder=True), name, None)

    def _setting(self, name: str) -> Any:
        """What the generation of the model takes as `name`."""
        found = content_of(self.folder / GENERATION).get(name)
        return self._of_decoder(name) if found is None else found

    def _prefix(self) -> list[int]:
        """The tokens before the text, as `generate` of transformers starts with them.

        Raises:
            BundleError: the folder says no first token, or the prompt has a word that is no token.
        """
        start = self._setting("decoder_start_token_id")
        start = self._setting("bos_token_id") if start is None else start
        tokenizer = tokenizer_of(self.folder)
        given = [] if self.prompt is None else tokenizer.encode(self.prompt, add_special_tokens=False)
        if self.prompt is not None and (not given or tokenizer.unk_token_id in given):
            raise BundleError(
                f"prompt is {self.prompt!r}, and the tokenizer of {str(self.folder)!r} has no such tokens"
            )
        if type(start) is not int:
            raise BundleError(f"{str(self.folder)!r} does not say decoder_start_token_id; save its {GENERATION}")
        return given if given[:1] == [start] else [start, *given]

    def _entries(self) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.speech.examples import samples
        from patcomp_models.tasks.sequences import EncodeInput, reading_and_writing

        model, extractor = model_of(self.folder, "transformers", self._class, self.dtype), extractor_of(self.folder)
        row = self._row
        name, read = unpadded(extractor, samples(_EXAMPLE_SAMPLES)[0].numpy(), row.samples_of_frame)
        values = torch.from_numpy(read).to(model.dtype)
        open_size: Any = Dim.DYNAMIC(min=16, max=2**26)
        if row.samples_of_frame > 1:
            open_size = row.samples_of_frame * Dim("frames_of_samples", min=16, max=2**20)
        return reading_and_writing(
            model, EncodeInput(model, row.is_masked), {name: values}, {name: {1: open_size}},
            int(self._of_decoder(row.longest)), most_texts=row.most_texts,
        )  # fmt: skip

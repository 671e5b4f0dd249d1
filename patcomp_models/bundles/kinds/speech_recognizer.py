"""Models that recognise speech, in the two forms that Apple's Swift package loads: Whisper, and Parakeet TDT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import problem
from patcomp_models.bundles.speech import transducer, whisper
from patcomp_models.bundles.speech.folders import class_named, content_of
from patcomp_models.bundles.speech.form import OfForm
from patcomp_models.errors import BundleError


@dataclass(frozen=True)
class SpeechRecognizer(OfForm):
    """Whisper and Parakeet TDT.

    Attributes:
        audio: whether the encoder also has the function `audio`, which takes samples instead of their spectrum.
        language: of Whisper's text, a code such as `"en"`, if the model knows several.
        task: of Whisper, `"transcribe"` or `"translate"`.
        frames: of Parakeet's spectrum, if the encoder is to take one length only.
        streaming: for Parakeet on windows of a recording: the encoder's frames `[left, chunk, right]`.
    """

    audio: bool = False
    language: str | None = None
    task: str | None = None
    frames: int | None = None
    streaming: Sequence[int] | None = None

    name: ClassVar[str] = "speech_recognizer"
    holds: ClassVar[str] = f"{whisper.WHISPER} or {transducer.TDT} of transformers"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) in (whisper.WHISPER, transducer.TDT)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        config = metadata.get("config")
        if not isinstance(config, Mapping):
            return [problem("config is missing, and its architecture says whether this is Whisper or Parakeet")]
        if config.get("architecture") == transducer.TRANSDUCERS[transducer.TDT]:
            return transducer.swift_transducer_problems(bundle, metadata)
        return whisper.whisper_problems(bundle, metadata)

    @property
    def form(self) -> whisper.Whisper | transducer.Transducer:
        """The form of the model of the folder.

        Raises:
            BundleError: an option is for the other model.
        """
        name = class_named(content_of(self.folder / "config.json"))
        options = {each: getattr(self, each) for each in ("language", "task", "frames", "streaming")}
        own, other = ("language", "task"), ("frames", "streaming")
        if name == transducer.TDT:
            own, other = other, own
        elif name != whisper.WHISPER:
            raise BundleError(f"{str(self.folder)!r} holds {name or 'no class that it names'}, and not {self.holds}")
        if given := [each for each in other if options[each] is not None]:
            raise BundleError(f"{name} has no option {given[0]!r}; it has audio, {', '.join(own)}")
        if name == transducer.TDT:
            return transducer.Transducer(self.folder, self.dtype, name, self.audio, self.frames, self.streaming)
        return whisper.Whisper(self.folder, self.dtype, self.audio, self.language, self.task or "transcribe")

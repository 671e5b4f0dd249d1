"""Models that speak, for hosts of your own: Apple's Swift package has no such kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import class_named, content_of
from patcomp_models.bundles.speech.refused import SPEAKERS, not_a_bundle
from patcomp_models.bundles.synthesis import bark, csm, delayed, fast_speech, kokoro, latents, seamless, speech_t5, vits
from patcomp_models.bundles.synthesis.form import FormOfFunctions, SynthesisForm, form_of_config
from patcomp_models.errors import BundleError

_OF_FUNCTIONS: tuple[type[FormOfFunctions], ...] = (
    csm.Csm, delayed.Dia, delayed.Musicgen, delayed.MusicgenMelody, delayed.Higgs, latents.PocketTts,
    latents.Phonon, latents.VibeVoice, fast_speech.FastSpeech2, fast_speech.FastSpeech2WithVocoder,
    seamless.Seamless,
)  # fmt: skip
_FORMS: Mapping[str, type[SynthesisForm]] = {
    vits.VITS: vits.Vits, speech_t5.SPEECH_T5: speech_t5.SpeechT5, bark.BARK: bark.Bark, kokoro.KOKORO: kokoro.Kokoro,
    **{form.holds: form for form in _OF_FUNCTIONS},
}  # fmt: skip
_ARCHITECTURES: Mapping[str, type[SynthesisForm]] = {
    "vits": vits.Vits, "speecht5": speech_t5.SpeechT5, "bark": bark.Bark, "kokoro": kokoro.Kokoro,
    **{form.architecture: form for form in _OF_FUNCTIONS},
}  # fmt: skip


@dataclass(frozen=True)
class TextToSpeech(KindOfComponents):
    """Models that speak, or make music.

    Attributes:
        vocoder: of SpeechT5, the folder of its vocoder.
    """

    vocoder: str | None = None

    name: ClassVar[str] = "text_to_speech"
    holds: ClassVar[str] = f"{', '.join(_FORMS)}"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) in (*_FORMS, *SPEAKERS) or kokoro.BLOCK in config

    def components(self) -> Sequence[Component]:
        return self._form.components()

    def metadata(self) -> Mapping[str, Any]:
        return {"config": self._form.metadata()}

    def write_files(self, bundle: Path) -> None:
        self._form.write_files(bundle)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        form, found = form_of_config(metadata, _ARCHITECTURES)
        return found if form is None else form.problems(bundle, metadata)

    @property
    def _form(self) -> SynthesisForm:
        """The form of the model of the folder.

        Raises:
            BundleError: the folder holds another model, or an option is for another one.
        """
        config = content_of(self.folder / "config.json")
        name = kokoro.KOKORO if kokoro.BLOCK in config else class_named(config)
        if reason := SPEAKERS.get(name):
            raise not_a_bundle(self.folder, name, reason)
        if name not in _FORMS:
            raise BundleError(f"{str(self.folder)!r} holds {name or 'no class that it names'}, and not {self.holds}")
        if name == speech_t5.SPEECH_T5:
            return speech_t5.SpeechT5(self.folder, self.dtype, self.vocoder)
        if self.vocoder is not None:
            raise BundleError(f"{name} has no option 'vocoder'; it is for {speech_t5.SPEECH_T5}")
        return _FORMS[name](self.folder, self.dtype)

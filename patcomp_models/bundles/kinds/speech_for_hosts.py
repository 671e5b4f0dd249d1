"""Models that recognise speech, for which Apple's Swift package has no loop: their assets are for other hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech import transducer
from patcomp_models.bundles.speech.folders import (
    check_processor,
    class_named,
    content_of,
    extractor_of,
    write_processor,
)
from patcomp_models.bundles.speech.form import OfForm
from patcomp_models.bundles.speech.host_checks import ctc_problems, transducer_problems
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry


@dataclass(frozen=True)
class SpeechCtc(KindOfComponents):
    """Models with a head for CTC: wav2vec2, HuBERT, WavLM, Parakeet CTC and others of transformers.

    Attributes:
        audio: whether the asset also has the function `audio`, which takes samples instead of what the extractor makes.
        frames: of Parakeet's spectrum, if the model is to take one length only.
    """

    audio: bool = False
    frames: int | None = None

    name: ClassVar[str] = "speech_ctc"
    holds: ClassVar[str] = "...ForCTC of transformers"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config).endswith("ForCTC")

    def components(self) -> Sequence[Component]:
        check_processor(self.folder)
        if self.frames is not None and not self._reads_parakeet_spectrum:
            raise BundleError(f"{self._class} has no option 'frames'; it is for Parakeet's spectrum")
        if self.audio and not self._reads_parakeet_spectrum and not self._reads_samples:
            raise BundleError(
                f"{self._class} reads the features of {type(extractor_of(self.folder)).__name__}, which patcomp does "
                "not compute in the graph; leave audio out"
            )
        return [Component("main", "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        config = content_of(self.folder / "config.json")
        told = {
            "architecture": config["model_type"], "vocab_size": config["vocab_size"],
            "blank_token_id": config["pad_token_id"], "sample_rate": extractor_of(self.folder).sampling_rate,
        }  # fmt: skip
        if self._reads_parakeet_spectrum:
            told["encoder"] = {name: config["encoder_config"][name] for name in ("num_mel_bins", "subsampling_factor")}
        return {"config": told}

    def write_files(self, bundle: Path) -> None:
        write_processor(self.folder, bundle / PROCESSOR, is_read_by_swift=False)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        return ctc_problems(bundle, metadata)

    @property
    def _class(self) -> str:
        return class_named(content_of(self.folder / "config.json"))

    @property
    def _reads_parakeet_spectrum(self) -> bool:
        return self._class == "ParakeetForCTC"

    @property
    def _reads_samples(self) -> bool:
        return type(extractor_of(self.folder)).__name__ == "Wav2Vec2FeatureExtractor"

    def _entries(self) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.speech.examples import samples
        from patcomp_models.bundles.speech.mel import FromSamples, Normalised
        from patcomp_models.bundles.speech.modules import FrameLogits
        from patcomp_models.tasks.entries import Entry

        model = model_of(self.folder, "transformers", self._class, self.dtype)
        module, extractor = FrameLogits(model), extractor_of(self.folder)
        if self._reads_parakeet_spectrum:
            return transducer.spectrum_entries(
                module, model.dtype, extractor, self.frames, "logits", with_audio=self.audio
            )
        audio = samples(_EXAMPLE_SAMPLES)
        if not self._reads_samples:
            made = extractor(audio[0].numpy(), sampling_rate=extractor.sampling_rate, return_tensors="pt")
            frames = Dim.DYNAMIC(min=16, max=2**20)
            inputs = {"input_features": made["input_features"].to(model.dtype)}
            if "attention_mask" in made:
                inputs["attention_mask"] = made["attention_mask"].bool()
            return [Entry("main", module, inputs, ("logits",), {name: {1: frames} for name in inputs})]
        open_length, features = {1: Dim.DYNAMIC(min=_FEWEST_SAMPLES, max=2**26)}, Normalised(extractor)
        with torch.no_grad():
            read = features(audio).to(model.dtype)
        entries = [Entry("main", module, {"input_values": read}, ("logits",), {"input_values": open_length})]
        if self.audio:
            behind = FromSamples(features, module, model.dtype)
            entries.append(Entry("audio", behind, {"audio": audio}, ("logits",), {"audio": open_length}))
        return entries


_FEWEST_SAMPLES, _EXAMPLE_SAMPLES = 2000, 12000


@dataclass(frozen=True)
class SpeechTransducer(OfForm):
    """Parakeet RNN-T: the parts of Parakeet TDT, without durations.

    Attributes:
        audio: whether the encoder also has the function `audio`, which takes samples instead of their spectrum.
        frames: of the spectrum, if the encoder is to take one length only.
    """

    audio: bool = False
    frames: int | None = None

    name: ClassVar[str] = "speech_transducer"
    holds: ClassVar[str] = f"{transducer.RNNT} of transformers"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) == transducer.RNNT

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        return transducer_problems(bundle, metadata)

    @property
    def form(self) -> transducer.Transducer:
        return transducer.Transducer(self.folder, self.dtype, transducer.RNNT, self.audio, self.frames, None)

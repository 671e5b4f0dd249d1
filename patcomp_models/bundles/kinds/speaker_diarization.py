"""Models that hear who speaks, while it is spoken, for hosts of your own: Apple's Swift package has no such kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, PROCESSOR, Interface, function_of, problem, shown_tensor
from patcomp_models.bundle_folders.interfaces import Function
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import class_named, content_of, extractor_of
from patcomp_models.checkpoints.tokenizers import save
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_CLASS = "Nemotron3DiarizationForAudioFrameClassification"
_NUMBERS = ("sample_rate", "num_mel_bins", "num_speakers", "subsampling_factor", "chunk", "lookahead", "kept_frames",
            "queue_frames", "hidden_size")  # fmt: skip


@dataclass(frozen=True)
class SpeakerDiarization(KindOfComponents):
    """Nemotron's streaming Sortformer.

    Attributes:
        chunk: how many frames of the encoder a chunk has.
        lookahead: how many later frames it also sees. The defaults are transformers' mode `low_latency`.
    """

    chunk: int = 9
    lookahead: int = 4

    name: ClassVar[str] = "speaker_diarization"
    holds: ClassVar[str] = f"{_CLASS} of transformers"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) == _CLASS

    def components(self) -> Sequence[Component]:
        config = content_of(self.folder / "config.json")
        if class_named(config) != _CLASS:
            raise BundleError(
                f"{str(self.folder)!r} holds {class_named(config) or 'no class that it names'}, and not {_CLASS}"
            )
        extractor_of(self.folder)
        for name, value, least in (("chunk", self.chunk, 1), ("lookahead", self.lookahead, 0)):
            if value < least:
                raise BundleError(f"{name} is {value!r}, and must be a number of frames of at least {least}")
        return [Component("main", "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        config = self._config
        policy = config.streaming_config
        return {
            "config": {
                "architecture": "nemotron3_diarization", "sample_rate": extractor_of(self.folder).sampling_rate,
                "num_mel_bins": config.audio_config.num_mel_bins, "num_speakers": policy.num_speakers,
                "subsampling_factor": policy.subsampling_factor, "chunk": self.chunk, "lookahead": self.lookahead,
                "kept_frames": policy.speaker_cache_length, "queue_frames": policy.fifo_length,
                "hidden_size": config.audio_config.hidden_size,
            }
        }  # fmt: skip

    def write_files(self, bundle: Path) -> None:
        save(extractor_of(self.folder), bundle / PROCESSOR)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        config = metadata.get("config")
        if not isinstance(config, Mapping):
            return [problem("config is missing")]
        found = [problem(f"config.{name} is {config.get(name)!r}, and must be an integer") for name in _NUMBERS
                 if type(config.get(name)) is not int]  # fmt: skip
        if "main" not in metadata["assets"]:
            found.append(problem("assets.main is missing"))
        if not (bundle / PROCESSOR / "preprocessor_config.json").is_file():
            found.append(problem(f"there is no {PROCESSOR}/preprocessor_config.json"))
        if found:
            return found
        factor, chunk = config["subsampling_factor"], config["chunk"]
        for name, frames in (("main", chunk + config["lookahead"]), ("last", chunk)):
            function, wrong = function_of(bundle / metadata["assets"]["main"], name)
            found += wrong
            if function is None:
                continue
            taken = {"input_features": ((1, frames * factor, config["num_mel_bins"]), FLOATS)}
            made = {"logits": ((1, chunk * factor, config["num_speakers"]), FLOATS)}
            found += Interface(taken, made).problems(name, function) + _state_problems(name, config, function)
        return found

    @property
    def _config(self) -> Any:
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(self.folder, local_files_only=True, trust_remote_code=False)

    def _entries(self) -> list[Entry]:
        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.streaming.diarization import Diarize

        model = model_of(self.folder, "transformers", _CLASS, self.dtype)
        return [Diarize(model, self.chunk, self.lookahead).entry("main"), Diarize(model, self.chunk, 0).entry("last")]


def _state_problems(where: str, config: Mapping[str, Any], found: Function) -> list[Problem]:
    """What is wrong with the states of a function."""
    kept, width = config["kept_frames"], config["hidden_size"]
    wanted: dict[str, tuple[tuple[int, ...], Sequence[str]]] = {
        "speakerFrames": ((1, kept, width), FLOATS),
        "speakerProbabilities": ((1, kept, config["num_speakers"]), FLOATS),
        "queue": ((1, config["queue_frames"], width), FLOATS), "counts": ((3,), ("int32",)),
    }  # fmt: skip
    if set(found.states) != set(wanted):
        listed = ", ".join(found.states) or "none"
        return [problem(f"the states of {where} are {listed}; they must be {', '.join(wanted)}")]
    return [
        problem(f"the state {name} of {where} is {shown_tensor(found.states[name])}, and must be "
                f"{' x '.join(map(str, shape))} of {' or '.join(types)}")
        for name, (shape, types) in wanted.items()
        if found.states[name].shape != shape or found.states[name].dtype not in types
    ]  # fmt: skip

"""Models that speak, for hosts of your own: Apple's Swift package has no such kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.bundle_folders.contract import problem
from patcomp.bundle_folders.errors import BundleError
from patcomp.bundles.kind import Component, Kind
from patcomp.bundles.speech.folders import class_of, content_of, tokenizer_of
from patcomp.errors import Problem

if TYPE_CHECKING:
    from patcomp.tasks.entries import Entry

_VITS = "VitsModel"
_OTHERS = {
    "SpeechT5ForTextToSpeech": "its loop draws dropout in each step and stops by a threshold",
    "BarkModel": "it is four models, whose tokens are drawn from one another",
    "FastSpeech2ConformerModel": "its length regulator makes sizes that depend on durations",
    "FastSpeech2ConformerWithHifiGan": "its length regulator makes sizes that depend on durations",
    "CsmForConditionalGeneration": "its decoder runs inside of each step",
    "DiaForConditionalGeneration": "its tokens of several codebooks are delayed against each other",
}
_TOKENS, _FEWEST_TOKENS, _MOST_TOKENS = 24, 8, 4096
_FEWEST_FRAMES, _MOST_FRAMES = 8, 2**20


@dataclass(frozen=True)
class TextToSpeech(Kind):
    """VITS, also MMS: durations from a text, then samples from a text, durations and noise."""

    name: ClassVar[str] = "text_to_speech"
    holds: ClassVar[str] = f"{_VITS} of transformers"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_of(config) in (_VITS, *_OTHERS)

    def components(self) -> Sequence[Component]:
        name = class_of(self._config)
        if reason := _OTHERS.get(name):
            raise BundleError(
                f"{str(self.folder)!r} holds {name}, which becomes no bundle, because {reason}; export its parts by "
                "FILE.py:FUNCTION, a function that returns a module and its inputs"
            )
        if name != _VITS:
            raise BundleError(f"{str(self.folder)!r} holds {name or 'no class that it names'}, and not {self.holds}")
        tokenizer_of(self.folder)
        return [Component("main", "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        config, samples = self._config, 1
        for rate in config["upsample_rates"]:
            samples *= rate
        return {
            "config": {
                "architecture": "vits", "sample_rate": config["sampling_rate"], "samples_per_frame": samples,
                "noise_channels": config["flow_size"], "number_of_speakers": config["num_speakers"],
            }
        }  # fmt: skip

    def write_files(self, bundle: Path) -> None:
        tokenizer_of(self.folder).save_pretrained(bundle / "processor")

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        config = metadata.get("config")
        if not isinstance(config, Mapping):
            return [problem("config is missing")]
        names = ("sample_rate", "samples_per_frame", "noise_channels", "number_of_speakers")
        found = [problem(f"config.{name} is {config.get(name)!r}, and must be an integer") for name in names
                 if type(config.get(name)) is not int]  # fmt: skip
        if "main" not in metadata["assets"]:
            found.append(problem("assets.main is missing"))
        if not (bundle / "processor" / "tokenizer_config.json").is_file():
            found.append(problem("there is no processor/tokenizer_config.json"))
        return found

    @property
    def _config(self) -> dict[str, Any]:
        """What the folder says, with what transformers says where the folder is silent."""
        from transformers import VitsConfig

        told = content_of(self.folder / "config.json")
        return {**VitsConfig().to_dict(), **told} if class_of(told) == _VITS else told

    def _entries(self) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp.bundles.loading import model_of
        from patcomp.bundles.synthesis.vits import DrawnDurations, Durations, Speech
        from patcomp.tasks.entries import Entry

        model, draw = model_of(self.folder, "transformers", _VITS, self.dtype), torch.Generator().manual_seed(0)
        config, tokens = model.config, Dim.DYNAMIC(min=_FEWEST_TOKENS, max=_MOST_TOKENS)
        ids = torch.arange(_TOKENS, dtype=torch.int32)[None] % config.vocab_size
        noise = {"duration_noise": torch.randn(1, 2, _TOKENS, generator=draw).to(model.dtype)}
        noise = noise if config.use_stochastic_duration_prediction else {}
        speaker = {"speaker_id": torch.zeros(1, dtype=torch.int32)} if config.num_speakers > 1 else {}
        durations = (DrawnDurations if noise else Durations)(model)
        inputs = {"input_ids": ids, **noise, **speaker}
        with torch.no_grad():
            found = durations(*inputs.values())
        frames = Dim.DYNAMIC(min=_FEWEST_FRAMES, max=_MOST_FRAMES)
        drawn = torch.randn(1, config.flow_size, int(found.sum()), generator=draw).to(model.dtype)
        spoken = {"input_ids": ids, "durations": found, "noise": drawn, **speaker}
        open_sizes = {"input_ids": {1: tokens}, "durations": {1: tokens}, "duration_noise": {2: tokens},
                      "noise": {2: frames}}  # fmt: skip
        return [
            Entry("durations", durations, inputs, ("durations",), _of(inputs, open_sizes)),
            Entry("main", Speech(model), spoken, ("waveform",), _of(spoken, open_sizes)),
        ]


def _of(inputs: Mapping[str, Any], sizes: Mapping[str, dict[int, Any]]) -> dict[str, dict[int, Any]]:
    return {name: each for name, each in sizes.items() if name in inputs}

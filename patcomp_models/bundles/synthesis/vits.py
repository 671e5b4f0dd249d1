"""VITS, also MMS: durations from a text, then samples from a text, durations and noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, PROCESSOR, Interface, problem
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import tokenizer_of
from patcomp_models.bundles.synthesis.form import (
    SynthesisForm,
    functions_of,
    mismatches,
    number_problems,
    part_problems,
)
from patcomp_models.checkpoints.tokenizers import save

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

VITS = "VitsModel"
_TOKENS, _FEWEST_TOKENS, _MOST_TOKENS = 24, 8, 4096
_FEWEST_FRAMES, _MOST_FRAMES = 8, 2**20
_NUMBERS = ("sample_rate", "samples_per_frame", "noise_channels", "number_of_speakers")


@dataclass(frozen=True)
class Vits(SynthesisForm):
    """A checkpoint of VITS."""

    def components(self) -> Sequence[Component]:
        tokenizer_of(self.folder)
        return [Component("main", "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        config = self.config
        return {
            "architecture": "vits", "sample_rate": config["sampling_rate"],
            "samples_per_frame": prod(config["upsample_rates"]), "noise_channels": config["flow_size"],
            "number_of_speakers": config["num_speakers"],
        }  # fmt: skip

    def write_files(self, bundle: Path) -> None:
        save(tokenizer_of(self.folder), bundle / PROCESSOR)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        config = metadata["config"]
        found = number_problems(config, _NUMBERS) + part_problems(bundle, metadata, ("main",))
        if found:
            return found
        found = [problem(f"config.{name} is {config[name]}, and must be positive") for name in _NUMBERS
                 if config[name] < 1]  # fmt: skip
        functions, wrong = functions_of(bundle / metadata["assets"]["main"], ("durations", "main"))
        ids = {"input_ids": ((1, None), ("int32",))}
        speaker = {"speaker_id": ((1,), ("int32",))} if config["number_of_speakers"] > 1 else {}
        durations, waveform = {"durations": ((1, None), FLOATS)}, {"waveform": ((1, None), FLOATS)}
        noise = {"noise": ((1, config["noise_channels"], None), FLOATS)}
        drawn = {"duration_noise": ((1, 2, None), FLOATS)}
        is_drawn = "durations" in functions and "duration_noise" in functions["durations"].inputs
        interfaces = {
            "durations": Interface({**ids, **(drawn if is_drawn else {}), **speaker}, durations),
            "main": Interface({**ids, **durations, **noise, **speaker}, waveform),
        }
        found += wrong
        found += mismatches(functions, interfaces)
        return found

    @property
    def config(self) -> dict[str, Any]:
        """The folder's configuration, completed by the defaults of transformers."""
        from transformers import VitsConfig

        return {**VitsConfig().to_dict(), **super().config}

    def _entries(self) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.synthesis.vits_modules import DrawnDurations, VitsDurations, VitsSpeech
        from patcomp_models.tasks.entries import Entry

        model, draw = model_of(self.folder, "transformers", VITS, self.dtype), torch.Generator().manual_seed(0)
        config, tokens = model.config, Dim.DYNAMIC(min=_FEWEST_TOKENS, max=_MOST_TOKENS)
        ids = torch.arange(_TOKENS, dtype=torch.int32)[None] % config.vocab_size
        noise = {"duration_noise": torch.randn(1, 2, _TOKENS, generator=draw).to(model.dtype)}
        noise = noise if config.use_stochastic_duration_prediction else {}
        speaker = {"speaker_id": torch.zeros(1, dtype=torch.int32)} if config.num_speakers > 1 else {}
        durations = (DrawnDurations if noise else VitsDurations)(model)
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
            Entry("main", VitsSpeech(model), spoken, ("waveform",), _of(spoken, open_sizes)),
        ]


def _of(inputs: Mapping[str, Any], sizes: Mapping[str, dict[int, Any]]) -> dict[str, dict[int, Any]]:
    return {name: each for name, each in sizes.items() if name in inputs}

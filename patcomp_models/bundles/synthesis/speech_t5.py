"""SpeechT5: a text, then one step after the other, then the vocoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, PROCESSOR, Interface, Values, problem
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import class_named, content_of, tokenizer_of
from patcomp_models.bundles.synthesis.form import (
    SynthesisForm,
    functions_of,
    mismatches,
    number_problems,
    part_problems,
)
from patcomp_models.checkpoints.tokenizers import save
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

SPEECH_T5, VOCODER = "SpeechT5ForTextToSpeech", "SpeechT5HifiGan"
_CROSS, _STATES = ("crossKeys", "crossValues"), ("keyCache", "valueCache")
_NUMBERS = ("num_mel_bins", "reduction_factor", "speaker_embedding_dim", "prenet_layers", "prenet_units",
            "max_speech_positions", "sample_rate", "samples_per_frame")  # fmt: skip
_TOKENS, _FRAMES, _PAST = 12, 24, 4
"""The sizes of examples."""


@dataclass(frozen=True)
class SpeechT5(SynthesisForm):
    """A checkpoint of SpeechT5.

    Attributes:
        vocoder: the folder of its vocoder, which is a checkpoint of its own; by default `vocoder` in the folder.
    """

    vocoder: str | None

    def components(self) -> Sequence[Component]:
        tokenizer_of(self.folder)
        self._check_vocoder()
        return [
            Component("main", "main.aimodel", self._entries),
            Component("vocoder", "vocoder.aimodel", self._vocoder_entries),
        ]

    def metadata(self) -> Mapping[str, Any]:
        config, vocoder = self.config, self._vocoder_config
        return {
            "architecture": "speecht5",
            **{name: config[name] for name in ("num_mel_bins", "reduction_factor", "speaker_embedding_dim")},
            "max_speech_positions": config["max_speech_positions"],
            "prenet_layers": config["speech_decoder_prenet_layers"],
            "prenet_units": config["speech_decoder_prenet_units"],
            "prenet_keep": config["speech_decoder_prenet_dropout"],  # transformers keeps with this probability
            "sample_rate": vocoder["sampling_rate"],
            "samples_per_frame": prod(vocoder["upsample_rates"]),
        }

    def write_files(self, bundle: Path) -> None:
        save(tokenizer_of(self.folder), bundle / PROCESSOR)

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        config = metadata["config"]
        found = number_problems(config, _NUMBERS) + part_problems(bundle, metadata, ("main", "vocoder"))
        if found:
            return found
        interfaces, spectrogram = _interfaces(config), ((1, None, config["num_mel_bins"]), FLOATS)
        functions, found = functions_of(bundle / metadata["assets"]["main"], interfaces)
        found += mismatches(functions, interfaces)
        if "step" in functions and set(functions["step"].states) != set(_STATES):
            listed = ", ".join(functions["step"].states) or "none"
            found.append(problem(f"the states of step are {listed}; they must be {', '.join(_STATES)}"))
        vocoder, wrong = functions_of(bundle / metadata["assets"]["vocoder"], ("main",))
        found += wrong
        if "main" in vocoder:
            speaks = Interface({"spectrogram": spectrogram}, {"waveform": ((1, None), FLOATS)})
            found += speaks.problems("main of vocoder", vocoder["main"])
        return found

    @property
    def config(self) -> dict[str, Any]:
        """The folder's configuration, completed by the defaults of transformers."""
        from transformers import SpeechT5Config

        return {**SpeechT5Config().to_dict(), **super().config}

    @property
    def _vocoder_config(self) -> dict[str, Any]:
        from transformers import SpeechT5HifiGanConfig

        return {**SpeechT5HifiGanConfig().to_dict(), **content_of(self._vocoder / "config.json")}

    @property
    def _vocoder(self) -> Path:
        return self.folder / "vocoder" if self.vocoder is None else Path(self.vocoder)

    def _check_vocoder(self) -> None:
        if self.vocoder is None and not self._vocoder.is_dir():
            raise BundleError(
                f"{SPEECH_T5} makes spectrograms, and needs a vocoder; give the folder of a {VOCODER}, "
                "--set vocoder=FOLDER (vocoder= of convert_bundle)"
            )
        if class_named(content_of(self._vocoder / "config.json")) != VOCODER:
            raise BundleError(f"vocoder is {str(self._vocoder)!r}, which is not the folder of a {VOCODER}")
        if (bins := self._vocoder_config["model_in_dim"]) != self.config["num_mel_bins"]:
            raise BundleError(
                f"the vocoder takes {bins} bins, and the model makes {self.config['num_mel_bins']}; give the "
                "vocoder of this model"
            )

    def _entries(self) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.synthesis.speech_t5_modules import Postnet, SpeechT5Encode, SpeechT5Step
        from patcomp_models.tasks.entries import Entry

        model, draw = model_of(self.folder, "transformers", SPEECH_T5, self.dtype), torch.Generator().manual_seed(0)
        config, dtype = model.config, model.dtype

        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=draw).to(dtype)

        encode, step = SpeechT5Encode(model), SpeechT5Step(model)
        ids = torch.arange(_TOKENS, dtype=torch.int32)[None] % config.vocab_size
        with torch.no_grad():
            cross = dict(zip(_CROSS, encode(ids), strict=True))
        layers, _, heads, _, width = cross[_CROSS[0]].shape
        states = {name: drawn(layers, 1, heads, 2 * _PAST, width) for name in _STATES}
        units = (config.speech_decoder_prenet_layers, 1, config.speech_decoder_prenet_units)
        inputs = {
            "frame": drawn(1, 1, config.num_mel_bins), "dropout": (drawn(*units) > 0).to(dtype),
            "speaker_embedding": drawn(1, config.speaker_embedding_dim),
            "position_ids": torch.arange(_PAST, dtype=torch.int32)[None], **cross, **states,
        }  # fmt: skip
        most = config.max_speech_positions
        tokens = {3: Dim("tokens", min=2, max=config.max_text_positions)}
        open_sizes: dict[str, dict[int, Any]] = {
            "position_ids": {1: Dim("total", min=1, max=most)}, **dict.fromkeys(_CROSS, tokens),
            "keyCache": {3: Dim("key_capacity", min=1, max=2 * most)},
            "valueCache": {3: Dim("value_capacity", min=1, max=2 * most)},
        }  # fmt: skip
        text = {1: Dim("length", min=2, max=config.max_text_positions)}
        frames = {1: Dim.DYNAMIC(min=_FRAMES // 4, max=2**16)}
        return [
            Entry("encode", encode, {"input_ids": ids}, _CROSS, {"input_ids": text}),
            Entry("step", step, inputs, ("spectrum", "stop"), open_sizes, _STATES, keeps_sizes=True),
            Entry("postnet", Postnet(model), {"spectrogram": drawn(1, _FRAMES, config.num_mel_bins)},
                  ("postnet_spectrogram",), {"spectrogram": frames}),
        ]  # fmt: skip

    def _vocoder_entries(self) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.synthesis.speech_t5_modules import Vocoder
        from patcomp_models.tasks.entries import Entry

        model = model_of(self._vocoder, "transformers", VOCODER, self.dtype)
        spectrogram = torch.randn(1, _FRAMES, model.config.model_in_dim, generator=torch.Generator().manual_seed(0))
        frames = {1: Dim.DYNAMIC(min=_FRAMES // 4, max=2**16)}
        inputs = {"spectrogram": spectrogram.to(model.dtype)}
        return [Entry("main", Vocoder(model), inputs, ("waveform",), {"spectrogram": frames})]


def _interfaces(config: Mapping[str, Any]) -> dict[str, Interface]:
    """The functions of the asset `main`."""
    bins, frames = config["num_mel_bins"], config["reduction_factor"]
    cross: Values = dict.fromkeys(_CROSS, (("*", 1, "*", None, "*"), FLOATS))
    spectrum: Values = {"spectrum": ((1, frames, bins), FLOATS), "stop": ((1, frames), FLOATS)}
    step: Values = {
        "frame": ((1, 1, bins), FLOATS),
        "dropout": ((config["prenet_layers"], 1, config["prenet_units"]), FLOATS),
        "speaker_embedding": ((1, config["speaker_embedding_dim"]), FLOATS),
        "position_ids": ((1, None), ("int32",)),
        **cross,
    }
    return {
        "encode": Interface({"input_ids": ((1, None), ("int32",))}, cross),
        "step": Interface(step, spectrum),
        "postnet": Interface(
            {"spectrogram": ((1, None, bins), FLOATS)}, {"postnet_spectrogram": ((1, None, bins), FLOATS)}
        ),
    }

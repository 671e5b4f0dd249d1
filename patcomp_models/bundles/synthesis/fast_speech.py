"""FastSpeech 2 with Conformers: phonemes and their durations, then a spectrogram or samples of as many frames.

A host repeats each row of the first result by its duration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from patcomp_models.bundle_folders.contract import FLOATS, Interface
from patcomp_models.bundles.synthesis.form import FormOfFunctions

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_MOST = 5000
"""The positions that the model has a table for."""
_TOKENS, _FRAMES = 16, 24


class FastSpeech2(FormOfFunctions):
    """FastSpeech 2 (Ren et al. 2020, arXiv:2006.04558) without a vocoder."""

    holds, architecture = "FastSpeech2ConformerModel", "fastspeech2_conformer"
    numbers_of_hosts = ("width", "num_mel_bins", "speakers", "languages", "speaker_width")
    vocabulary = "vocab.json"
    gives = "spectrogram"

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "width": config.hidden_size, "num_mel_bins": config.num_mel_bins, "speakers": config.num_speakers or 1,
            "languages": config.num_languages or 1, "speaker_width": config.speaker_embed_dim or 0,
        }  # fmt: skip

    @classmethod
    def interfaces(cls, config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Interface]]:
        rows: Any = {"hidden": ((1, None, config["width"]), FLOATS)}
        one, whose = ((1,), ("int32",)), dict[str, Any]()
        if config["speakers"] > 1:
            whose["speaker_id"] = one
        if config["languages"] > 1:
            whose["language_id"] = one
        if config["speaker_width"]:
            whose["speaker_embedding"] = ((1, config["speaker_width"]), FLOATS)
        durations = ((1, None), ("int32",))
        made = (1, None, config["num_mel_bins"]) if cls.gives == "spectrogram" else (1, None)
        functions = {
            "durations": Interface({"input_ids": durations, **whose}, {**rows, "durations": durations}),
            "main": Interface(rows, {cls.gives: (made, FLOATS)}),
        }
        return {"main": functions}

    @classmethod
    def entries(cls, model: Any, role: str) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.synthesis.fast_speech_modules import Durations, Spoken
        from patcomp_models.tasks.entries import Entry

        reader, vocoder = getattr(model, "model", model), getattr(model, "vocoder", None)
        config = reader.config
        given = {"input_ids": torch.arange(_TOKENS)[None] % config.vocab_size}
        if (config.num_speakers or 1) > 1:
            given["speaker_id"] = torch.tensor([1])
        if (config.num_languages or 1) > 1:
            given["language_id"] = torch.tensor([1])
        draw = torch.Generator().manual_seed(0)
        if config.speaker_embed_dim:
            given["speaker_embedding"] = torch.randn(1, config.speaker_embed_dim, generator=draw).to(reader.dtype)
        hidden = torch.randn(1, _FRAMES, config.hidden_size, generator=draw).to(reader.dtype)
        tokens, frames = (Dim(name, min=2, max=_MOST) for name in ("tokens", "frames"))
        return [
            Entry("durations", Durations(reader, tuple(given)[1:]), given, ("hidden", "durations"),
                  {"input_ids": {1: tokens}}),
            Entry("main", Spoken(reader, vocoder), {"hidden": hidden}, (cls.gives,), {"hidden": {1: frames}}),
        ]  # fmt: skip


class FastSpeech2WithVocoder(FastSpeech2):
    """FastSpeech 2 with its HiFi-GAN."""

    holds, architecture = "FastSpeech2ConformerWithHifiGan", "fastspeech2_conformer_with_hifigan"
    gives = "waveform"

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        return super().numbers(config.model_config, generation)

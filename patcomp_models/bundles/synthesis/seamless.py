"""SeamlessM4T from text to speech: a text, then units of sound of the text's hidden states, then samples of the units.

Each of the first two is an encoder with a decoder, whose loop is outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from patcomp_models.bundle_folders.contract import FLOATS, Interface
from patcomp_models.bundles.synthesis.form import Continued, FormOfFunctions

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_IDS: Any = ((1, None), ("int32",))


class Seamless(FormOfFunctions):
    """SeamlessM4T (Seamless Communication 2023, arXiv:2308.11596), not its second version."""

    holds, architecture = "SeamlessM4TForTextToSpeech", "seamless_m4t"
    numbers_of_hosts = ("vocabulary", "units", "width", "longest", "most_units", "unit_start", "unit_end", "unit_pad",
                        "unit_offset", "sample_rate", "samples_per_frame")  # fmt: skip

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "vocabulary": config.vocab_size, "units": config.t2u_vocab_size, "width": config.hidden_size,
            "longest": config.max_position_embeddings, "most_units": config.t2u_max_position_embeddings,
            "unit_start": config.t2u_eos_token_id, "unit_end": config.t2u_eos_token_id,
            "unit_pad": config.t2u_pad_token_id, "unit_offset": config.vocoder_offset,
            "sample_rate": config.sampling_rate, "samples_per_frame": prod(config.upsample_rates),
        }  # fmt: skip

    @classmethod
    def interfaces(cls, config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Interface]]:
        cross: Any = dict.fromkeys(("crossKeys", "crossValues"), (("*", 1, "*", None, "*"), FLOATS))
        hidden: Any = {"hidden": ((1, None, config["width"]), FLOATS)}
        one: Any = ((1,), ("int32",))

        def decode(count: int, **more: Any) -> Interface:
            logits: Any = {"logits": ((1, None, count), FLOATS)}
            return Continued({"input_ids": _IDS, "position_ids": _IDS, **cross}, {**logits, **more})

        return {
            "text": {"encode": Interface({"input_ids": _IDS}, cross), "decode": decode(config["vocabulary"], **hidden)},
            "units": {"encode": Interface(hidden, cross), "decode": decode(config["units"])},
            "vocoder": {
                "durations": Interface({"input_ids": _IDS}, {"durations": _IDS}),
                "main": Interface(
                    {"input_ids": _IDS, "speaker_id": one, "language_id": one}, {"waveform": ((1, None), FLOATS)}),
            },
        }  # fmt: skip

    @classmethod
    def entries(cls, model: Any, role: str) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.synthesis import seamless_modules as modules
        from patcomp_models.tasks.entries import Entry
        from patcomp_models.tasks.sequences import EncodeInput, reading_and_writing

        config = model.config
        length = Dim("length", min=2, max=config.max_position_embeddings)
        if role == "text":
            ids = torch.arange(3, 19)[None] % config.vocab_size
            return reading_and_writing(
                model, EncodeInput(model), {"input_ids": ids}, {"input_ids": {1: length}},
                config.max_position_embeddings, most_texts=1, decode=modules.DecodeText(model),
            )  # fmt: skip
        if role == "units":
            hidden = torch.randn(1, 16, config.hidden_size, generator=torch.Generator().manual_seed(0)).to(model.dtype)
            return reading_and_writing(
                model.t2u_model, modules.EncodeHidden(model.t2u_model), {"hidden": hidden}, {"hidden": {1: length}},
                config.t2u_max_position_embeddings, most_texts=1,
            )  # fmt: skip
        units = torch.arange(16)[None] % config.unit_hifi_gan_vocab_size
        given = {"input_ids": units, "speaker_id": torch.tensor([1]), "language_id": torch.tensor([1])}
        some, count = ({"input_ids": {1: Dim(name, min=2, max=2**16)}} for name in ("units", "frames"))
        return [
            Entry("durations", modules.UnitDurations(model.vocoder), {"input_ids": units}, ("durations",), some),
            Entry("main", modules.UnitSound(model.vocoder), given, ("waveform",), count),
        ]

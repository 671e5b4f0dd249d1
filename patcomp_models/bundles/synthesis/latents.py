"""Models that write latents of sound, one frame after the other: Pocket TTS by a flow, VibeVoice by a diffusion.

What is drawn is the caller's, and so are the loop and the schedule of the diffusion.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, Interface
from patcomp_models.bundle_folders.interfaces import Function
from patcomp_models.bundles.streaming.contract import state_problems
from patcomp_models.bundles.synthesis.form import Continued, FormOfFunctions

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_IDS: Any = ((1, None), ("int32",))


class _Chunked(Interface):
    """A function of chunks of sound: what its convolutions keep of earlier ones is a state."""

    def problems(self, where: str, found: Function) -> list[Problem]:
        prefix = "decoder" if where == "decode" else "encoder"
        return super().problems(where, found) + state_problems(where, prefix, found)


class PocketTts(FormOfFunctions):
    """Pocket TTS of Kyutai. Its codec is a checkpoint of its own."""

    holds, architecture = "PocketTTSForConditionalGeneration", "pocket_tts"
    numbers_of_hosts = ("width", "latent_width", "voice_width", "longest", "start_token")

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "width": config.hidden_size, "latent_width": config.latent_dim,
            "voice_width": getattr(config, "audio_prompt_dim", config.latent_dim),
            "longest": config.max_position_embeddings,
            "voice_start_token": getattr(config, "audio_prompt_bos_token_id", None),
            "start_token": config.audio_bos_token_id, "frame_rate": config.frame_rate,
            "has_times": config.flow_head_config.num_time_conditions > 0,
        }  # fmt: skip

    @classmethod
    def interfaces(cls, config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Interface]]:
        latents, embeddings = _of(config["latent_width"]), _of(config["width"])
        latent, hidden = _one(config["latent_width"]), _one(config["width"])
        times = {"times": _one(2)} if config.get("has_times") else {}
        functions = {
            "text": Interface({"input_ids": _IDS}, {"embeddings": embeddings}),
            "voice": Interface({"latents": _of(config["voice_width"])}, {"embeddings": embeddings}),
            "frames": Interface({"latents": latents}, {"embeddings": embeddings}),
            "main": Continued(
                {"inputs_embeds": embeddings, "position_ids": _IDS}, {"logits": _of(1), "hidden": embeddings}),
            "flow": Interface({"latents": latent, "hidden": hidden, **times}, {"flow": latent}),
            "scaled": Interface({"latents": latents}, {"scaled_latents": latents}),
        }  # fmt: skip
        return {"main": functions}

    @classmethod
    def entries(cls, model: Any, role: str) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.hearing.functions import decoder_entry
        from patcomp_models.bundles.synthesis import latent_modules as modules
        from patcomp_models.tasks.entries import Entry

        config, draw, told = model.config, torch.Generator().manual_seed(0), cls.numbers(model.config, {})
        longest = config.max_position_embeddings
        new, made = {1: Dim("new", min=1, max=longest)}, ("embeddings",)
        ids = torch.tensor([[5, 6, 7, config.audio_bos_token_id]])
        voice = {"latents": torch.randn(1, 5, told["voice_width"], generator=draw).to(model.dtype)}
        latents = {"latents": torch.randn(1, 5, config.latent_dim, generator=draw).to(model.dtype)}
        one = {"latents": latents["latents"][:, 0],
               "hidden": torch.randn(1, config.hidden_size, generator=draw).to(model.dtype)}  # fmt: skip
        if config.flow_head_config.num_time_conditions:
            one["times"] = torch.tensor([[0.25, 0.5]], dtype=model.dtype)
        model.get_output_embeddings = lambda: model.eos_head  # transformers names no head
        return [
            Entry("text", modules.PocketText(model), {"input_ids": ids}, made, {"input_ids": new}),
            Entry("voice", modules.PocketVoice(model), voice, made, {"latents": new}),
            Entry("frames", modules.PocketFrames(model), latents, made, {"latents": new}),
            decoder_entry(modules.PocketDecoder(model, hidden=True).eval(), longest),
            Entry("flow", modules.PocketFlow(model), one, ("flow",)),
            Entry("scaled", modules.PocketScaled(model), latents, ("scaled_latents",), {"latents": new}),
        ]


class Phonon(PocketTts):
    """Gradium's Phonon, of Pocket TTS' form, whose voices are latents of another codec."""

    holds, architecture = "GradiumPhononTTSForConditionalGeneration", "gradium_phonon_tts"


class VibeVoice(FormOfFunctions):
    """VibeVoice (Peng et al. 2025, arXiv:2508.19205), with both halves of its codec."""

    holds, architecture = "VibeVoiceForConditionalGeneration", "vibevoice"
    numbers_of_hosts = ("width", "latent_width", "vocabulary", "longest", "samples_per_frame", "start_token",
                        "audio_token", "end_token", "stop_token")  # fmt: skip

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        text, codec = config.text_config, config.audio_config
        return {
            "width": text.hidden_size, "latent_width": codec.hidden_size, "vocabulary": text.vocab_size,
            "longest": text.max_position_embeddings, "samples_per_frame": prod(codec.downsampling_ratios),
            "start_token": config.audio_bos_token_id, "audio_token": config.audio_token_id,
            "end_token": config.audio_eos_token_id, "stop_token": config.eos_token_id,
            "voice_deviation": codec.vae_std,
        }  # fmt: skip

    @classmethod
    def interfaces(cls, config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Interface]]:
        width, latent = config["width"], config["latent_width"]
        embeddings, frame = {"embeddings": _of(width)}, ((1, 1, latent), FLOATS)
        audio = ((1, 1, config["samples_per_frame"]), FLOATS)
        logits = {"logits": _of(config["vocabulary"]), "hidden": _of(width)}
        functions: dict[str, Interface] = {
            "text": Interface({"input_ids": _IDS}, embeddings),
            "main": Continued({"inputs_embeds": _of(width), "position_ids": _IDS}, logits),
            "denoise": Interface(
                {"latents": _one(latent), "timestep": ((1,), FLOATS), "hidden": ((2, width), FLOATS)},
                {"predictions": ((2, latent), FLOATS)}),
            "decode": _Chunked({"latents": frame}, {"audio": audio}),
            "hear": _Chunked({"audio": audio, "latents": frame}, {"embeddings": ((1, 1, width), FLOATS)}),
            "encode": Interface({"audio": _of(None, 1)}, {"latents": _of(latent)}),
            "voice": Interface({"latents": _of(latent)}, embeddings),
        }  # fmt: skip
        return {"main": functions}

    @classmethod
    def entries(cls, model: Any, role: str) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.hearing.functions import HearingDecoder, TokenTable, decoder_entry
        from patcomp_models.bundles.synthesis import latent_modules as modules
        from patcomp_models.tasks.entries import Entry

        told = cls.numbers(model.config, {})
        draw, longest, latent = torch.Generator().manual_seed(0), told["longest"], told["latent_width"]

        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=draw).to(model.dtype)

        new, made = {1: Dim("new", min=1, max=longest)}, ("embeddings",)
        samples = told["samples_per_frame"]
        frames = {2: samples * Dim("frames", min=2, max=2**16)}
        timestep = torch.tensor([500.0]).to(model.dtype)
        noisy = {"latents": drawn(1, latent), "timestep": timestep, "hidden": drawn(2, told["width"])}
        frame, audio = drawn(1, 1, latent), drawn(1, 1, samples)
        return [
            Entry("text", TokenTable(model), {"input_ids": torch.arange(5)[None]}, made, {"input_ids": new}),
            decoder_entry(HearingDecoder(model, hidden=True).eval(), longest),
            Entry("denoise", modules.VoiceDenoise(model), noisy, ("predictions",)),
            modules.SpokenFrame(model.model).entry("decode", {"latents": frame}, "audio"),
            modules.HeardFrame(model.model).entry("hear", {"audio": audio, "latents": frame}, "embeddings"),
            Entry("encode", modules.VoiceEncode(model), {"audio": drawn(1, 1, 4 * samples)}, ("latents",),
                  {"audio": frames}),
            Entry("voice", modules.Voice(model), {"latents": drawn(1, 5, latent)}, made, {"latents": new}),
        ]  # fmt: skip


def _of(width: int | None, count: int | None = None) -> Any:
    """A row for each of some tokens or frames."""
    return (1, count, width), FLOATS


def _one(width: int) -> Any:
    return (1, width), FLOATS

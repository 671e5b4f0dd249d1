"""Models that write frames of several codebooks, each delayed against the ones before: Dia, MusicGen, Higgs Audio.

`delays` of the metadata says how many frames each codebook is behind; until then a host gives `start_code`. The codecs
of Dia (DAC) and of Higgs Audio are checkpoints of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, Interface, problem
from patcomp_models.bundles.synthesis.form import Continued, FormOfFunctions
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path

    from patcomp_models.tasks.entries import Entry

_IDS: Any = ((1, None), ("int32",))
_NUMBERS = ("codebooks", "codes", "start_code", "longest")
_FRAMES = 24


class Delayed(FormOfFunctions):
    """A model whose codebooks are delayed, with the decoder of its EnCodec if that is in the folder."""

    numbers_of_hosts: ClassVar[tuple[str, ...]] = _NUMBERS

    @classmethod
    @abstractmethod
    def functions(cls, config: Mapping[str, Any]) -> Mapping[str, Interface]:
        """Those of the asset `main`, from `config` of `metadata.json`."""

    @classmethod
    @abstractmethod
    def written(cls, model: Any, told: Mapping[str, Any]) -> list[Entry]:
        """The same to export; `told` are the numbers."""

    @classmethod
    def interfaces(cls, config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Interface]]:
        found: dict[str, Mapping[str, Interface]] = {"main": cls.functions(config)}
        if "channels" in config:
            codes, audio = (1, config["codebooks"], None), (1, config["channels"], None)
            found["codec"] = {"main": Interface({"codes": (codes, ("int32",))}, {"audio": (audio, FLOATS)})}
        return found

    @classmethod
    def entries(cls, model: Any, role: str) -> list[Entry]:
        from torch.export import Dim

        from patcomp_models.bundles.synthesis.delayed_modules import StereoDecode, frames
        from patcomp_models.tasks.codecs import EncodecDecode
        from patcomp_models.tasks.entries import Entry

        told = cls.numbers(model.config, model.generation_config.to_dict())
        if role == "main":
            return cls.written(model, told)
        codec = model.audio_encoder
        decode = (EncodecDecode if told["channels"] == 1 else StereoDecode)(codec)
        codes = frames(_FRAMES, told["codebooks"], codec.config.codebook_size).transpose(1, 2)
        least = max(codec.config.kernel_size, codec.config.last_kernel_size)  # frames that a padding reflects
        count = {2: Dim("frames", min=least, max=2**16)}
        return [Entry("main", decode, {"codes": codes}, ("audio",), {"codes": count})]

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        found, delays = super().problems(bundle, metadata), metadata["config"].get("delays")
        count = metadata["config"].get("codebooks")
        if not isinstance(delays, list) or len(delays) != count or any(type(each) is not int for each in delays):
            found.append(problem(f"config.delays is {delays!r}, and must be an integer for each of {count} codebooks"))
        return found


class _WithEncoder(Delayed):
    """One that reads a text by an encoder, whose keys and values go into each call."""

    @classmethod
    def functions(cls, config: Mapping[str, Any]) -> Mapping[str, Interface]:
        cross: Any = dict.fromkeys(("crossKeys", "crossValues"), (("*", 1, "*", None, "*"), FLOATS))
        return {
            "encode": Interface({"input_ids": _IDS}, cross),
            "decode": Continued({"codes": _frames(config), "position_ids": _IDS, **cross}, _logits(config)),
        }

    @classmethod
    def written(cls, model: Any, told: Mapping[str, Any]) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.synthesis.delayed_modules import DecodeFrames
        from patcomp_models.tasks.sequences import EncodeInput, reading_and_writing

        encoder = model.get_encoder().config
        longest = getattr(encoder, "max_position_embeddings", None) or 2**16
        text = torch.arange(1, 17)[None] % encoder.vocab_size
        return reading_and_writing(
            model, EncodeInput(model, rows=told["codebooks"]), {"input_ids": text},
            {"input_ids": {1: Dim("length", min=2, max=longest)}}, told["longest"], most_texts=1,
            decode=DecodeFrames(model, told["codebooks"], told["codes"]),
        )  # fmt: skip


class Dia(_WithEncoder):
    """Dia of Nari Labs."""

    holds, architecture = "DiaForConditionalGeneration", "dia"
    numbers_of_hosts = (*_NUMBERS, "pad_code", "end_code")

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        decoder = config.decoder_config
        return {
            "codebooks": decoder.num_channels, "codes": decoder.vocab_size, "delays": list(config.delay_pattern),
            "start_code": decoder.bos_token_id, "pad_code": decoder.pad_token_id, "end_code": decoder.eos_token_id,
            "longest": decoder.max_position_embeddings,
        }  # fmt: skip


class Musicgen(_WithEncoder):
    """MusicGen (Copet et al. 2023, arXiv:2306.05284), also of two channels."""

    holds, architecture = "MusicgenForConditionalGeneration", "musicgen"
    numbers_of_hosts = (*_NUMBERS, "channels")

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        return _of_music(config, generation)


class MusicgenMelody(Delayed):
    """MusicGen Melody, whose decoder has a melody and a text in front of the frames."""

    holds, architecture = "MusicgenMelodyForConditionalGeneration", "musicgen_melody"
    numbers_of_hosts = (*_NUMBERS, "channels", "width", "pitch_classes", "melody_frames")

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            **_of_music(config, generation), "width": config.decoder.hidden_size,
            "pitch_classes": config.num_chroma, "melody_frames": config.chroma_length,
        }  # fmt: skip

    @classmethod
    def functions(cls, config: Mapping[str, Any]) -> Mapping[str, Interface]:
        new: Any = ((1, None, config["width"]), FLOATS)
        melody: Any = ((1, None, config["pitch_classes"]), FLOATS)
        return {
            "text": Interface({"input_ids": _IDS}, {"embeddings": new}),
            "melody": Interface({"input_features": melody}, {"embeddings": new}),
            "codes": Interface({"codes": _frames(config)}, {"embeddings": new}),
            "main": Continued({"inputs_embeds": new, "position_ids": _IDS}, _logits(config)),
        }

    @classmethod
    def written(cls, model: Any, told: Mapping[str, Any]) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.hearing.functions import decoder_entry
        from patcomp_models.bundles.synthesis import delayed_modules as modules
        from patcomp_models.tasks.entries import Entry

        longest, codes = told["longest"], modules.frames(5, told["codebooks"], told["codes"])
        new = {1: Dim("new", min=1, max=longest)}
        text = torch.arange(1, 17)[None] % model.text_encoder.config.vocab_size
        melody = torch.randn(1, 5, told["pitch_classes"], generator=torch.Generator().manual_seed(0)).to(model.dtype)
        made = ("embeddings",)
        return [
            Entry("text", modules.TextEmbeddings(model), {"input_ids": text}, made,
                  {"input_ids": {1: Dim("length", min=2, max=longest)}}),
            Entry("melody", modules.MelodyEmbeddings(model), {"input_features": melody}, made, {"input_features": new}),
            Entry("codes", modules.CodeEmbeddings(model), {"codes": codes}, made, {"codes": new}),
            decoder_entry(modules.MelodyDecoder(model.decoder).eval(), longest),
        ]  # fmt: skip


class Higgs(Delayed):
    """Higgs Audio V2, a language model that reads texts and frames with networks of their own."""

    holds, architecture = "HiggsAudioV2ForConditionalGeneration", "higgs_audio_v2"
    numbers_of_hosts = (*_NUMBERS, "end_code", "start_token", "audio_token", "end_token")

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "codebooks": config.num_codebooks, "codes": config.codebook_size,
            "delays": list(range(config.num_codebooks)), "start_code": config.audio_stream_bos_id,
            "end_code": config.audio_stream_eos_id, "longest": config.max_position_embeddings,
            "start_token": config.audio_bos_token_id, "audio_token": config.audio_token_id,
            "end_token": config.audio_delay_token_id,
        }  # fmt: skip

    @classmethod
    def functions(cls, config: Mapping[str, Any]) -> Mapping[str, Interface]:
        return {
            "text": Continued({"input_ids": _IDS, "position_ids": _IDS}, _logits(config)),
            "main": Continued({"codes": _frames(config), "position_ids": _IDS}, _logits(config)),
        }

    @classmethod
    def written(cls, model: Any, told: Mapping[str, Any]) -> list[Entry]:
        from patcomp_models.bundles.hearing.functions import decoder_entry
        from patcomp_models.bundles.synthesis.delayed_modules import HiggsDecoder, HiggsFrames

        return [
            decoder_entry(HiggsDecoder(model).eval(), told["longest"], name="text"),
            decoder_entry(HiggsFrames(model).eval(), told["longest"]),
        ]


def _frames(config: Mapping[str, Any]) -> Any:
    return (1, None, config["codebooks"]), ("int32",)


def _logits(config: Mapping[str, Any]) -> Any:
    return {"logits": ((config["codebooks"], config["codes"]), FLOATS)}


def _of_music(config: Any, generation: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of both forms of MusicGen.

    Raises:
        BundleError: the generation configuration is missing, or the codec is another one.
    """
    decoder, codec = config.decoder, config.audio_encoder
    start, pad = generation.get("decoder_start_token_id"), generation.get("pad_token_id")
    if start is None or start != pad:
        raise BundleError(
            f"generation_config.json of {config.model_type} says {start} as decoder_start_token_id and {pad} as "
            "pad_token_id, and these must be one code; save the generation configuration of the model"
        )
    chunk = getattr(codec, "chunk_length_s", None)
    if codec.model_type != "encodec" or chunk is not None:
        raise BundleError(
            f"the codec of {config.model_type} must be EnCodec without chunks, and it is {codec.model_type} with "
            f"chunk_length_s {chunk}"
        )
    return {
        "codebooks": decoder.num_codebooks, "codes": decoder.vocab_size, "start_code": start,
        "delays": [number // decoder.audio_channels for number in range(decoder.num_codebooks)],
        "longest": decoder.max_position_embeddings, "channels": decoder.audio_channels,
        "sample_rate": codec.sampling_rate, "samples_per_frame": codec.hop_length,
    }  # fmt: skip

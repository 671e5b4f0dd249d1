"""Codecs that read and write a recording in chunks, for hosts of your own: Apple's Swift package has no such kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.errors import Problem, reason_of
from patcomp_models.bundle_folders.contract import FLOATS, Interface, InterfaceSizes, function_of, problem
from patcomp_models.bundles.components import KindOfComponents
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import class_named, content_of, extractor_of
from patcomp_models.bundles.streaming.contract import state_problems
from patcomp_models.errors import BundleError

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

_MIMI, _POCKET, _VIBE_VOICE = "MimiModel", "PocketTTSAudioTokenizerModel", "VibeVoiceAcousticTokenizerModel"
_ENCODEC, _DAC = "EncodecModel", "DacModel"
_CODECS = (_MIMI, _POCKET, _VIBE_VOICE, _ENCODEC)
_PARTS = {
    "MoshiForConditionalGeneration": "audio_encoder",
    "KyutaiSpeechToTextForConditionalGeneration": "codec",
    "CsmForConditionalGeneration": "codec",
}
"""Models that have Mimi as a part, and the name of its configuration without the end."""
_PREFIXES = r"(audio_encoder|codec_model)[.]"
"""Of the names of its weights."""
_NO_CACHES = "transformers keeps nothing of its convolutions between chunks"
_OTHERS = ("XcodecModel", "Xcodec2Model", "NeuCodecModel")
_WHOLE = "its convolutions see later samples, so that chunks cannot be coded one by one"


@dataclass(frozen=True)
class StreamingCodec(KindOfComponents):
    """Mimi, also as a part of another model, EnCodec, and the codecs of Pocket TTS and VibeVoice.

    Attributes:
        frames: how many frames a chunk has; by default the fewest, which is 1 of all but EnCodec.
        codebooks: how many codebooks of Mimi or EnCodec are used; by default all.
    """

    frames: int | None = None
    codebooks: int | None = None

    name: ClassVar[str] = "streaming_codec"
    holds: ClassVar[str] = f"{', '.join(_CODECS)} of transformers, or Mimi in {', '.join(_PARTS)}"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_named(config) in (*_CODECS, *_OTHERS, _DAC)

    def components(self) -> Sequence[Component]:
        name = self._class
        if name in _OTHERS:
            raise BundleError(
                f"{str(self.folder)!r} holds {name}, which becomes no bundle, because {_NO_CACHES}; export its parts "
                "by FILE.py:FUNCTION, a function that returns a module and its inputs"
            )
        if reason := self._whole:
            raise BundleError(
                f"{str(self.folder)!r} holds {name}, which becomes no bundle for chunks, because {reason}; convert it "
                "to an asset: give -o a name with .aimodel, or call patcomp_models.tasks.convert_folder"
            )
        if name not in (*_CODECS, *_PARTS):
            raise BundleError(f"{str(self.folder)!r} holds {name or 'no class that it names'}, and not {self.holds}")
        config = self._config
        fewest = _fewest_frames(config)
        if type(self._frames) is not int or self._frames < fewest:
            raise BundleError(f"frames is {self.frames!r}, and must be how many frames a chunk has, such as {fewest}")
        for half in ("encoder", "decoder"):
            if getattr(config, f"{half}_config", half) is None:
                raise BundleError(
                    f"{str(self.folder)!r} has no {half}, and a codec has both; give the whole checkpoint"
                )
        if self.codebooks is not None and name in (_POCKET, _VIBE_VOICE):
            raise BundleError(f"{name} has latents and no codebooks; leave codebooks out")
        if self.codebooks is not None:
            least, most = getattr(config, "num_semantic_quantizers", 1), config.num_quantizers
            if type(self.codebooks) is not int or not least <= self.codebooks <= most:
                raise BundleError(f"codebooks is {self.codebooks!r}, and must be from {least} to {most}")
        self.metadata()  # before the conversion, because it reads files
        return [Component("main", "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        config, has_codes = self._config, self._class not in (_POCKET, _VIBE_VOICE)
        told = {
            "architecture": config.model_type,
            "sample_rate": getattr(config, "sampling_rate", None) or extractor_of(self.folder).sampling_rate,
            "channels": getattr(config, "audio_channels", None) or config.channels,
            "samples_per_frame": _samples(config),
            "frames_per_chunk": self._frames,
        }
        if has_codes:
            told |= {"codebooks": self.codebooks or config.num_quantizers, "codebook_size": config.codebook_size}
        else:
            told["latent_width"] = getattr(config, "latent_dim", None) or config.hidden_size
        return {"config": told}

    def write_files(self, bundle: Path) -> None:
        """There are none: a host needs samples and codes only."""

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any], revision: str) -> list[Problem]:
        config = metadata.get("config")
        if not isinstance(config, Mapping):
            return [problem("config is missing")]
        has_codes = "codebooks" in config
        names = ("sample_rate", "channels", "samples_per_frame", "frames_per_chunk",
                 *(("codebooks", "codebook_size") if has_codes else ("latent_width",)))  # fmt: skip
        found = [problem(f"config.{name} is {config.get(name)!r}, and must be a positive integer") for name in names
                 if type(config.get(name)) is not int or config[name] < 1]  # fmt: skip
        if "main" not in metadata["assets"]:
            found.append(problem("assets.main is missing"))
        if found:
            return found
        frames = config["frames_per_chunk"]
        audio = {"audio": ((1, config["channels"], frames * config["samples_per_frame"]), FLOATS)}
        coded: dict[str, tuple[InterfaceSizes, Sequence[str]]]
        if has_codes:
            coded = {"codes": ((1, config["codebooks"], frames), ("int32",))}
        else:
            coded = {"latents": ((1, frames, config["latent_width"]), FLOATS)}
        interfaces = {"encode": Interface(audio, coded), "decode": Interface(coded, audio)}
        for name, prefix in (("encode", "encoder"), ("decode", "decoder")):
            function, wrong = function_of(bundle / metadata["assets"]["main"], name)
            found += wrong
            if function is not None:
                found += interfaces[name].problems(name, function) + state_problems(name, prefix, function)
        return found

    @property
    def _frames(self) -> Any:
        """How many frames a chunk has."""
        return _fewest_frames(self._config) if self.frames is None else self.frames

    @property
    def _whole(self) -> str | None:
        """Why a codec takes whole recordings only, if it does."""
        if self._class == _DAC:
            return _WHOLE
        if self._class != _ENCODEC:
            return None
        config = self._config  # the settings of 48 kHz
        reasons = {
            _WHOLE: not config.use_causal_conv,
            "it normalises whole recordings": config.norm_type == "time_group_norm",
            "it divides recordings by their loudness, which chunks do not know": config.normalize,
            "it cuts recordings into chunks that overlap": config.chunk_length_s is not None,
        }
        return next((reason for reason, is_so in reasons.items() if is_so), None)

    @property
    def _class(self) -> str:
        return class_named(content_of(self.folder / "config.json"))

    @property
    def _config(self) -> Any:
        """The configuration of the codec."""
        from transformers import AutoConfig

        try:
            config = AutoConfig.from_pretrained(self.folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the files can make transformers raise anything
            raise BundleError(
                f"transformers cannot read the configuration of {str(self.folder)!r}: {reason_of(error)}"
            ) from error
        return getattr(config, f"{_PARTS[self._class]}_config") if self._class in _PARTS else config

    def _entries(self) -> list[Entry]:
        import torch

        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.speech.examples import samples
        from patcomp_models.bundles.streaming import encodec
        from patcomp_models.bundles.streaming.codecs import codec_functions

        name, config = self._class, self._config
        part = {"config": config, "part": _PREFIXES} if name in _PARTS else {}
        model = model_of(self.folder, "transformers", _MIMI if part else name, self.dtype, **part)
        told = self.metadata()["config"]
        books, frames = told.get("codebooks"), told["frames_per_chunk"]
        shape = (1, frames, told.get("latent_width"))
        if books is None:
            coded = {"latents": torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(model.dtype)}
        else:
            codes = torch.arange(books * frames, dtype=torch.int32) % config.codebook_size
            coded = {"codes": codes.view(1, books, frames)}
        encode, decode = (
            encodec.encodec_functions(model, frames, books) if name == _ENCODEC else codec_functions(model, books)
        )
        chunk = samples(told["channels"] * frames * told["samples_per_frame"]).view(1, told["channels"], -1)
        (output,) = coded
        return [
            encode.entry("encode", {"audio": chunk.to(model.dtype)}, output),
            decode.entry("decode", coded, "audio"),
        ]


def _fewest_frames(config: Any) -> int:
    """The fewest frames of a chunk: EnCodec reflects frames in front of a recording, which are in its first chunk."""
    if getattr(config, "pad_mode", None) == "reflect" and config.model_type == "encodec":
        return max(config.kernel_size, config.last_kernel_size)
    return 1


def _samples(config: Any) -> int:
    """The samples of a frame."""
    if ratios := getattr(config, "upsampling_ratios", None):
        return prod(ratios) * int(getattr(config, "latent_stride", 1))
    return prod(config.downsampling_ratios)

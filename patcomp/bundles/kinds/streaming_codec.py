"""Codecs that read and write a recording in chunks, for hosts of your own: Apple's Swift package has no such kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from patcomp.bundle_folders.contract import FLOATS, Interface, Sizes, function_of, problem
from patcomp.bundle_folders.errors import BundleError
from patcomp.bundles.components import KindOfComponents
from patcomp.bundles.kind import Component
from patcomp.bundles.speech.folders import class_of, content_of, extractor_of
from patcomp.bundles.streaming.contract import state_problems
from patcomp.errors import Problem, reason_of

if TYPE_CHECKING:
    from patcomp.tasks.entries import Entry

_MIMI, _POCKET, _VIBE_VOICE = "MimiModel", "PocketTTSAudioTokenizerModel", "VibeVoiceAcousticTokenizerModel"
_CODECS = (_MIMI, _POCKET, _VIBE_VOICE)
_PARTS = {
    "MoshiForConditionalGeneration": "audio_encoder",
    "KyutaiSpeechToTextForConditionalGeneration": "codec",
    "CsmForConditionalGeneration": "codec",
}
"""Models that have Mimi as a part, and the name of its configuration without the end."""
_PREFIXES = r"^(audio_encoder|codec_model)[.]"
"""Of the names of its weights."""
_NO_CACHES = "transformers keeps nothing of its convolutions between chunks"
_OTHERS = ("EncodecModel", "DacModel", "XcodecModel", "Xcodec2Model", "NeuCodecModel")


@dataclass(frozen=True)
class StreamingCodec(KindOfComponents):
    """Mimi, also as a part of another model, and the codecs of Pocket TTS and VibeVoice.

    Attributes:
        frames: how many frames a chunk has.
        codebooks: how many of Mimi's codebooks are used; by default all.
    """

    frames: int = 1
    codebooks: int | None = None

    name: ClassVar[str] = "streaming_codec"
    holds: ClassVar[str] = f"{', '.join(_CODECS)} of transformers, or Mimi in {', '.join(_PARTS)}"
    default_dtype: ClassVar[str] = "float32"

    @classmethod
    def fits(cls, folder: Path, config: Mapping[str, Any]) -> bool:
        return class_of(config) in (*_CODECS, *_OTHERS)

    def components(self) -> Sequence[Component]:
        name = self._class
        if name in _OTHERS:
            raise BundleError(
                f"{str(self.folder)!r} holds {name}, which becomes no bundle, because {_NO_CACHES}; export its parts "
                "by FILE.py:FUNCTION, a function that returns a module and its inputs"
            )
        if name not in (*_CODECS, *_PARTS):
            raise BundleError(f"{str(self.folder)!r} holds {name or 'no class that it names'}, and not {self.holds}")
        if type(self.frames) is not int or self.frames < 1:
            raise BundleError(f"frames is {self.frames!r}, and must be how many frames a chunk has, such as 1")
        config = self._config
        for half in ("encoder", "decoder"):
            if getattr(config, f"{half}_config", half) is None:
                raise BundleError(
                    f"{str(self.folder)!r} has no {half}, and a codec has both; give the whole checkpoint"
                )
        if self.codebooks is not None and name in (_POCKET, _VIBE_VOICE):
            raise BundleError(f"{name} has latents and no codebooks; leave codebooks out")
        if self.codebooks is not None:
            least, most = config.num_semantic_quantizers, config.num_quantizers
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
            "frames_per_chunk": self.frames,
        }
        if has_codes:
            told |= {"codebooks": self.codebooks or config.num_quantizers, "codebook_size": config.codebook_size}
        else:
            told["latent_width"] = getattr(config, "latent_dim", None) or config.hidden_size
        return {"config": told}

    def write_files(self, bundle: Path) -> None:
        """There are none: a host needs samples and codes only."""

    @classmethod
    def problems(cls, bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
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
        coded: dict[str, tuple[Sizes, Sequence[str]]]
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
    def _class(self) -> str:
        return class_of(content_of(self.folder / "config.json"))

    @property
    def _config(self) -> Any:
        """The configuration of the codec."""
        from transformers import AutoConfig

        try:
            config = AutoConfig.from_pretrained(self.folder, local_files_only=True)
        except Exception as error:  # the files can make transformers raise anything
            raise BundleError(
                f"transformers cannot read the configuration of {str(self.folder)!r}: {reason_of(error)}"
            ) from error
        return getattr(config, f"{_PARTS[self._class]}_config") if self._class in _PARTS else config

    def _entries(self) -> list[Entry]:
        import torch

        from patcomp.bundles.loading import model_of
        from patcomp.bundles.speech.examples import samples
        from patcomp.bundles.streaming.codecs import halves

        name, config = self._class, self._config
        part = {"config": config, "key_mapping": {_PREFIXES: ""}} if name in _PARTS else {}
        model = model_of(self.folder, "transformers", _MIMI if part else name, self.dtype, **part)
        told = self.metadata()["config"]
        books, shape = told.get("codebooks"), (1, self.frames, told.get("latent_width"))
        if books is None:
            coded = {"latents": torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(model.dtype)}
        else:
            codes = torch.arange(books * self.frames, dtype=torch.int32) % config.codebook_size
            coded = {"codes": codes.view(1, books, self.frames)}
        encode, decode = halves(model, books)
        chunk = samples(told["channels"] * self.frames * told["samples_per_frame"]).view(1, told["channels"], -1)
        (output,) = coded
        return [
            encode.entry("encode", {"audio": chunk.to(model.dtype)}, output),
            decode.entry("decode", coded, "audio"),
        ]


def _samples(config: Any) -> int:
    """The samples of a frame."""
    if ratios := getattr(config, "upsampling_ratios", None):
        return prod(ratios) * int(getattr(config, "latent_stride", 1))
    return prod(config.downsampling_ratios)

"""Codecs of audio that read and write chunks of a recording.

codes = encode(audio)
audio = decode(codes)
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import Tensor
from transformers import Cache

from patcomp_models.bundles.streaming.contexts import Contexts, causal_convolutions, convolutions_with
from patcomp_models.bundles.streaming.streamed import Streamed
from patcomp_models.language.conventions import CACHE


class OfMimi(Streamed):
    """Half of a codec of Mimi's kind: causal convolutions around attention to a sliding window.

    Args:
        model: of transformers.
        half: `"encoder"` or `"decoder"`.
    """

    def __init__(self, model: Any, half: str):
        super().__init__(half, model.config.sliding_window)
        self.model, self.convolutions = model, causal_convolutions(getattr(model, half))

    def computed(self, inputs: tuple[Tensor, ...], contexts: Contexts, past: Cache | None) -> Tensor:
        with convolutions_with(contexts, self.convolutions):
            return self.coded(inputs[0], contexts, past)

    @abstractmethod
    def coded(self, chunk: Tensor, contexts: Contexts, past: Cache | None) -> Tensor:
        """What transformers computes."""


class MimiEncode(OfMimi):
    """Samples, (1, channels, samples), to the codes of their frames, (1, codebooks, frames), int32.

    Args:
        model: `MimiModel`.
        codebooks: how many of them are taken.
    """

    def __init__(self, model: Any, codebooks: int):
        super().__init__(model, "encoder")
        self.codebooks = codebooks

    def coded(self, chunk: Tensor, contexts: Contexts, past: Cache | None) -> Tensor:
        made: Tensor = self.model.encode(
            chunk, num_quantizers=self.codebooks, use_streaming=True, padding_cache=contexts,
            **{f"encoder_{CACHE}": past},
        ).audio_codes  # fmt: skip
        return made.int()


class Decode(OfMimi):
    """Codes, (1, codebooks, frames), or Pocket TTS' latents, (1, frames, width), to the samples of their frames,
    (1, channels, samples)."""

    def __init__(self, model: Any):
        super().__init__(model, "decoder")

    def coded(self, chunk: Tensor, contexts: Contexts, past: Cache | None) -> Tensor:
        made: Tensor = self.model.decode(chunk, use_cache=True, **{f"decoder_{CACHE}": past}).audio_values
        return made


class PocketEncode(OfMimi):
    """Samples, (1, channels, samples), to the latents of their frames, (1, frames, width)."""

    def __init__(self, model: Any):
        super().__init__(model, "encoder")

    def coded(self, chunk: Tensor, contexts: Contexts, past: Cache | None) -> Tensor:
        made: Tensor = self.model.encode(
            chunk, use_streaming=True, padding_cache=contexts, **{f"encoder_{CACHE}": past}
        ).latents
        return made


class VibeVoiceEncode(Streamed):
    """Samples, (1, channels, samples), to the means of the latents of their frames, (1, frames, width)."""

    def __init__(self, model: Any):
        super().__init__("encoder", None)
        self.model = model

    def computed(self, inputs: tuple[Tensor, ...], contexts: Contexts, past: Cache | None) -> Tensor:
        made: Tensor = self.model.encode(inputs[0], padding_cache=contexts, use_cache=True, sample=False).latents
        return made


class VibeVoiceDecode(Streamed):
    """Latents, (1, frames, width), to the samples of their frames, (1, channels, samples)."""

    def __init__(self, model: Any):
        super().__init__("decoder", None)
        self.model = model

    def computed(self, inputs: tuple[Tensor, ...], contexts: Contexts, past: Cache | None) -> Tensor:
        made: Tensor = self.model.decode(inputs[0], padding_cache=contexts, use_cache=True).audio
        return made


def codec_functions(model: Any, codebooks: int | None) -> tuple[Streamed, Streamed]:
    """The two functions of a codec.

    Args:
        model: of transformers.
        codebooks: how many of Mimi's are taken; None of a codec of latents.
    """
    if codebooks is not None:
        return MimiEncode(model, codebooks), Decode(model)
    if hasattr(model.config, "sliding_window"):
        return PocketEncode(model), Decode(model)
    return VibeVoiceEncode(model), VibeVoiceDecode(model)

"""Codecs of audio that read whole recordings, or whole chunks of one: EnCodec and DAC.

codes = encode(audio)
audio = decode(codes)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from patcomp.errors import PatcompError
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.replacing import replaced

_FRAMES, _MOST = 24, 2**16


Paddings = Mapping[nn.Module, int]
"""The elements that convolutions of EnCodec add, as numbers: within an export they are tensors."""


def paddings(model: nn.Module) -> Paddings:
    """Those of a half of EnCodec."""
    return {module: int(module.padding_total) for module in model.modules()  # type: ignore[arg-type]
            if hasattr(module, "_get_extra_padding_for_conv1d")}  # fmt: skip


@contextmanager
def lengths_of_frames(found: Paddings) -> Iterator[None]:
    """Let the convolutions of a half of EnCodec take any number of whole frames.

    They need no padding behind the last element then, which transformers computes from the length of an
    example.
    """
    with ExitStack() as stack:
        for module, padding in found.items():
            own = {"_get_extra_padding_for_conv1d": lambda hidden: 0, "padding_total": padding}
            stack.enter_context(replaced(vars(module), **own))
        yield


class EncodecEncode(nn.Module):
    """Samples, (1, channels, samples), to the codes of their frames, (1, codebooks, frames), int32; and their loudness,
    (1, 1), if the model divides by it."""

    def __init__(self, model: Any):
        super().__init__()
        self.model, self.paddings = model, paddings(model.encoder)

    def forward(self, audio: Tensor) -> Any:
        model = self.model
        with lengths_of_frames(self.paddings):
            if not model.config.normalize:
                return self._coded(audio)
            loudness = audio.mean(1, keepdim=True).pow(2).mean(-1, keepdim=True).sqrt() + 1e-8
            return self._coded(audio / loudness), loudness.view(-1, 1)

    def _coded(self, audio: Tensor) -> Tensor:
        codes: Tensor = self.model.quantizer.encode(self.model.encoder(audio), self.model.config.target_bandwidths[-1])
        return codes.transpose(0, 1).int()


class EncodecDecode(nn.Module):
    """Codes, (1, codebooks, frames), and the loudness, if the model divides by it, to the samples of their frames,
    (1, channels, samples)."""

    def __init__(self, model: Any):
        super().__init__()
        self.model, self.paddings = model, paddings(model.decoder)

    def forward(self, codes: Tensor, scale: Tensor | None = None) -> Tensor:
        with lengths_of_frames(self.paddings):
            made: Tensor = self.model.decoder(self.model.quantizer.decode(codes.transpose(0, 1)))
        return made if scale is None else made * scale.view(-1, 1, 1)


class DacEncode(nn.Module):
    """Samples, (1, 1, samples), to the codes of their frames, (1, codebooks, frames), int32."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, audio: Tensor) -> Tensor:
        codes: Tensor = self.model.encode(audio).audio_codes
        return codes.int()


class DacDecode(nn.Module):
    """Codes, (1, codebooks, frames), to the samples of their frames, (1, 1, samples)."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def forward(self, codes: Tensor) -> Tensor:
        made: Tensor = self.model.decode(audio_codes=codes).audio_values
        return made.unsqueeze(1)


def codec(model: Any, folder: Path) -> list[Entry]:
    """EnCodec and DAC, with all codebooks: recordings of any number of whole frames; or chunks, if the model cuts
    recordings."""
    config, is_encodec = model.config, model.config.model_type == "encodec"
    channels, scale = config.audio_channels if is_encodec else 1, dict[str, Tensor]()
    chunk = config.chunk_length if is_encodec else None
    if chunk is not None and chunk % config.hop_length:
        raise PatcompError(
            f"chunk_length_s of the configuration is {config.chunk_length_s}, which is no whole number of frames of "
            f"{config.hop_length} samples; choose another"
        )
    size = chunk or _FRAMES * config.hop_length
    audio = torch.randn(1, channels, size, generator=torch.Generator().manual_seed(0)).to(model.dtype)
    encode, decode = (EncodecEncode, EncodecDecode) if is_encodec else (DacEncode, DacDecode)
    with torch.no_grad():
        made = encode(model)(audio)
    codes = made if isinstance(made, Tensor) else made[0]
    if not isinstance(made, Tensor):
        scale = {"scale": made[1]}
    least = max(config.kernel_size, config.last_kernel_size) if is_encodec else 2  # frames that a padding reflects
    frames = Dim("frames", min=least, max=_MOST)
    sizes = {"audio": {2: config.hop_length * frames}, "codes": {2: frames}} if chunk is None else {}
    outputs = ("codes", *scale)
    return [
        Entry("encode", encode(model), {"audio": audio}, outputs, {k: v for k, v in sizes.items() if k == "audio"}),
        Entry(
            "decode",
            decode(model),
            {"codes": codes, **scale},
            ("audio",),
            {k: v for k, v in sizes.items() if k == "codes"},
        ),
    ]

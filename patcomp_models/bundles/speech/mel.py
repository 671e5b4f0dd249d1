"""The spectra that models of speech read, from samples, in the graph; equal to what transformers' extractors compute.

The Fourier transform of a window is a product with cosines and sines, so that it is one convolution of the samples.
Spectra are computed in float32, whatever the type of the model, because float16 has no room for their squares.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Power(nn.Module):
    """The power of each frequency in each window: (1, samples) to (1, frequencies, frames).

    Args:
        size: of the transform.
        hop: samples from one window to the next.
        window: (at most size,), in the middle of the transform.
        padding: what is around the samples, `"reflect"` or `"constant"`.
    """

    def __init__(self, size: int, hop: int, window: Tensor, padding: str):
        super().__init__()
        self.reach, self.hop, self.padding = size // 2, hop, padding
        before = (size - len(window)) // 2
        whole = functional.pad(window.double(), (before, size - len(window) - before))
        angles = 2 * torch.pi * torch.arange(self.reach + 1).double()[:, None] * torch.arange(size) / size
        waves = torch.cat([angles.cos(), -angles.sin()]) * whole
        self.register_buffer("waves", waves.float().unsqueeze(1))
        self.waves: Tensor

    def forward(self, samples: Tensor) -> Tensor:
        around = functional.pad(samples.unsqueeze(1), (self.reach, self.reach), self.padding)
        real, imaginary = functional.conv1d(around, self.waves, stride=self.hop).split(self.reach + 1, 1)
        return real * real + imaginary * imaginary


class WhisperFeatures(nn.Module):
    """Samples of 30 seconds, (1, samples), to the spectrum that Whisper reads, (1, bins, frames)."""

    def __init__(self, extractor: Any):
        super().__init__()
        size = extractor.n_fft
        self.power = Power(size, extractor.hop_length, torch.hann_window(size, dtype=torch.float64), "reflect")
        self.register_buffer("bins", torch.from_numpy(extractor.mel_filters).float().T.contiguous())
        self.bins: Tensor

    def forward(self, audio: Tensor) -> Tensor:
        power = self.power(audio)
        spectrum = (self.bins @ power.narrow(2, 0, power.shape[2] - 1)).clamp(min=1e-10).log10()
        return (torch.maximum(spectrum, spectrum.amax((1, 2), keepdim=True) - 8) + 4) / 4


_SMALLEST, _LEAST_DEVIATION = 2**-24, 1e-5
"""What Parakeet's extractor adds before the logarithm, and to the deviation."""


class ParakeetFeatures(nn.Module):
    """Samples, (1, samples) of which `length`, (1,), are a recording, to Parakeet's spectrum, (1, frames, bins), and
    the mask of the frames, (1, frames)."""

    def __init__(self, extractor: Any):
        super().__init__()
        window = torch.hann_window(extractor.win_length, periodic=False, dtype=torch.float64)
        self.power = Power(extractor.n_fft, extractor.hop_length, window, "constant")
        self.hop, self.emphasis = extractor.hop_length, extractor.preemphasis
        self.register_buffer("bins", extractor.mel_filters.float())
        self.bins: Tensor

    def forward(self, audio: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        if self.emphasis is not None:
            emphasised = audio - self.emphasis * functional.pad(audio, (1, 0)).narrow(1, 0, audio.shape[1])
            places = torch.arange(audio.shape[1], dtype=torch.int32)
            audio = emphasised * (places < length).to(audio.dtype)
        spectrum = (self.power(audio).transpose(1, 2) @ self.bins.T + _SMALLEST).log()
        frames = length // self.hop
        mask = torch.arange(spectrum.shape[1], dtype=torch.int32)[None] < frames
        kept, count = mask.unsqueeze(-1).to(spectrum.dtype), frames.to(spectrum.dtype)
        mean = (spectrum * kept).sum(1, keepdim=True) / count
        deviation = (((spectrum - mean).square() * kept).sum(1, keepdim=True) / (count - 1)).sqrt()
        return (spectrum - mean) / (deviation + _LEAST_DEVIATION) * kept, mask


class Normalised(nn.Module):
    """Samples with the mean 0 and the variance 1, as wav2vec2's extractor makes them; or as they are.

    Args:
        extractor: whose `do_normalize` says which.
    """

    def __init__(self, extractor: Any):
        super().__init__()
        self.is_normalised = bool(extractor.do_normalize)

    def forward(self, audio: Tensor) -> Tensor:
        if not self.is_normalised:
            return audio
        return (audio - audio.mean(1, keepdim=True)) / (audio.var(1, correction=0, keepdim=True) + 1e-7).sqrt()


class FromSamples(nn.Module):
    """A model behind the extractor of its features.

    Args:
        features: from samples to what the model reads.
        model: takes it.
        dtype: of the model.
    """

    def __init__(self, features: nn.Module, model: nn.Module, dtype: torch.dtype):
        super().__init__()
        self.features, self.model, self.dtype = features, model, dtype

    def forward(self, audio: Tensor, length: Tensor | None = None) -> Tensor:
        found: Any = self.features(audio) if length is None else self.features(audio, length)
        read, *others = found if isinstance(found, tuple) else (found,)
        result: Tensor = self.model(read.to(self.dtype), *others)
        return result

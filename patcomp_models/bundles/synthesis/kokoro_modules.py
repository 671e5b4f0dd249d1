"""Kokoro (StyleTTS 2, Li et al. 2023, arXiv:2306.07691) as two functions of tensors alone, with the noise as an input.

durations = durations(input_ids, style, speed)
waveform = main(input_ids, style, durations, noise)    # noise for the samples of all frames
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, conv_transpose1d, pad
from transformers.models.albert import modeling_albert

from patcomp.frontend_torch.exporting.over_time import over_time
from patcomp_models.tasks.replacing import no_mask, replaced

STYLE = 128
"""The width of each half of a voice's vector: how it sounds, and how it stresses."""


class Spectrum(nn.Module):
    """What the module of short Fourier transforms of the package computes, in real products.

    Args:
        size: of a window.
        hop: samples from window to window.
    """

    forth: Tensor
    back: Tensor
    energy: Tensor

    def __init__(self, size: int, hop: int):
        super().__init__()
        self.size, self.hop = size, hop
        numbers = torch.arange(size, dtype=torch.float64)
        window = 0.5 - 0.5 * torch.cos(2 * torch.pi * numbers / size)  # of Hann, periodic
        angles = 2 * torch.pi * torch.outer(torch.arange(size // 2 + 1, dtype=torch.float64), numbers) / size
        cosines, sines = angles.cos(), angles.sin()
        sines[[0, -1]] = 0  # exactly: the phase of a real number depends on the sign of its zero
        twice = torch.full((size // 2 + 1, 1), 2.0, dtype=torch.float64)
        twice[[0, -1]] = 1  # the other frequencies stand for their mirrors, too
        self.register_buffer("forth", torch.cat([cosines * window, -sines[1:-1] * window]).float().unsqueeze(1))
        back = torch.cat([cosines * twice, -sines * twice]) * window / size
        self.register_buffer("back", back.float().unsqueeze(1))
        self.register_buffer("energy", window.square().float()[None, None])

    def transform(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Magnitudes and phases, (1, frequencies, windows), of samples, (1, samples).

        The first window is its own mirror, so that its numbers are real and its phases 0 or pi. The package has the
        rounding of a Fourier transform there, which makes -pi of some.
        """
        half = self.size // 2
        parts = conv1d(pad(samples.unsqueeze(1), (half, half), mode="reflect"), self.forth, stride=self.hop)
        real, inner = parts.split([half + 1, half - 1], 1)
        imaginary = pad(inner[:, :, 1:], (1, 0, 1, 1))
        return (real.square() + imaginary.square()).sqrt(), torch.atan2(imaginary, real)

    def inverse(self, magnitude: Tensor, phase: Tensor) -> Tensor:
        """Samples, (1, 1, samples), of magnitudes and phases."""
        parts = torch.cat([magnitude * phase.cos(), magnitude * phase.sin()], 1)
        samples = conv_transpose1d(parts, self.back, stride=self.hop)
        energy = conv_transpose1d(torch.ones_like(magnitude.narrow(1, 0, 1)), self.energy, stride=self.hop)
        length = self.hop * (magnitude.shape[2] - 1)
        return (samples / energy).narrow(2, self.size // 2, length)


def _turned(turn: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
    turn = (turn + more) % 1
    return turn, turn


def harmonics(generator: Any, pitch: Tensor, noise: Tensor) -> Tensor:
    """Sines of a pitch and its multiples with noise, (1, samples, harmonics), as `SineGen` of the package makes them.

    The package counts whole turns, and float32 keeps few digits of their parts after some seconds; here a turn is less
    than 1. Phases that are drawn are left out: they change the first sample only, which the package leaves out as it
    takes samples in the middle of frames.

    Args:
        generator: `SineGen`.
        pitch: (1, frames, 1), in Hz.
        noise: (1, samples, harmonics), of the normal distribution.
    """
    scale = generator.upsample_scale
    multiples = torch.arange(1, generator.dim + 1, dtype=pitch.dtype) * (scale / generator.sampling_rate)
    turns = pitch * multiples  # in each frame
    _, ends = over_time(_turned, [torch.zeros(1, generator.dim)], [(turns % 1).transpose(0, 1)])
    ends = ends.transpose(0, 1)
    shares = ((torch.arange(scale, dtype=pitch.dtype) + 0.5) / scale)[None, None, :, None]
    between = ends[:, :-1, None] + shares * turns[:, 1:, None]  # from the middle of a frame to that of the next one
    before, after = (each.expand(1, scale // 2, generator.dim) for each in (ends[:, :1], ends[:, -1:]))
    phases = torch.cat([before, between.reshape(1, -1, generator.dim), after], 1)
    is_voiced = (pitch > generator.voiced_threshold).to(pitch.dtype).repeat_interleave(scale, 1)
    amount = is_voiced * generator.noise_std + (1 - is_voiced) * generator.sine_amp / 3
    return (2 * torch.pi * (phases - phases.round())).sin() * generator.sine_amp * is_voiced + amount * noise


class _Part(nn.Module):
    """What both functions need.

    Args:
        model: `KModel` of the package.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def _read(self, input_ids: Tensor, stress: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the predictor has of each token, (1, tokens, width); the numbers of tokens; and the empty mask."""
        model, lengths = self.model, torch.full((1,), input_ids.shape[1], dtype=torch.int64)
        mask = torch.zeros(1, input_ids.shape[1], dtype=torch.bool)
        hidden = model.bert_encoder(model.bert(input_ids)).transpose(1, 2)
        return model.predictor.text_encoder(hidden, stress, lengths, mask), lengths, mask

    @contextmanager
    def _of_any_length(self) -> Iterator[None]:
        """Let all modules take a text of any number of tokens, without padding."""
        with ExitStack() as stack:
            stack.enter_context(replaced(vars(modeling_albert), create_bidirectional_mask=no_mask))
            stack.enter_context(replaced(
                vars(nn.utils.rnn), pack_padded_sequence=lambda sequence, *given, **options: sequence,
                pad_packed_sequence=lambda sequence, **options: (sequence, None),
            ))  # fmt: skip
            yield


class KokoroDurations(_Part):
    """The number of frames of each token."""

    def forward(self, input_ids: Tensor, style: Tensor, speed: Tensor) -> Tensor:
        """(1, tokens).

        Args:
            input_ids: (1, tokens).
            style: of a voice, (1, 256).
            speed: (1,); 2 is twice as fast.
        """
        predictor = self.model.predictor
        with self._of_any_length():
            read, _, _ = self._read(input_ids, style[:, STYLE:])
            hidden, _ = predictor.lstm(read)
        chances: Tensor = predictor.duration_proj(hidden).sigmoid()
        return torch.round(chances.sum(-1) / speed).clamp(min=1)


class KokoroSpeech(_Part):
    """The samples of a text."""

    def __init__(self, model: Any):
        super().__init__(model)
        own, scale = model.decoder.generator.stft, model.decoder.generator.m_source.l_sin_gen.upsample_scale
        self.spectrum, self.scale = Spectrum(own.filter_length, own.hop_length), scale

    def forward(self, input_ids: Tensor, style: Tensor, durations: Tensor, noise: Tensor) -> Tensor:
        """(1, samples).

        Args:
            input_ids: (1, tokens).
            style: of a voice, (1, 256).
            durations: (1, tokens), whole numbers.
            noise: (1, samples, harmonics), of the normal distribution, for the frames that the durations have in all.
        """
        model, (sound, stress) = self.model, style.split(STYLE, 1)
        ends = durations.cumsum(1).unsqueeze(1)
        places = torch.arange(noise.shape[1] // (2 * self.scale), dtype=durations.dtype)[None, :, None]
        of_token = ((places < ends) & (places >= ends - durations.unsqueeze(1))).to(noise.dtype).transpose(1, 2)
        with self._of_any_length(), self._given(noise):
            read, lengths, mask = self._read(input_ids, stress)
            pitch, energy = model.predictor.F0Ntrain(read.transpose(1, 2) @ of_token, stress)
            letters = model.text_encoder(input_ids, lengths, mask) @ of_token
            samples: Tensor = model.decoder(letters, pitch, energy, sound)
        return samples.squeeze(1)

    @contextmanager
    def _given(self, noise: Tensor) -> Iterator[None]:
        """Let the generator take noise, and compute its spectra in real numbers."""
        generator = self.model.decoder.generator
        source = generator.m_source

        def sounds(pitch: Tensor) -> tuple[Tensor, None, None]:
            frames = pitch.reshape(1, -1, self.scale)[:, :, :1]
            return source.l_tanh(source.l_linear(harmonics(source.l_sin_gen, frames, noise))), None, None

        own = {"transform": self.spectrum.transform, "inverse": self.spectrum.inverse}
        with replaced(vars(source), forward=sounds), replaced(vars(generator.stft), **own):
            yield

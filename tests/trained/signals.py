"""Inputs like those that the models were trained for, made by arithmetic: sung tones, clicks, mel spectra, a helix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

RATE = 16_000


def sung(pitch: float, seconds: float, formants: tuple[float, ...] = (700, 1200, 2600), rate: int = RATE) -> Tensor:
    """A vowel with vibrato: harmonics of a pitch (Hz) that formants (Hz) raise, (samples)."""
    time = torch.arange(int(seconds * rate)) / rate
    phase = 2 * math.pi * torch.cumsum(pitch * (1 + 0.01 * torch.sin(2 * math.pi * 5.5 * time)), 0) / rate
    made = torch.zeros_like(time)
    for harmonic in range(1, int(rate / 2 / pitch)):
        frequency = harmonic * pitch
        height = sum(1 / (1 + ((frequency - formant) / 120) ** 2) for formant in formants) + 0.02
        made += height * torch.sin(harmonic * phase)
    return 0.3 * made / made.abs().max()


def spoken(seconds: float) -> Tensor:
    """Syllables of sung vowels, with silence between some of them, (samples)."""
    syllables = [(120, (700, 1200, 2600)), (0, ()), (135, (300, 2300, 3000)), (110, (400, 800, 2600)), (0, ())]
    length = seconds / len(syllables)
    silence = torch.zeros(int(length * RATE))
    return torch.cat([sung(pitch, length, formants) if pitch else silence for pitch, formants in syllables])


def clicks(seconds: float, every: float, rate: int) -> Tensor:
    """Short bursts at each beat, (samples)."""
    time = torch.arange(int(seconds * rate)) / rate
    since = time % every
    return torch.exp(-60 * since) * torch.sin(2 * math.pi * 180 * since) + 0.2 * torch.exp(-300 * since)


def bands(wave: Tensor, edges: Tensor, window: int, hop: int, rate: int) -> Tensor:
    """The power of a wave in triangular bands, (frames, bands).

    Args:
        wave: (samples).
        edges: Hz, two more than there are bands.
        window, hop: samples.
        rate: samples a second.
    """
    seen = torch.stft(wave, window, hop, window=torch.hann_window(window), return_complex=True).abs().square()
    frequencies = torch.linspace(0, rate / 2, window // 2 + 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return (torch.minimum(rising, falling).clamp(min=0) @ seen).T


def mel_edges(count: int, rate: int) -> Tensor:
    """The edges of bands that are equal in mel, in Hz."""
    return 700 * (10 ** (torch.linspace(0, 2595 * math.log10(1 + rate / 2 / 700), count + 2) / 2595) - 1)


def helix(residues: int) -> Tensor:
    """The backbone of an alpha helix, (residues, 4, 3) in Å: N, CA, C and O of each residue."""
    places = {"N": (1.55, 0.0, 0.0), "CA": (2.28, 0.49, 0.87), "C": (1.66, 0.99, 1.89), "O": (1.98, 0.97, 3.12)}
    turns = torch.arange(residues) * math.radians(100)
    atoms = []
    for radius, angle, rise in places.values():
        angles, heights = turns + angle, 1.5 * torch.arange(residues) + rise
        atoms.append(torch.stack([radius * torch.cos(angles), radius * torch.sin(angles), heights], 1))
    return torch.stack(atoms, 1)

"""Recordings in files."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from patcomp_models.errors import BundleError


def samples_of(file: str | Path, rate: int) -> np.ndarray:
    """The samples of a WAVE file of whole numbers (PCM), (samples,) of float32 from -1 to 1; channels are averaged.

    Args:
        file: its path.
        rate: samples in a second that the model takes.

    Raises:
        BundleError: the file cannot be read, or has another rate.
    """
    place = Path(file)
    convert = f"`ffmpeg -i {place.name} -ar {rate} -ac 1 -c:a pcm_s16le mono.wav` makes a file that patcomp reads"
    if not place.is_file():
        raise BundleError(f"there is no recording {str(place)!r}")
    try:
        with wave.open(str(place), "rb") as opened:
            channels, width, own_rate = opened.getnchannels(), opened.getsampwidth(), opened.getframerate()
            content = opened.readframes(opened.getnframes())
    except (wave.Error, EOFError) as error:
        reason = str(error) or "it ends too early"
        raise BundleError(f"{str(place)!r} is not a WAVE file of whole numbers: {reason}; {convert}") from None
    if own_rate != rate:
        raise BundleError(f"{str(place)!r} has {own_rate} samples a second, and the model takes {rate}; {convert}")
    content = content[: len(content) // (width * channels) * width * channels]
    if not content:
        raise BundleError(f"{str(place)!r} has no samples")
    return _numbers(content, width).reshape(-1, channels).mean(1, dtype=np.float32)


def _numbers(content: bytes, width: int) -> np.ndarray:
    """Decode samples of `width` bytes each. One-byte samples are unsigned, wider ones are signed."""
    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float32) - 128) / 128
    if width == 3:  # the high bytes of four
        wide = np.zeros((len(content) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
        return (wide.view("<i4")[:, 0] / 2**31).astype(np.float32)
    return (np.frombuffer(content, f"<i{width}") / 2 ** (8 * width - 1)).astype(np.float32)

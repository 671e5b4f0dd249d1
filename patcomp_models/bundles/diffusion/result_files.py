"""What a bundle makes, as a file: an image, a video or a sound."""

from __future__ import annotations

import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from patcomp_models.bundles.diffusion.variants import variant_of
from patcomp_models.checkpoints.json_files import metadata_in

SUFFIXES: Mapping[str, Sequence[str]] = {"image": (".png",), "video": (".gif", ".webp"), "sound": (".wav",)}
"""The files of what pipelines make."""


def suffixes_of(bundle: Path) -> Sequence[str]:
    """The suffixes for a bundle's result file; suffixes of images if the bundle names no pipeline."""
    record = metadata_in(bundle).get("diffusers")
    variant = variant_of(record.get("pipeline")) if isinstance(record, Mapping) else None
    return SUFFIXES[variant.makes if variant else "image"]


def write_result(made: np.ndarray, bundle: Path, file: Path) -> None:
    """Write what `generate_image` made.

    Args:
        made: an image, a video or a sound.
        bundle: that made it; its metadata has the frames a second, or the sampling rate.
        file: a new file, with one of the suffixes of the bundle. A `.gif` has 256 colours, and a `.webp` all.
    """
    block = metadata_in(bundle)["diffusion"]
    if made.ndim == 2:
        _write_sound(made, int(block["sampling_rate"]), file)
        return
    from PIL import Image

    frames = [Image.fromarray(frame) for frame in (made * 255).round().astype(np.uint8).reshape(-1, *made.shape[-3:])]
    options: dict[str, Any] = {}
    if made.ndim == 4:
        options = {"save_all": True, "append_images": frames[1:], "duration": 1000 / block["frame_rate"], "loop": 0}
        options |= {"lossless": True} if file.suffix == ".webp" else {}
    frames[0].save(file, **options)


def _write_sound(made: np.ndarray, rate: int, file: Path) -> None:
    with wave.open(str(file), "wb") as written:
        written.setnchannels(made.shape[0])
        written.setsampwidth(2)
        written.setframerate(rate)
        written.writeframes((made.T.clip(-1, 1) * 32767).round().astype("<i2").tobytes())

"""A prompt with sounds beside pictures, and what the functions of a bundle read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.hearing import SOUND, SoundWindow, recordings_in, samples_of, sound_runs
from patcomp_models.language.vision.images import pixels_of
from patcomp_models.language.vision.packed import Pack
from patcomp_models.language.vision.pictures import prepared_pictures


@dataclass(frozen=True)
class Media:
    """A prompt, and what the functions of a bundle that sees read.

    Attributes:
        tokens: of the prompt, with those of images and sounds.
        pixels: of images, each (1, 3, height, width).
        pack: makes of the features of tiles those of the image tokens, if they are others.
        recordings: the windows of each.
    """

    tokens: list[int]
    pixels: list[np.ndarray]
    pack: Pack | None = None
    recordings: list[list[SoundWindow]] = field(default_factory=list)


def prepared_media(
    folder: Path, metadata: Mapping[str, Any], prompt: Any, images: Sequence[Any], recordings: Sequence[Any]
) -> Media:  # fmt: skip
    """A prompt with sounds, and images if there are any.

    Args:
        folder: of the bundle.
        metadata: of the bundle.
        prompt: a text with the placeholders of the processor; or token ids, with all tokens of images and sounds.
        images: as of `Bundle.generate`; pixels beside token ids.
        recordings: samples beside a text; what the processor made of all recordings beside token ids.

    Raises:
        LanguageModelError: the bundle has no processor for a text, the processor refuses the prompt, or an image or a
            recording does not fit the bundle.
    """
    vision, audio = metadata["vision"], metadata[SOUND]
    if not isinstance(prompt, str):
        if not all(isinstance(each, Mapping) for each in recordings):
            raise LanguageModelError(
                "token ids go with what the processor made of the recordings, and samples with a text"
            )
        tokens, pixels = [int(token) for token in prompt], [pixels_of(each, vision) for each in images]
        made = recordings[0]
    else:
        if PROCESSOR not in vision:
            raise LanguageModelError(
                f"the bundle {str(folder)!r} has no processor, so it takes no recordings beside a text; give token "
                "ids, and what the processor of the model makes of the recordings"
            )
        tokens, pixels, made = prepared_pictures(
            folder, vision, prompt, images, audio=[samples_of(each) for each in recordings]
        )
    return Media(tokens, pixels, recordings=recordings_in(made, audio, len(sound_runs(tokens, audio))))

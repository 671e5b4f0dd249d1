"""A prompt with sounds and videos beside pictures, and what the functions of a bundle read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.hearing import SOUND, SoundWindow, checked_samples, recordings_in, sound_runs
from patcomp_models.language.vision.images import pixels_of
from patcomp_models.language.vision.moments import AS_TILES, VIDEO, VideoMoment, video_options, videos_in
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
        moments: of all videos.
    """

    tokens: list[int]
    pixels: list[np.ndarray]
    pack: Pack | None = None
    recordings: list[list[SoundWindow]] = field(default_factory=list)
    moments: list[VideoMoment] = field(default_factory=list)


def prepared_media(
    folder: Path, metadata: Mapping[str, Any], prompt: Any, images: Sequence[Any], recordings: Sequence[Any],
    videos: Sequence[Any],
) -> Media:  # fmt: skip
    """A prompt with sounds or videos, and images if there are any.

    Args:
        folder: of the bundle.
        metadata: of the bundle.
        prompt: a text with the placeholders of the processor; or token ids, with all tokens of images and sounds.
        images: as of `Bundle.generate`; pixels beside token ids.
        recordings, videos: samples and frames beside a text; what the processor made of all of them beside token ids.

    Raises:
        LanguageModelError: the bundle has no processor for a text, or takes no videos; the processor refuses the
            prompt; or an image, a recording or a video does not fit the bundle.
    """
    vision = metadata["vision"]
    if videos and VIDEO not in vision:
        raise LanguageModelError(
            f"the bundle {str(folder)!r} takes no videos; convert a model that has them with video_shapes="
        )
    has_moments = bool(videos) and not vision[VIDEO].get(AS_TILES)
    if has_moments and images and vision[VIDEO]["video_token_id"] == vision["image_token_id"]:
        raise LanguageModelError(
            "the model has one token for images and videos, and takes one kind of them in a prompt"
        )
    if not isinstance(prompt, str):
        if not all(isinstance(each, Mapping) and "frames" not in each for each in (*recordings, *videos)):
            raise LanguageModelError(
                "token ids go with what the processor made of recordings and videos, and samples and frames with a text"
            )
        tokens, pixels = [int(token) for token in prompt], [pixels_of(each, vision) for each in images]
        made: Mapping[str, Any] = {name: each for given in (*recordings, *videos) for name, each in given.items()}
    else:
        if PROCESSOR not in vision:
            raise LanguageModelError(
                f"the bundle {str(folder)!r} has no processor, so it takes no recordings or videos beside a text; give "
                "token ids, and what the processor of the model makes of them"
            )
        heard = {"audio": [checked_samples(each) for each in recordings]} if recordings else {}
        tokens, pixels, made = prepared_pictures(folder, vision, prompt, images, **heard, **video_options(videos))
    found: list[list[SoundWindow]] = []
    if recordings:
        audio = metadata[SOUND]
        found = recordings_in(made, audio, len(sound_runs(tokens, audio)))
    return Media(tokens, pixels, recordings=found, moments=videos_in(made, vision) if has_moments else [])

"""The moments of a video, as the processor of a checkpoint makes them, for the functions of a bundle."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import FEATURES, PIXELS
from patcomp_models.language.vision.images import opened
from patcomp_models.language.vision.pictures import PATCHES, pixels_of_patches
from patcomp_models.language.vision.shapes import HEIGHT, WIDTH, ImageShape, sides

VIDEO = "video"
"""The key of the block `vision` of `metadata.json` that says how the bundle takes videos."""
FRAMES, VIDEO_SHAPES, AS_TILES = "frames", "shapes", "frames_as_images"
"""Keys of it: how many frames a moment has, the functions, and whether each frame is an image."""
MOMENT = "moment"
"""The input of a function that says which moment of a video it is called for."""
VideoMoment = Mapping[str, np.ndarray]
"""The inputs of a function for a moment."""


def video_function(shape: ImageShape) -> str:
    """The function for moments of a shape."""
    return f"video_{sides(shape)}"


def several_videos(given: Any) -> list[Any]:
    """Videos, from one or a list of several; what a processor made of all of them is one."""
    if given is None:
        return []
    is_list = isinstance(given, list | tuple) and bool(given) and _is_video(given[0])
    return [*given] if is_list else [given]


def _is_video(given: Any) -> bool:
    return isinstance(given, list | tuple | Mapping) or np.ndim(given) == 4


def video_options(videos: Sequence[Any]) -> dict[str, Any]:
    """What a processor takes for videos.

    Args:
        videos: frames, (frames, height, width, 3) of uint8, or a list of pictures; or a dict of them as `frames` and of
            how many a second has as `fps`.

    Raises:
        LanguageModelError: frames are of another form, or not all videos have `fps`.
    """
    if not videos:
        return {}
    told = [each if isinstance(each, Mapping) else {"frames": each} for each in videos]
    frames = [_frames(each.get("frames")) for each in told]
    rates = [each["fps"] for each in told if "fps" in each]
    if not rates:
        return {"videos": frames}
    if len(rates) != len(told):
        raise LanguageModelError("some videos have fps, and others have none; give it for all of them")
    known = [
        {"fps": float(rate), "total_num_frames": len(each), "frames_indices": [*range(len(each))]}
        for rate, each in zip(rates, frames, strict=True)
    ]
    return {"videos": frames, "video_metadata": known}


def _frames(given: Any) -> np.ndarray:
    found = np.stack([np.asarray(opened(each)) for each in given]) if isinstance(given, list | tuple) else given
    if not isinstance(found, np.ndarray) or found.ndim != 4 or found.shape[3] != 3 or found.dtype != np.uint8:
        shown = f"an array of {list(found.shape)} of {found.dtype}" if isinstance(found, np.ndarray) else repr(found)
        raise LanguageModelError(f"a video is frames x height x width x 3 of uint8, or a list of pictures, got {shown}")
    return found


def videos_in(made: Mapping[str, Any], vision: Mapping[str, Any]) -> list[VideoMoment]:
    """The moments of all videos.

    Args:
        made: by the processor.
        vision: the block `vision` of `metadata.json`.

    Raises:
        LanguageModelError: a moment is of no shape of the bundle, or its position cannot ride with its features.
    """
    told, size = vision[VIDEO], int(vision["patch_size"])
    grids = np.asarray(made["video_grid_thw"]).tolist()
    rows = np.asarray(made["pixel_values_videos"], np.float32)
    shapes = {(each[HEIGHT], each[WIDTH]) for each in told[VIDEO_SHAPES].values()}
    moments: list[VideoMoment] = []
    start = 0
    for video, (count, *grid) in enumerate(grids):
        shape = grid[0] * size, grid[1] * size
        if shape not in shapes:
            raise LanguageModelError(
                f"the processor makes frames of {sides(shape)} of a video, and the bundle takes "
                f"{', '.join(map(sides, sorted(shapes)))}; convert the model with video_shapes={sides(shape)!r}"
            )
        for number in range(count):
            part = rows[start : start + math.prod(grid)]
            start += len(part)
            frames = [
                pixels_of_patches(part, grid, size, **vision[PATCHES], moment=moment) for moment in range(told[FRAMES])
            ]
            moments.append({PIXELS: np.concatenate(frames), **_moment(made, told, video, number, count)})
    return moments


def _moment(
    made: Mapping[str, Any], told: Mapping[str, Any], video: int, number: int, count: int
) -> dict[str, np.ndarray]:  # fmt: skip
    """The marks of a moment, of a model with positions in time."""
    if "positions" not in told:
        return {}
    seconds = float(np.asarray(made[told["seconds"]], np.float32)[video]) if told["seconds"] in made else 1.0
    time = np.float32(number) * np.float32(seconds) * np.float32(told["positions"])
    marks = np.array([number, count, np.floor(time) if told["is_whole"] else time], np.float32)
    if (marks.astype(np.float16).astype(np.float32) != marks).any():
        raise LanguageModelError(
            f"moment {number} of {count} has the position {time:g} in time, which float16 has not exactly; give a "
            "shorter video, or fewer frames of it"
        )
    return {MOMENT: marks}


def features_of_videos(
    run: Callable[..., Mapping[str, Any]], moments: Sequence[VideoMoment], wanted: int
) -> np.ndarray:  # fmt: skip
    """The features of moments one behind the other, (1, video tokens, width).

    Args:
        run: runs a function of the asset `vision` on inputs and states, by the function's name.
        moments: from `videos_in`.
        wanted: how many tokens of videos the prompt has.

    Raises:
        LanguageModelError: the moments have another number of tokens.
    """
    made = np.concatenate(
        [np.asarray(run(each, None, video_function(each[PIXELS].shape[2:]))[FEATURES]) for each in moments], 1
    )
    if made.shape[1] != wanted:
        raise LanguageModelError(
            f"the prompt has {wanted} tokens of videos, and the videos have {made.shape[1]}; put the placeholder of "
            "the processor where each video is to be"
        )
    return made

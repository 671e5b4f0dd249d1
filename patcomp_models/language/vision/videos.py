"""Videos of a bundle: functions of the vision tower for one moment of a video, which a host calls for each moment.

    image_features = video_448x672(pixel_values, moment)

A moment is as many frames as a token spans. No tower of these models looks at two moments at once, so that a video may
have any number of them. `moment` has its number, how many moments there are, and how many positions it is behind the
first; models whose processors write the time in front of each moment have no such input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import PIXELS
from patcomp_models.language.vision.moments import FRAMES, MOMENT, VIDEO_SHAPES, video_function
from patcomp_models.language.vision.shapes import HEIGHT, TOKEN_COUNT, WIDTH
from patcomp_models.language.vision.tower import Tower


@dataclass(frozen=True)
class VideoRow:
    """What is particular to the videos of a type.

    Attributes:
        token: the name of the token of videos in the configuration.
        seconds: what the processor calls the seconds of a moment; empty if it tells none.
        rate: how many positions a second or a moment has, from the configuration.
        is_whole: whether the positions of moments are rounded down.
    """

    token: str = "video_token_id"
    seconds: str = ""
    rate: Callable[[Any], float] = lambda config: 1
    is_whole: bool = True


VIDEOS: Mapping[str, VideoRow] = {
    **dict.fromkeys(("qwen2_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), VideoRow()),
    "qwen2_5_vl": VideoRow(
        seconds="second_per_grid_ts", rate=lambda config: getattr(config.vision_config, "tokens_per_second", 1)
    ),
    "qwen2_5_omni_thinker": VideoRow(
        seconds="video_second_per_grid", rate=lambda config: config.position_id_per_seconds
    ),
    "qwen3_omni_moe_thinker": VideoRow(
        seconds="video_second_per_grid", rate=lambda config: config.position_id_per_seconds, is_whole=False
    ),
    **dict.fromkeys(("glm4v", "glm46v", "glmga", "glm4v_moe"), VideoRow("image_token_id")),
}  # fmt: skip
"""By `model_type`, the models whose tower has a function for a moment."""
AS_IMAGES = ("internvl", "smolvlm")
"""The models whose processors make an image of each frame."""


def check_videos(kind: str) -> VideoRow:
    """The row of a type.

    Raises:
        LanguageModelError: it has no functions for videos.
    """
    if kind in AS_IMAGES:
        raise LanguageModelError(f"video_shapes: {kind} reads the frames of a video as images; leave it out")
    if kind not in VIDEOS:
        raise LanguageModelError(
            f"video_shapes: the videos of {kind} are not built; these have functions for videos: {', '.join(VIDEOS)}"
        )
    return VIDEOS[kind]


def moment_frames(tower: Tower) -> int:
    """How many frames a moment has."""
    return int(getattr(tower.vision, "temporal_patch_size", 1))


def moment_inputs(tower: Tower) -> dict[str, Tensor]:
    """An example of a moment, by the names of inputs."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randn(moment_frames(tower), 3, *tower.shape, generator=generator)
    return {PIXELS: pixels, **({MOMENT: torch.tensor([0.0, 1.0, 0.0])} if tower.is_timed else {})}


def moment_given(tower: Tower, row: VideoRow, tokens: Tensor) -> dict[str, Any]:
    """The arguments with which the model itself takes the example, a video of one moment."""
    given = tower.given(moment_inputs(tower)[PIXELS], tokens)
    given["pixel_values_videos"], given["video_grid_thw"] = given.pop("pixel_values"), given.pop("image_grid_thw")
    if "mm_token_type_ids" in given:
        given["mm_token_type_ids"] = 2 * (tokens == getattr(tower.model.config, row.token)).int()
    return {**given, **({row.seconds: torch.tensor([1.0])} if row.seconds else {})}


def video_keys(towers: Sequence[Tower], row: VideoRow, config: Any) -> dict[str, Any]:
    """What the block `vision` of `metadata.json` says of videos."""
    shapes = {
        video_function(each.shape): {HEIGHT: each.shape[0], WIDTH: each.shape[1], TOKEN_COUNT: each.token_count}
        for each in towers
    }
    tower = towers[0]
    timed = {"seconds": row.seconds, "positions": row.rate(config), "is_whole": row.is_whole} if tower.is_timed else {}
    return {"video_token_id": getattr(config, row.token), FRAMES: moment_frames(tower), VIDEO_SHAPES: shapes, **timed}

"""The tracker of SAM 3 for videos, whose parts have private names in transformers."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def attend_by(tracker: Any, name: str) -> None:
    """Let a tracker attend by a registered implementation, from now on."""
    tracker.config._attn_implementation = name


def masks_of_frame(tracker: Any, maps: list[Tensor]) -> Any:
    """What a tracker finds in a frame without a prompt.

    Args:
        tracker: `Sam3TrackerVideoModel`.
        maps: features of each level, the last one with the memories.
    """
    several = tracker._use_multimask(False, None)
    return tracker._single_frame_forward(image_embeddings=maps, multimask_output=several)


def pointer_of_mask(tracker: Any, maps: list[Tensor], mask: Tensor) -> Tensor:
    """The pointer to an object of which a mask is given.

    Args:
        tracker: `Sam3TrackerVideoModel`.
        maps: features of each level.
        mask: of the object.
    """
    found: Tensor = tracker._use_mask_as_output(maps[-1], maps[:-1], mask).object_pointer
    return found

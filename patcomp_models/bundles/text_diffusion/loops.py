"""The loops of hosts by their names, with settings of users and of folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

from patcomp_models.bundles.option_types import fits_type, shown_type
from patcomp_models.bundles.text_diffusion.cached_blocks import CachedBlockLoop
from patcomp_models.bundles.text_diffusion.canvas import CanvasLoop
from patcomp_models.bundles.text_diffusion.unmasking import BlockLoop, ScheduleLoop
from patcomp_models.errors import BundleError

Loop = BlockLoop | ScheduleLoop | CachedBlockLoop | CanvasLoop
LOOPS: Mapping[str, type[Loop]] = {
    "blocks": BlockLoop, "schedule": ScheduleLoop, "cached_blocks": CachedBlockLoop, "canvas": CanvasLoop,
}  # fmt: skip
"""By the name in `metadata.json`."""


def loop_of(name: object, settings: Mapping[str, Any], said: str) -> Loop:
    """A loop with settings; those that are not given have the values of the published code.

    Args:
        name: of the loop.
        settings: by the names of its attributes.
        said: what has the settings, for the error.

    Raises:
        BundleError: there is no such loop or setting, or a value is of another type.
    """
    loop = LOOPS.get(name) if isinstance(name, str) else None
    if loop is None:
        raise BundleError(f"the loop of {said} is {name!r}, and must be one of {', '.join(LOOPS)}")
    types = get_type_hints(loop)
    for each, value in settings.items():
        if each not in types:
            raise BundleError(f"{said} has the setting {each!r}; the loop {name!r} has {', '.join(types)}")
        if not fits_type(value, types[each]):
            raise BundleError(f"{each} of {said} is {value!r}, and must be {shown_type(types[each])}")
    return loop(**settings)


def most_tokens(loop: Loop, config: Mapping[str, Any], prompt: int, new: int) -> int:
    """How many tokens a text may get: the prompt and new tokens, in whole blocks or canvases where the loop writes
    such.

    Args:
        loop: with its settings.
        config: the block `config` of `metadata.json`.
        prompt, new: how many tokens are given, and asked for.
    """
    if isinstance(loop, CachedBlockLoop):
        size = max(loop.block_length, 1)
        return -(-(prompt + new) // size) * size
    canvas = config["canvas_length"] if isinstance(loop, CanvasLoop) else 1
    return prompt + -(-new // canvas) * canvas

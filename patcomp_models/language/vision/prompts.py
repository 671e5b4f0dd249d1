"""What stands around an image in a prompt.

The processors of transformers put tokens around those of an image. Apple's package replaces the image token of a chat
template by as many as the image has, and adds nothing, so the template of a bundle has the tokens around it already.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from patcomp.errors import ConversionWarning

PLACEHOLDER, EXPANDED = "image_placeholder", "image_text"
"""Keys of the block `vision` of `metadata.json`, which Apple's package does not read."""
LINES = (
    "the image processor puts a token between the lines of an image, and so does Bundle.generate beside a prompt that "
    "is a text; Apple's engine does not"
)
"""A note about such a processor."""
_TOKEN = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")


@dataclass(frozen=True)
class Around:
    """What a processor puts around the tokens of an image."""

    before: str
    after: str
    placeholder: str = ""
    """What stands for the image in a prompt; empty for the image token."""
    line: str = ""
    """What stands between two lines of an image."""


def image_keys(
    around: Around | None, image_token: int, tokenizer: Any, grid: tuple[int, int] = (1, 1)
) -> dict[str, str]:
    """The text that stands for an image in a prompt, and the one that takes its place; empty if they are the same.

    Args:
        around: what the processor of the architecture puts around an image.
        image_token: the id of the image token.
        tokenizer: of the bundle, or None.
        grid: how many lines the image has, and how many tokens a line has.
    """
    if around is None or tokenizer is None:
        return {}
    known = tokenizer.get_vocab()
    if lacking := [each for each in _TOKEN.findall(around.before + around.line + around.after) if each not in known]:
        warnings.warn(
            f"the tokenizer has no token {lacking[0]!r}, which the image processor of transformers puts around an "
            "image; write what stands around the image into the prompt",
            ConversionWarning,
            stacklevel=3,
        )
        return {}
    image = tokenizer.convert_ids_to_tokens(image_token)
    lines, length = grid
    shown = around.line.join([image * length] * lines) if around.line else image
    return {PLACEHOLDER: around.placeholder or image, EXPANDED: around.before + shown + around.after}


def has_lines(vision: Mapping[str, Any]) -> bool:
    """Whether tokens stand between the lines of an image, which a template cannot have.

    Apple's package replaces each image token of a prompt by as many as an image has.
    """
    return vision.get(EXPANDED, "").count(vision.get(PLACEHOLDER, "?")) > 1


def placed(text: str, vision: Mapping[str, Any]) -> str:
    """A prompt or a template with what stands around an image.

    Args:
        text: with a placeholder for the image, or with all that stands around it.
        vision: the block `vision` of `metadata.json`.
    """
    placeholder, expanded = vision.get(PLACEHOLDER), vision.get(EXPANDED)
    if not placeholder or not expanded or expanded in text:
        return text
    return text.replace(placeholder, expanded)


def with_placed_images(tokenizer: Any, vision: Mapping[str, Any]) -> Any:
    """A tokenizer whose chat templates have what stands around an image; itself if nothing does, or between lines."""
    template = getattr(tokenizer, "chat_template", None)
    if not template or PLACEHOLDER not in vision or has_lines(vision):
        return tokenizer
    made = copy.deepcopy(tokenizer)
    made.chat_template = (
        {name: placed(each, vision) for name, each in template.items()} if isinstance(template, dict) else
        placed(template, vision)
    )  # fmt: skip
    return made

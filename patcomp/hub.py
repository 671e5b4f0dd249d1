"""Names of models that are not files: ids of the Hugging Face hub, and timm's names of architectures.

The packages on top of the compiler load what they name.
"""

from __future__ import annotations

import re
from pathlib import Path

TIMM = "timm:"
"""The prefix of timm's name of an architecture, `timm:resnet18`."""


def is_hub_id(checkpoint: str | Path) -> bool:
    """Whether a name has the form `owner/name`, and there is no folder of the owner's name here."""
    return (
        isinstance(checkpoint, str)
        and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", checkpoint) is not None
        and not Path(checkpoint).parent.exists()
    )

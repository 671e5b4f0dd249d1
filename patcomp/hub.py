"""Ids of the Hugging Face hub. `patcomp.language` and `patcomp.tasks` download what they name."""

from __future__ import annotations

import re
from pathlib import Path


def is_hub_id(checkpoint: str | Path) -> bool:
    """Whether a name has the form `owner/name`, and there is no folder of the owner's name here."""
    return (
        isinstance(checkpoint, str)
        and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", checkpoint) is not None
        and not Path(checkpoint).parent.exists()
    )

"""The memory of a model: that of its weights, whatever its configuration says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from patcomp_models.errors import BundleError

_MOST_FOR_A_BYTE = 16
"""Elements of a model for each byte of its files: twice as many as with weights of one bit."""
_FREE = 1 << 27
"""Elements that a model may have beside its weights, such as tables of positions and weights that are drawn."""


def check_room(folder: Path, make: Callable[[], Any], error: type[BundleError] = BundleError) -> None:
    """Check that a model has about as many elements as the files of its folder, before memory is taken for them.

    Args:
        folder: with the weights.
        make: makes the model by its configuration; it is made without memory.
        error: what is raised.

    Raises:
        BundleError: the configuration asks for much more than the files hold.
    """
    try:
        with torch.device("meta"):
            model = make()
    except Exception:  # loading makes it in the same way, and says what is wrong
        return
    asked = sum(each.numel() for each in (*model.parameters(), *model.buffers()))
    held = sum(each.stat().st_size for each in folder.iterdir() if each.is_file())
    if asked > _MOST_FOR_A_BYTE * held + _FREE:
        raise error(
            f"the configuration in {str(folder)!r} asks for {asked} numbers, and its files have {held} bytes; correct "
            "its config.json"
        )

"""PyTorch's default settings, around what computes with tensors."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext


def plain_settings() -> AbstractContextManager[None]:
    """`patcomp.pytorch.default_settings`; nothing while PyTorch is not imported, because tools for text need none."""
    if "torch" not in sys.modules:
        return nullcontext()
    from patcomp.pytorch import default_settings

    return default_settings()

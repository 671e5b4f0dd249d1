"""The policies of lerobot, for tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from patcomp_models.tasks.robots import part_of_lerobot


def modules_of(kind: str) -> tuple[Any, Any, Any]:
    """The modules of lerobot with a policy, its configuration and the types of this."""
    try:
        policies, configs = (part_of_lerobot(kind, part) for part in ("modeling", "configuration"))
        return policies, configs, import_module("lerobot.configs.types")
    except Exception as error:  # it imports much, which may not fit the installed versions
        pytest.skip(f"lerobot cannot be imported: {error}")

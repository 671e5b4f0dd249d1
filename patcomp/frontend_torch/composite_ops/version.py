"""The version of a composite's definition."""

from __future__ import annotations

from enum import Enum


class Version(Enum):
    """The version that a module class declares, as its attribute `version`."""

    v1 = 1

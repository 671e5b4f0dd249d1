"""Conversions of architectures, and how far their numbers may be off."""

from __future__ import annotations

from functools import cache

from patcomp import AIProgram, TorchConverter
from tests.networks.architectures import build, export
from tests.networks.zoo import Example

TOLERANCE = 1e-4
"""Of the largest output value."""


@cache
def converted(name: str, attention: str) -> tuple[Example, AIProgram]:
    example = build(name, attention)
    return example, TorchConverter().add_exported_program(export(example)).to_coreai()

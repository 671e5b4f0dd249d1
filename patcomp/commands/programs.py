"""The program of whatever the user names: an asset, a text, a report, or a model, which is converted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from patcomp.commands.common import UsageError
from patcomp.commands.models import ModelOptions, convert_model
from patcomp.commands.packages import asset_in
from patcomp.commands.subjects import CONVERTED, MODELS, Subject, subject_of

if TYPE_CHECKING:
    from patcomp.ir.module import IRModule
    from patcomp.targets import Target

Hashed = tuple["IRModule", dict[str, str]]
"""A program, and hashes of the values of its weights by name, if it has them."""


def hashed(module: IRModule) -> Hashed:
    """A program whose weights are in memory."""
    from patcomp.emit.written import hashes_of

    return module, hashes_of(module)


def program_of(
    name: str,
    command: str,
    options: ModelOptions,
    *,
    target: Target | None = None,
    fixed: Mapping[str, int] = MappingProxyType({}),
) -> Hashed:
    """The program of an asset, of the only asset of a bundle, of a text, a report, or a model, which is converted.

    Args:
        name: as the user wrote it.
        command: the name of the command, for messages.
        options: how a model is loaded and exported.
        target: what a model is converted for.
        fixed: sizes of a model's dynamic dimensions.

    Raises:
        UsageError: it is none of these, or options are given that a program that is converted already cannot follow.
        PatcompError: it cannot be read or converted.
    """
    found = subject_of(name, command, (*MODELS, *CONVERTED))
    if found in MODELS:
        return hashed(convert_model(name, command, options, target=target, fixed=fixed).module)
    options.check_unused(name, found)
    if fixed:
        raise UsageError(f"--fix goes with a model, whose sizes are fixed when it is converted; {name} is converted")
    if found is Subject.TEXT:
        from patcomp.commands.opt import parse_file

        return parse_file(name), {}
    if found is Subject.REPORT:
        from patcomp.report import program_in

        return program_in(Path(name)), {}
    from patcomp.emit.reading import read_asset

    return read_asset(asset_in(name, found, command), values=True)

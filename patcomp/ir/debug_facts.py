"""What a debugger shows of a model's nodes: their source lines, their modules, and the names of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SourceLine = tuple[str, int]
"""A file and a line."""


@dataclass(frozen=True)
class NodeFacts:
    """The facts of an FX node."""

    frames: tuple[SourceLine, ...] = ()
    """The calls that led to it, innermost first; files have the paths of the machine that exported the model."""
    modules: tuple[str, ...] = ()
    """The modules that it is in, innermost first: the class with the number of the object, `Linear$2`."""
    names: tuple[tuple[str, ...], ...] = ()
    """The names that each of its results may have in the IR."""
    shapes: tuple[tuple[int | None, ...], ...] = ()
    """The shape of each of its results; None for a dynamic size."""


DebugFacts = Mapping[str, Mapping[str, NodeFacts]]
"""The facts of the nodes of each entry point, by the names of both, in the order of the graphs."""

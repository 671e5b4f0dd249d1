"""The facts of the nodes of an exported program, for debuggers: source lines, modules and the names of values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node

from patcomp.frontend_torch.fx.provenance import Origins, nodes_of
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.frontend_torch.importing.value_names import result_names
from patcomp.ir.debug_facts import NodeFacts, SourceLine

_FRAME = re.compile(r'File "([^"<]+)", line (\d+)')
_PATCOMP = Path(__file__).parents[2]


def debug_facts(item: Staged, *, carried: bool) -> dict[str, NodeFacts]:
    """The facts of the nodes of a program that compute something, by the names that locations in the IR have.

    Args:
        item: the program.
        carried: whether a target may have stored values transposed, under the names of their nodes. A value with equal
            sizes, whose shape does not show it, has then no name.
    """
    graph = item.program.graph
    origins, modules = Origins(graph), _Modules()
    found: dict[str, NodeFacts] = {}
    for node in nodes_of(graph):
        if node.op != "call_function" or str(node.target).startswith("patcomp."):  # marks of regions
            continue
        names: tuple[tuple[str, ...], ...] = ()
        shapes: tuple[tuple[int | None, ...], ...] = ()
        if node.graph is graph:  # the values of nested graphs have names of their own
            value = node.meta.get("val")
            shapes = tuple(map(_shape, value if isinstance(value, list | tuple) else [value]))
            unclear = [carried and _looks_alike_transposed(shape) for shape in shapes]
            known = result_names(node, item.expansions)
            names = tuple(() if skip else each for each, skip in zip(known, unclear, strict=True))
        found[origins[node].node] = NodeFacts(_frames(node), modules.of(node), names, shapes)
    return found


class _Modules:
    """Numbers the modules of each class in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = {}

    def of(self, node: Node) -> tuple[str, ...]:
        """The modules that a node is in, innermost first."""
        stack = node.meta.get("nn_module_stack")
        named = [self._name(*each) for each in stack.values()] if isinstance(stack, dict) else []
        return tuple(reversed(named))

    def _name(self, path: str, kind: Any) -> str:
        name = (kind if isinstance(kind, str) else kind.__qualname__).rpartition(".")[2]
        numbers = self._numbers.setdefault(name, {})
        return f"{name}${numbers.setdefault(path, len(numbers) + 1)}"


def _frames(node: Node) -> tuple[SourceLine, ...]:
    trace = node.meta.get("stack_trace")
    frames = _FRAME.findall(trace) if isinstance(trace, str) else []
    return tuple((file, int(line)) for file, line in reversed(frames) if not Path(file).is_relative_to(_PATCOMP))


def _shape(value: Any) -> tuple[int | None, ...]:
    shape = value.shape if isinstance(value, torch.Tensor) else ()
    return tuple(size if isinstance(size, int) else None for size in shape)


def _looks_alike_transposed(shape: tuple[int | None, ...]) -> bool:
    """Whether a transpose may leave a shape as it is: two sizes beyond 1 are equal, or may be."""
    sizes = [size for size in shape if size != 1]
    return len(sizes) > len(set(sizes)) or (None in sizes and len(sizes) > 1)

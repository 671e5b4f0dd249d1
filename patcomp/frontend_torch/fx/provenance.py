"""Where an FX node comes from: module path and line of the user's source, never as an absolute path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import torch
from torch.fx import Graph, GraphModule, Node

from patcomp.ir.locations import Origin

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_METAL_KERNEL = Path(__file__).parents[1] / "custom" / "metal_kernel.py"
_NOT_THE_MODEL = (str(Path(torch.__file__).parent) + os.sep, str(_METAL_KERNEL))


def _origin_of(node: Node) -> Origin:
    """The origin of a node, as far as export recorded one."""
    # other tools may have changed what export recorded
    stack, trace = node.meta.get("nn_module_stack"), node.meta.get("stack_trace")
    last = next(reversed(stack.values()), None) if isinstance(stack, dict) else None
    path = _module_path(str(last[0])) if isinstance(last, tuple) and last else ""
    return Origin(node.name, path, *_user_frame(trace if isinstance(trace, str) else ""))


class Origins(dict[Node, Origin]):
    """The origins of the nodes of a graph, and of the graphs nested in it; each is computed when it is first asked for.

    The names of nested nodes start with the attribute of their graph, so that all names differ. Facts that export did
    not record about them are taken from the operator of their graph.
    """

    def __init__(self, graph: Graph):
        super().__init__()
        self._holders: dict[Graph, Node] = {}
        """The attribute that holds each nested graph."""
        self._nest(graph)

    def _nest(self, graph: Graph) -> None:
        for node in graph.find_nodes(op="get_attr"):
            if (inside := nested_graph(node)) is not None:
                self._holders[inside.graph] = node
                self._nest(inside.graph)

    def __missing__(self, node: Node) -> Origin:
        origin = _origin_of(node)
        if (holder := self._holders.get(node.graph)) is not None:
            outer = self[holder]
            place = origin if origin.file else outer
            path = origin.module_path or outer.module_path
            origin = Origin(f"{outer.node}_{node.name}", path, place.file, place.line)
        self[node] = origin
        return origin


def nodes_of(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph; those of a nested graph follow the attribute that holds it."""
    for node in graph.nodes:
        yield node
        if node.op == "get_attr" and (inside := nested_graph(node)) is not None:
            yield from nodes_of(inside.graph)


def nested_graph(node: Node) -> GraphModule | None:
    """The graph of a node that is an operand of control flow."""
    owner = node.graph.owning_module
    held = getattr(owner, str(node.target), None) if node.op == "get_attr" else None
    return held if isinstance(held, GraphModule) else None


def modules_of(node: Node) -> tuple[str, ...]:
    """The paths of the modules that a node is in, outermost first, without the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = (_module_path(str(path)) for path, _ in stack.values())
    return tuple(dict.fromkeys(path for path in paths if path))


def model_class(graph: Graph) -> str:
    """The name of the class of the model that a graph is of; empty if it does not say, or if it is one of patcomp's own
    around somebody else's function."""
    stacks = (node.meta.get("nn_module_stack") for node in graph.nodes)
    kinds = (kind for stack in stacks if stack for path, kind in stack.values() if not _module_path(str(path)))
    kind = next(kinds, "")
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return "" if name.startswith("patcomp") else name.rpartition(".")[2]


@lru_cache(maxsize=4096)
def _module_path(recorded: str) -> str:
    return re.sub(r"\['([^']*)'\]", r".\1", recorded).removeprefix("L.self").lstrip(".")


@lru_cache(maxsize=4096)
def _user_frame(trace: str) -> tuple[str, int]:
    # code that PyTorch generates has names such as "<eval_with_key>.7", which count up from run to run
    frames = [frame for frame in _FRAME.findall(trace) if not frame[0].startswith("<")]
    for name, line in reversed(frames):
        if not name.startswith(_NOT_THE_MODEL):
            return _portable(name), int(line)
    return (_portable(frames[-1][0]), int(frames[-1][1])) if frames else ("", 0)


def _portable(name: str) -> str:
    """A path that means the same wherever the file is: below site-packages, below the outermost package, or bare."""
    path = Path(name)
    for anchor in ("site-packages", "dist-packages"):
        if anchor in path.parts:
            return "/".join(path.parts[path.parts.index(anchor) + 1 :])
    package = path.parent
    while (package / "__init__.py").is_file():
        package = package.parent
    return path.relative_to(package).as_posix()

"""Decomposed graphs that nodes of one kind share, in this process and with later ones.

To record them takes longer than all else of a first conversion, so they are kept in a file of the user's cache folder.
What they depend on decides the name of the file, see `_situation`.
"""

from __future__ import annotations

import hashlib
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.decomposition.kept_texts import KeptTexts
from patcomp.frontend_torch.decomposition.kinds import Kind
from patcomp.frontend_torch.decomposition.written_graphs import key_of, read, written
from patcomp.patterns import RuleSet, Stage
from patcomp.patterns.user_catalogs import module_of
from patcomp.pytorch import FakeTensorMode, OperatorBase, Registrations, registrations
from patcomp.version import __version__
from patterns_catalog import all_rules

_LIMIT = 10_000
"""The number of graphs to hold. A program has far fewer kinds of nodes."""

_NAMES = "names of the ops that rules take"


class SharedGraphs:
    """The graphs of the nodes decomposed so far, by the kinds of the nodes. Threads take turns.

    Args:
        file: the texts of earlier processes.
    """

    def __init__(self, file: KeptTexts | None):
        self._file = file
        self._graphs: dict[Kind, GraphModule | None] = {}
        self._new: dict[str, str] = {}
        self._turn = threading.RLock()  # a decomposition may need the graphs of others

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {} if self._file is None else self._file.read()

    @cached_property
    def _mode(self) -> FakeTensorMode:
        return FakeTensorMode(allow_non_fake_inputs=True, export=True)

    def graph(self, kind: Kind, make: Callable[[], GraphModule | None]) -> GraphModule | None:
        """The graph of a kind of nodes, made if there is none yet. Its errors are those of `make`."""
        with self._turn:
            if kind not in self._graphs:
                if len(self._graphs) >= _LIMIT:
                    self._graphs.clear()
                self._graphs[kind] = self._read(kind, make)
            return self._graphs[kind]

    def _read(self, kind: Kind, make: Callable[[], GraphModule | None]) -> GraphModule | None:
        key = key_of(kind)
        if key in self._texts:
            with suppress(ValueError):
                return read(self._texts[key], self._mode)
        graph = make()
        if self._file is not None:
            with suppress(TypeError):  # such a graph stays in this process
                self._new[key] = written(graph)
        return graph

    def names(self, make: Callable[[], frozenset[str]]) -> frozenset[str]:
        """The names of the ops that rules take, made if they are not known yet."""
        with self._turn:
            if _NAMES not in self._texts:
                self._texts[_NAMES] = self._new[_NAMES] = "\n".join(sorted(make()))
            return frozenset(self._texts[_NAMES].split("\n"))

    def keep(self) -> None:
        """Write what is new into the file."""
        with self._turn:
            new, self._new = self._new, {}
            if self._file is not None and new and len(self._texts) + len(new) < _LIMIT:
                self._file.add(new)
                self._texts.update(new)


def shared_graphs(rules: RuleSet, lowerings: Lowerings) -> SharedGraphs | None:
    """The shared graphs of a catalog; None if a decomposition may read what no `Kind` has."""
    return None if lowerings else _shared_graphs(rules, registrations())


@lru_cache(maxsize=16)
def _shared_graphs(rules: RuleSet, registered: Registrations) -> SharedGraphs | None:
    if _is_foreign(rules, registered):
        return None
    situation = _situation(rules, registered)
    return SharedGraphs(None if situation is None else KeptTexts.of(situation))


def _is_foreign(rules: RuleSet, registered: Registrations) -> bool:
    """Whether there are decompositions that neither patcomp nor PyTorch wrote. They may read anything."""
    if rules is not all_rules():
        declared = rules.stage(Stage.IMPORT)
        if not all(module_of(rule.function).startswith("patterns_catalog.") for rule in declared):
            return True
    # PyTorch's own ops do not become ops of other libraries
    return not all(module_of(function).startswith(("torch.", "patcomp.")) for _, function in _of_pytorch(registered))


_OF_PYTORCH = ("aten::", "prims::")


def _of_pytorch(registered: Registrations) -> Iterator[tuple[OperatorBase, Callable[..., Any]]]:
    """The registered decompositions of PyTorch's own operators."""
    return ((op, function) for op, function in registered.decompositions.items() if op.name().startswith(_OF_PYTORCH))


def _situation(rules: RuleSet, registered: Registrations) -> str | None:
    """A number for all that graphs depend on besides their kind; None if other processes cannot know it.

    These are the versions, the source files of patcomp, the names of what is registered with PyTorch, and the ops of
    the rules. PyTorch's own shape functions are part of its version: it allows to register another one for its own op
    only by force.
    """
    of_pytorch = (each for each in registered.implementations if each.startswith(("aten/", "prims/")))
    implementations = sorted(each for each in of_pytorch if "/FuncTorch" not in each)  # those are for vmap alone
    if any(each.startswith("aten/") and not each.endswith(_SHAPES_AND_DEVICES) for each in implementations):
        return None
    sources = _sources()
    if not sources:
        return None
    found = hashlib.blake2b(digest_size=16)
    for part in (
        [__version__, torch.__version__, str(torch.version.git_version), platform.machine(), platform.system()],
        sources,
        [] if rules is all_rules() else _ops_of(rules),
        sorted(f"{op.name()} {module_of(function)}" for op, function in _of_pytorch(registered)),
        (name for name in registered.composites if name.startswith(_OF_PYTORCH)),
        implementations,
    ):
        found.update(repr(list(part)).encode())
    return found.hexdigest()


_SHAPES_AND_DEVICES = ("/Meta", "/CUDA", "/MPS")
"""The ends of the names of kernels that PyTorch itself registers from Python for its own operators."""


def _ops_of(rules: RuleSet) -> list[str]:
    return [
        *sorted(rules.procedural_ops),
        "",
        *sorted(rules.pattern_ops),
        "",
        *(rule.name for rule in rules.stage(Stage.IMPORT)),
    ]


def _sources() -> list[str]:
    """The source files of patcomp with their sizes and times, as Python tells whether compiled files are current."""
    found = []
    for package in ("patcomp", "patterns_catalog"):
        spec = find_spec(package)
        folder = Path(spec.origin).parent if spec is not None and spec.origin else Path("/nowhere")
        for file in sorted(folder.rglob("*.py")):
            facts = file.stat()
            found.append(f"{package} {file.relative_to(folder)} {facts.st_size} {facts.st_mtime_ns}")
    return found

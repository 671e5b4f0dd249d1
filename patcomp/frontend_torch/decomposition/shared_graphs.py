"""Decomposed graphs that nodes of one kind share, whatever programs they belong to.

A kind is all that a decomposition reads, so no conversion can tell whether another one made a graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache

from torch.fx import GraphModule

from patcomp.frontend_torch.custom.lowerings import Lowerings
from patcomp.frontend_torch.decomposition.kinds import Kind
from patcomp.patterns import DeferredRuleSet, RuleSet, Stage
from patcomp.patterns.user_catalogs import module_of
from patcomp.pytorch import FakeTensorMode, Registrations, registrations
from patterns_catalog import all_rules

_LIMIT = 10_000
"""The number of graphs to hold. A program has far fewer kinds of nodes."""


class SharedGraphs:
    """The graphs of the nodes decomposed so far, by the kinds of the nodes. Threads take turns."""

    def __init__(self) -> None:
        self._graphs: dict[Kind, GraphModule | None] = {}
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, export=True)
        """In which the graphs are made, one after the other."""
        self._turn = threading.RLock()  # a decomposition may need the graphs of others

    def graph(self, kind: Kind, make: Callable[[], GraphModule | None]) -> GraphModule | None:
        """The graph of a kind of nodes, made if there is none yet. Its errors are those of `make`."""
        with self._turn:
            if kind not in self._graphs:
                if len(self._graphs) >= _LIMIT:
                    self._graphs.clear()
                self._graphs[kind] = make()
            return self._graphs[kind]


def shared_graphs(rules: RuleSet, lowerings: Lowerings) -> SharedGraphs | None:
    """The shared graphs of a catalog; None if a decomposition may read facts that a `Kind` does not have."""
    return None if lowerings else _shared_graphs(rules, registrations())


@lru_cache(maxsize=16)
def _shared_graphs(rules: RuleSet, registered: Registrations) -> SharedGraphs | None:
    return None if _is_foreign(rules, registered) else SharedGraphs()


def _is_foreign(rules: RuleSet, registered: Registrations) -> bool:
    """Whether there are decompositions that neither patcomp nor PyTorch wrote. They may read anything."""
    if rules is not all_rules():
        if isinstance(rules, DeferredRuleSet):  # with decompositions of another package
            return True
        own = set(all_rules().stage(Stage.DECOMPOSE))
        if not all(rule in own for rule in rules.stage(Stage.DECOMPOSE)):
            return True
    # PyTorch's own ops do not become ops of other libraries
    functions = (function for op, function in registered.decompositions.items() if op.name().startswith(_OF_PYTORCH))
    return not all(module_of(function).startswith(("torch.", "patcomp.")) for function in functions)


_OF_PYTORCH = ("aten::", "prims::")

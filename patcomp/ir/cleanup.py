"""Remove dead ops, and ops that repeat the computation of an earlier op.

Regions have one block, so the users of an op follow it. One walk from the last op to the first finds every dead op,
and one from the first to the last every repeated one.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Any

from patcomp.ir.constants import is_constant
from patcomp.ir.module import IRModule, callee, graph_name
from patcomp.ir.region import RegionOp
from patcomp.ir.xdsl import (
    Block,
    DenseIntOrFPElementsAttr,
    IsolatedFromAbove,
    IsTerminator,
    Operation,
    Pure,
    Region,
    SymbolOpInterface,
    ops_inside,
    replace_uses,
)

_REMOVABLE: dict[type[Operation], bool] = {}


def is_removable(op: Operation) -> bool:
    """Whether an op can be removed if its results have no uses; its class says so."""
    kind = type(op)
    if kind not in _REMOVABLE:
        needed = kind.has_trait(IsTerminator) or kind.has_trait(SymbolOpInterface)
        _REMOVABLE[kind] = kind.has_trait(Pure) and not needed
    return _REMOVABLE[kind]


def pure_graphs(module: IRModule, called: Container[str]) -> set[str]:
    """The symbols of the called graphs that only compute: calls of them can be removed and merged like ops."""
    graphs = {name: graph for graph in module.graphs if (name := graph_name(graph)) in called}
    found: set[str] = set()
    left = set(graphs)
    while ready := {symbol for symbol in left if _only_computes(graphs[symbol], found)}:
        found |= ready
        left -= ready
    return found


def _only_computes(graph: Operation, pure: Container[str]) -> bool:
    return all(can_go(op, pure) or op.has_trait(IsTerminator) for op in ops_inside(graph))


def can_go(op: Operation, pure: Container[str]) -> bool:
    """Whether an op only computes, so that it can be removed, merged with an equal one, or moved.

    Args:
        pure: the graphs whose calls can be removed, as `pure_graphs` finds them.
    """
    return is_removable(op) or (op.name == "coreai.invoke" and callee(op) in pure)


def remove_dead_ops(graph: Operation, pure: Container[str] = ()) -> int:
    """Remove the ops inside a graph whose results have no uses. Return how many ops are gone, nested ones included.

    Args:
        graph: the graph.
        pure: the graphs whose calls can be removed, as `pure_graphs` finds them.
    """
    return sum(_remove_dead(region, pure) for region in graph.regions)


def _remove_dead(region: Region, pure: Container[str]) -> int:
    removed = 0
    for block in region.blocks:
        op = block.last_op
        while op is not None:
            before = op.prev_op
            if can_go(op, pure) and _is_unused(op):
                removed += _erase(op)
            else:
                for inner in op.regions:
                    removed += _remove_dead(inner, pure)
            op = before
    return removed


def merge_equal_ops(graph: Operation, pure: Container[str] = ()) -> int:
    """Let one op stand for all equal ones inside a graph, and remove unused ops on the way. Return how many ops are
    gone, nested ones included.

    Args:
        graph: the graph.
        pure: the graphs whose calls can be merged, as `pure_graphs` finds them.
    """
    return sum(_merge(region.block, pure, {}) for region in graph.regions)


def _merge(block: Block, pure: Container[str], known: dict[Any, tuple[Operation, ...]]) -> int:
    """Merge the equal ops of a block.

    Args:
        block: the block.
        pure: the graphs whose calls can be merged.
        known: the ops whose results the block can use, by their key; those of the block are added.
    """
    removed = 0
    for op in block.ops:
        for region in op.regions:
            removed += _merge(region.block, pure, {} if op.has_trait(IsolatedFromAbove) else dict(known))
        if not can_go(op, pure):
            continue
        if _is_unused(op):
            removed += _erase(op)
            continue
        key = _key(op)
        candidates = known.get(key, ())
        same = next((other for other in candidates if _are_equal(op, other)), None)
        if same is None:
            known[key] = (*candidates, op)
            continue
        for result, kept in zip(op.results, same.results, strict=True):
            replace_uses(result, kept)
        removed += _erase(op)
    return removed


def _key(op: Operation) -> Any:
    """A key that equal ops share, and few others."""
    if is_constant(op):
        value = op.properties["value"]
        return type(op), value.data if isinstance(value, DenseIntOrFPElementsAttr) else value
    return type(op), *op.operands


def _are_equal(op: Operation, other: Operation) -> bool:
    """Whether two ops of one class with the same operands compute the same."""
    return (
        op.properties == other.properties
        and op.attributes == other.attributes
        and op.result_types == other.result_types
        and all(
            region.is_structurally_equivalent(others)
            for region, others in zip(op.regions, other.regions, strict=True)
        )
    )  # fmt: skip


def called_graphs(module: IRModule) -> set[str]:
    """The symbols of all called graphs, and of all bodies shared by composites."""
    found = set()
    for op in ops_inside(module.op):
        if op.name == "coreai.invoke":
            found.add(callee(op))
        elif isinstance(op, RegionOp) and op.graph is not None:
            found.add(op.graph.string_value())
    return found


def keep_reached(module: IRModule, entries: Collection[str]) -> None:
    """Remove the graphs that no chain of calls reaches from some graphs."""
    calls, reached = module.calls(), set(entries)
    new = reached
    while new:
        new = set().union(*(calls[name] for name in new)) - reached
        reached |= new
    for graph in list(module.graphs):
        if graph_name(graph) not in reached:
            graph.detach()
            graph.erase(safe_erase=False)


def remove_uncalled_graphs(module: IRModule, before: Collection[str]) -> int:
    """Remove the private graphs that were called before and are not now. Return how many are gone."""
    if not before:
        return 0
    called = called_graphs(module)
    left = [
        graph
        for graph in module.graphs
        if "priv" in graph.properties and graph_name(graph) in before and graph_name(graph) not in called
    ]
    for graph in left:
        graph.detach()
        graph.erase()
    return len(left) + (remove_uncalled_graphs(module, before) if left else 0)


def _is_unused(op: Operation) -> bool:
    return all(result.first_use is None for result in op.results)


def _erase(op: Operation) -> int:
    """Erase an op. Return the number of ops that are gone."""
    count = 1 + (len(ops_inside(op)) if op.regions else 0)
    op.detach()
    op.erase()
    return count

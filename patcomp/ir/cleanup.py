"""Remove ops that nothing needs: dead ones, and those that compute what an earlier op has computed.

Regions have one block, so the users of an op follow it. One walk from the last op to the first finds every dead op,
and one from the first to the last every repeated one.
"""

from __future__ import annotations

from typing import Any

from patcomp.ir.constants import is_constant
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


def remove_dead_ops(graph: Operation) -> int:
    """Remove the ops inside a graph whose results have no uses. Return how many ops are gone, nested ones included."""
    return sum(_remove_dead(region) for region in graph.regions)


def _remove_dead(region: Region) -> int:
    removed = 0
    for block in region.blocks:
        op = block.last_op
        while op is not None:
            before = op.prev_op
            if is_removable(op) and _is_unused(op):
                removed += _erase(op)
            else:
                for inner in op.regions:
                    removed += _remove_dead(inner)
            op = before
    return removed


def merge_equal_ops(graph: Operation) -> int:
    """Let one op stand for all equal ones inside a graph, and remove unused ops on the way. Return how many ops are
    gone, nested ones included."""
    return sum(_merge(region.block, {}) for region in graph.regions)


def _merge(block: Block, known: dict[Any, tuple[Operation, ...]]) -> int:
    """Merge the equal ops of a block.

    Args:
        block: the block.
        known: the ops whose results the block can use, by their key; those of the block are added.
    """
    removed = 0
    for op in block.ops:
        for region in op.regions:
            removed += _merge(region.block, {} if op.has_trait(IsolatedFromAbove) else dict(known))
        if not is_removable(op):
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
    """What equal ops have in common, and few others."""
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


def _is_unused(op: Operation) -> bool:
    return all(result.first_use is None for result in op.results)


def _erase(op: Operation) -> int:
    """Erase an op. Return the number of ops that are gone."""
    count = 1 + (len(ops_inside(op)) if op.regions else 0)
    op.detach()
    op.erase()
    return count

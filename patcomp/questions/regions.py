"""How often a program leaves a device and comes back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from patcomp.ir.constants import is_constant
from patcomp.ir.module import IRModule, callee, graph_name
from patcomp.ir.types import TensorType, element_name
from patcomp.ir.xdsl import Operation, ops_inside

INDICES = frozenset({"si32", "ui32", "i1"})
"""The element types of axes, sizes, indices and conditions, which every target takes."""


@dataclass(frozen=True)
class Regions:
    """The least number of regions that a device computes, if some ops run elsewhere."""

    count: int
    borders: tuple[Operation, ...]
    """The ops that run elsewhere between two regions: their results end one, and the next reads them."""

    @classmethod
    def of(cls, graph: Operation, module: IRModule, elsewhere: Collection[Operation]) -> Regions:
        """The regions of a graph.

        Args:
            graph: the graph.
            module: its module.
            elsewhere: the ops that the device does not compute, also those of called graphs.
        """
        leaving = _leaving(module, elsewhere)
        number: dict[Operation, int] = {}
        """The region of an op, or that after which an op runs elsewhere: on no way to it there are more."""
        away: set[Operation] = set()
        borders: dict[Operation, None] = {}
        for op in graph.regions[0].block.ops:
            types = [result.type for result in op.results if isinstance(result.type, TensorType)]
            if is_constant(op) or not types:
                continue
            makers = [operand.owner for operand in op.operands if operand.owner in number]
            if op in elsewhere or (op.name == "coreai.invoke" and callee(op) in leaving):
                away.add(op)
                number[op] = max((number[maker] for maker in makers), default=0)
                continue
            if all(element_name(type_.element_type) in INDICES for type_ in types):  # every device computes these
                if makers:
                    last = max(makers, key=lambda maker: (number[maker], maker in away))
                    number[op] = number[last]
                    if last in away:
                        away.add(op)
                continue
            number[op] = max((number[maker] + (maker in away) for maker in makers), default=1)
            between = (maker for maker in makers if maker in away and number[maker] and number[maker] < number[op])
            borders.update(dict.fromkeys(between))
        count = max((number[op] for op in number if op not in away), default=0)
        return cls(count, tuple(borders))


def _leaving(module: IRModule, elsewhere: Collection[Operation]) -> set[str]:
    """The graphs with an op among `elsewhere`, in the graph itself or in a called graph."""
    found = {graph_name(graph) for graph in module.graphs if any(op in elsewhere for op in ops_inside(graph))}
    calls = module.calls()
    while more := {name for name, called in calls.items() if called & found} - found:
        found |= more
    return found

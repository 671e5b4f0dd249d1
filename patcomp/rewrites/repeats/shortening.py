"""Take equal layers out of an imported program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from patcomp.ir.constants import hidden_weight, is_constant
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.types import TensorType
from patcomp.ir.xdsl import Attribute, Block, LocationAttr, OpResult
from patcomp.rewrites.repeats.layers import Layers, find_layers


@dataclass(frozen=True)
class Weight:
    """A constant of one layer: what the imported program says of it."""

    attribute: Attribute
    name: str | None
    location: LocationAttr
    rank: int
    """Its place among the constants of the graph."""


@dataclass
class Removed:
    """What is needed to put layers back into a graph."""

    graph: str
    count: int
    """The number of layers, with those that were kept."""
    kept: Sequence[int]
    """The layers that were kept."""
    weights: Sequence[Sequence[Weight]]
    """The weights of each layer."""
    names: Sequence[Sequence[str | None]]
    """The names of the results of each layer."""
    locations: Sequence[Sequence[LocationAttr]]
    """The locations of the ops of each layer."""
    hidden: dict[Attribute, tuple[int, int]] = field(default_factory=dict)
    """The layer, counted among the kept ones, and the number of the weight of each attribute without values."""


@dataclass
class Shortened:
    """A module from which layers were taken."""

    module: IRModule
    removed: list[Removed] = field(default_factory=list)
    hidden: int = 0
    """The number of weights without values."""

    @property
    def layers(self) -> int:
        """How many layers were taken out."""
        return sum(each.count - len(each.kept) for each in self.removed)


def shorten(module: IRModule, kept: int) -> Shortened | None:
    """Take equal layers out of the graphs of an imported module, in place; None if nothing repeats.

    Args:
        module: the imported module.
        kept: how many layers of each sequence of equal ones to leave in, at least three: the last, and those before the
            removed ones. What the two before these become is compared.
    """
    result = Shortened(module)
    for graph in module.graphs:
        block = graph.regions[0].block
        for layers in find_layers(graph, kept):
            result.removed.append(_remember(graph_name(graph), block, layers, kept))
            _take_out(layers, kept)
            _hide(layers, result)
    return result if result.removed else None


def _remember(name: str, block: Block, layers: Layers, kept: int) -> Removed:
    ranks = {op: rank for rank, op in enumerate(op for op in block.ops if is_constant(op))}
    return Removed(
        name,
        layers.count,
        layers.kept(kept),
        [
            [Weight(op.properties["value"], op.results[0].name_hint, op.location, ranks[op]) for op in weights]
            for weights in layers.weights
        ],
        [[result.name_hint for op in ops for result in op.results] for ops in layers.ops],
        [[op.location for op in ops] for ops in layers.ops],
    )


def _take_out(layers: Layers, kept: int) -> None:
    """Let the last layer use what the one before the removed ones makes, and erase these."""
    given = dict(zip(layers.ops[-2], layers.ops[kept - 2], strict=True))
    for op in layers.ops[-1]:
        for index, operand in enumerate(op.operands):
            if isinstance(operand, OpResult) and operand.op in given:
                op.operands[index] = given[operand.op].results[operand.index]
    for number in reversed(range(kept - 1, layers.count - 1)):
        for op in (*reversed(layers.ops[number]), *layers.weights[number]):
            op.detach()
            op.erase()


def _hide(layers: Layers, result: Shortened) -> None:
    """Give the weights of the kept layers attributes without values."""
    removed = result.removed[-1]
    for place, number in enumerate(removed.kept):
        for slot, op in enumerate(layers.weights[number]):
            type_ = op.results[0].type
            assert isinstance(type_, TensorType)
            result.hidden += 1
            attribute = hidden_weight(result.hidden, type_)
            removed.hidden[attribute] = (place, slot)
            op.properties["value"] = attribute

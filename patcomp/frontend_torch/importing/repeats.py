"""Repeats: layers of a model that differ in their weights only, found in the FX graph.

A repeat is a run of nodes that is the same every `period` nodes: the same operators, arguments and types; inputs that
are inside the run, or as far back, or the same node for all, or a weight of equal type. Nothing is read from the names
of modules, so that any model's layers are found.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from patcomp.frontend_torch.externalization.markers import is_marker
from patcomp.frontend_torch.fx.dtypes import has_values
from patcomp.frontend_torch.importing.staged import Staged
from patcomp.rewrites.repetition import left_out

LEAST = 32
"""The number of nodes that a repeat must leave out."""
SHARE = 0.2
"""The share of a program's nodes that its repeats must leave out together, for less than that costs as much."""
_CANDIDATES = 4
"""How many periods are tried."""


@dataclass(frozen=True)
class Repeat:
    """Equal layers that follow one another."""

    layers: Sequence[Sequence[Node]]
    """The nodes of each layer."""
    weights: Sequence[Sequence[Node]]
    """The placeholders of the weights of each layer, in the order of their first readers."""

    @property
    def left_out(self) -> range:
        """The layers that are not converted."""
        return left_out(len(self.layers))


def repeats_of(staged: Staged) -> list[Repeat]:
    """The repeats of a program; none overlaps another one."""
    calls = [node for node in staged.program.graph.nodes if node.op == "call_function"]
    if len(calls) < 3 * LEAST or staged.compressed or any(map(is_marker, calls)):
        return []
    found = list(_Search(staged, calls).found())
    saved = sum(len(repeat.left_out) * len(repeat.layers[0]) for repeat in found)
    return found if saved >= SHARE * len(calls) else []


class _Search:
    def __init__(self, staged: Staged, calls: Sequence[Node]):
        self.staged, self.calls = staged, calls
        self.position = {node: index for index, node in enumerate(calls)}
        self.weights = {
            node: value
            for node in staged.program.graph.nodes
            if node.op == "placeholder" and (value := staged.signature.constants.get(node.name)) is not None
        }
        numbers: dict[Any, int] = {}
        self.kinds = [
            numbers.setdefault((node.target, len(node.args), _type_of(node.meta.get("val"))), len(numbers))
            for node in calls
        ]

    def found(self) -> Iterator[Repeat]:
        free = [(0, len(self.calls))]
        while free:
            start, stop = free.pop()
            best = max(self.candidates(start, stop), key=lambda run: run[1] - run[0], default=None)
            if best is None:
                continue
            first, last, period = best
            if (repeat := self.repeat(first, last, period)) is not None:
                yield repeat
            free += [(start, first), (last, stop)]

    def candidates(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Runs of nodes that are the same every `period` nodes, as (first, end, period), of at least four layers."""
        latest: dict[int, int] = {}
        votes: Counter[int] = Counter()
        for index in range(start, stop):
            if (before := latest.get(self.kinds[index])) is not None:
                votes[index - before] += index - before
            latest[self.kinds[index]] = index
        for period, _ in votes.most_common(_CANDIDATES):
            if 4 * period > stop - start:
                continue
            alike = [self.is_repeated(index, period) for index in range(start, stop - period)]
            first = start
            for same, run in itertools.groupby(alike):
                length = len(list(run))
                if same and length >= 3 * period and length - 2 * period >= LEAST:
                    yield first, first + length + period, period
                    if 2 * length > stop - start:
                        return
                first += length

    def is_repeated(self, index: int, period: int) -> bool:
        """Whether the node a period later is the same, one layer on."""
        if self.kinds[index] != self.kinds[index + period]:
            return False
        one, other = self.calls[index], self.calls[index + period]
        expansions = self.staged.expansions
        return (
            expansions.get(one) is expansions.get(other)
            and self.is_alike(one.args, other.args, period)
            and self.is_alike(one.kwargs, other.kwargs, period)
        )

    def is_alike(self, one: Any, other: Any, period: int) -> bool:
        """Whether an argument is the same for the next layer."""
        if type(one) is not type(other):
            return False
        if isinstance(one, Node):
            if one is other:
                return True
            if one in self.weights:
                return other in self.weights and _type_of(one.meta["val"]) == _type_of(other.meta["val"])
            place = self.position.get(one)
            return place is not None and self.position.get(other) == place + period
        if isinstance(one, list | tuple):
            pairs = zip(one, other, strict=False)
            return len(one) == len(other) and all(self.is_alike(*pair, period) for pair in pairs)
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(self.is_alike(one[key], other[key], period) for key in one)
        return one is other or repr(one) == repr(other)  # 0.0 is not -0.0

    def repeat(self, first: int, last: int, period: int) -> Repeat | None:
        """The layers in a run, cut where the fewest values pass; None if some value or weight belongs to no layer."""
        count = (last - first) // period
        start = min(range(first, last - count * period + 1), key=lambda at: (self._passing(at, first), at))
        layers = [self.calls[start + each * period : start + (each + 1) * period] for each in range(count)]
        if not all(self._is_apart(number, layer, start, count) for number, layer in enumerate(layers)):
            return None
        weights = self._weights_of(layers)
        return None if weights is None else Repeat(layers, weights)

    def _is_apart(self, number: int, layer: Sequence[Node], start: int, count: int) -> bool:
        """Whether a layer reads values of itself, the layer before and from in front of the repeat, and is read by
        itself and the next layer. Whole numbers may not pass, because their ranges may grow from layer to layer."""
        period = len(layer)
        begin, end = start + number * period, start + (number + 1) * period
        for node in layer:
            for source in node.all_input_nodes:
                if start <= self.position.get(source, -1) < begin - period:
                    return False
            for user in node.users if number < count - 1 else ():
                place = self.position.get(user)
                if place is None or place >= end + period or (place >= end and not _is_float(node.meta.get("val"))):
                    return False
        return True

    def _passing(self, at: int, first: int) -> int:
        """How many values of the run pass a cut."""
        return sum(
            any(self.position.get(user, at) >= at for user in self.calls[index].users) for index in range(first, at)
        )

    def _weights_of(self, layers: Sequence[Sequence[Node]]) -> list[list[Node]] | None:
        """The weights of each layer; None if they are not one for one, without values, or somebody else reads them."""
        found: list[dict[Node, int]] = [{} for _ in layers]
        for nodes in zip(*layers, strict=True):
            for sources in zip(*map(_inputs, nodes), strict=True):
                if sources[0] not in self.weights or sources[0] is sources[1]:
                    continue
                if len({own.setdefault(source, len(own)) for own, source in zip(found, sources, strict=True)}) > 1:
                    return None
        for own, layer in zip(found, layers, strict=True):
            inside = set(layer)
            tensors = [self.weights[weight][1] for weight in own]
            if any(tensor.is_complex() or not has_values(tensor) for tensor in tensors):
                return None
            if not all(inside.issuperset(weight.users) for weight in own):
                return None
        return [list(own) for own in found]


def _inputs(node: Node) -> list[Node]:
    """The nodes among the arguments of a node, as often as they occur."""
    found: list[Node] = []
    stack: list[Any] = [node.kwargs, node.args]
    while stack:
        item = stack.pop()
        if isinstance(item, Node):
            found.append(item)
        elif isinstance(item, list | tuple):
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
    return found


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _type_of(value: Any) -> Any:
    """What the import reads of a recorded value."""
    if isinstance(value, torch.Tensor):
        sizes = (*value.shape, *value.stride())
        return value.dtype, value.dim(), tuple([size if type(size) is int else str(size) for size in sizes])
    if isinstance(value, list | tuple):
        return tuple(map(_type_of, value))
    return type(value), str(value)

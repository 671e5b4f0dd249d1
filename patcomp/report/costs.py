"""Where the bytes and the work of a program are: its weights, its multiply-adds, and the tensors between its ops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from patcomp.ir.constants import is_constant, weight_key
from patcomp.ir.module import IRModule, callee, graph_name
from patcomp.ir.traits import View
from patcomp.ir.types import BIT_WIDTHS, TensorType, element_name, shape_of, storage_bytes
from patcomp.ir.work import multiply_adds
from patcomp.ir.xdsl import Attribute, Block, Operation, SSAValue, ops_inside

_Place = list[int]
"""An op as `[number of its graph, number in its graph]`."""


class OpNumbers:
    """The numbers by which the page names the ops of a module, also of a copy of it."""

    def __init__(self, module: IRModule) -> None:
        self._of = {
            op: [index, number]
            for index, graph in enumerate(module.graphs)
            for number, op in enumerate(ops_inside(graph))
        }

    def of(self, op: Operation) -> _Place | None:
        """The place of an op; None of a graph."""
        return self._of.get(op)


def costs_of(module: IRModule) -> dict[str, Any]:
    """The costs of a program as plain data. A dynamic size counts as 1, a loop as one turn.

    The work of a called graph belongs to the call in the entry point.
    """
    numbering, work = OpNumbers(module), _Work(module)
    entries = module.entry_graphs
    return {
        "weights": _weights(module, numbering),
        "work": [
            [numbering.of(op), kind, shapes, count]
            for graph in entries
            for op in ops_inside(graph)
            for (kind, shapes), count in work.of_op(op).items()
        ],
        "memory": [
            [numbering.of(op), size]
            for graph in entries
            for op in ops_inside(graph)
            if (size := sum(map(_bytes_of, op.results))) and not (is_constant(op) or op.has_trait(View))
        ],
        "peaks": [
            [graph_name(graph), peak.bytes, peak.at and numbering.of(peak.at)]
            for graph, peak in ((graph, work.peak(graph.regions[0].block)) for graph in entries)
        ],
        "isOpen": any(None in _shape(value.type) for graph in entries for value in _values(graph)),
    }


def _values(graph: Operation) -> Iterator[SSAValue]:
    yield from graph.regions[0].block.args
    for op in ops_inside(graph):
        yield from op.results


def _shape(type_: Attribute) -> tuple[int | None, ...]:
    return shape_of(type_) if isinstance(type_, TensorType) else ()


def _bytes_of(value: SSAValue) -> int:
    """The bytes of a tensor, whose dynamic sizes count as 1; 0 of a token or handle."""
    if not isinstance(value.type, TensorType) or element_name(value.type.element_type) not in BIT_WIDTHS:
        return 0
    return storage_bytes([1 if size is None else size for size in _shape(value.type)], value.type.element_type)


def _weights(module: IRModule, numbering: OpNumbers) -> list[list[Any]]:
    """Key, type, bytes, number of uses and first reader of each weight, the largest first."""
    uses, types, readers = Counter[str](), dict[str, TensorType](), dict[str, _Place | None]()
    for op in module.op.walk():
        key = weight_key(op.results[0]) if is_constant(op) else None
        if key is None:
            continue
        uses[key] += 1
        types[key] = op.results[0].type  # type: ignore[assignment]
        reader = next((numbering.of(use.operation) for use in op.results[0].uses), None)
        readers[key] = readers.get(key) or reader
    found = [[key, str(types[key]), _stored(module, key, types[key]), uses[key], readers[key]] for key in uses]
    return sorted(found, key=lambda weight: (-weight[2], _by_number(weight[0])))


def _by_number(key: str) -> list[tuple[str, int]]:
    """What sorts keys as their readers count: `layers.2` before `layers.10`."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", key)]


def _stored(module: IRModule, key: str, type_: TensorType) -> int:
    if key in module.blobs:
        return len(module.blobs[key].data)
    return storage_bytes([1 if size is None else size for size in _shape(type_)], type_.element_type)


@dataclass
class _Peak:
    """The most bytes of tensors that are alive at one op, and the op."""

    bytes: int = 0
    at: Operation | None = None


@dataclass
class _Work:
    """What ops cost together with the graphs that they call."""

    module: IRModule
    _graphs: Mapping[str, Operation] = field(init=False)
    _counts: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    _peaks: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._graphs = {graph_name(graph): graph for graph in self.module.graphs}

    def of_op(self, op: Operation) -> Counter[tuple[str, str]]:
        """The multiply-adds of an op by its kind and shapes; of a call, those in its graph."""
        if op.name == "coreai.invoke" and callee(op) in self._graphs:
            return self._of_graph(callee(op))
        count = multiply_adds(op)
        kind = op.name.rpartition(".")[2].removeprefix("broadcasting_")
        return Counter({(kind, " · ".join(_text(value.type) for value in op.operands[:2])): count} if count else {})

    def _of_graph(self, name: str) -> Counter[tuple[str, str]]:
        if name not in self._counts:
            self._counts[name] = Counter()  # a graph that calls itself is not valid, and ends here
            for op in ops_inside(self._graphs[name]):
                self._counts[name].update(self.of_op(op))
        return self._counts[name]

    def peak(self, block: Block) -> _Peak:
        """The most bytes of tensors that are alive at once, if the ops run in their order and views share memory."""
        ops = list(block.ops)
        last: dict[SSAValue, int] = {}
        for number, op in enumerate(ops):
            for inner in (op, *(each for region in op.regions for each in ops_inside(region))):
                last.update((_memory(operand), number) for operand in inner.operands)
        ends: dict[int, list[SSAValue]] = {}
        for value, number in last.items():
            ends.setdefault(number, []).append(value)
        alive: dict[SSAValue, int] = {value: _bytes_of(value) for value in block.args if value in last}
        total, peak = sum(alive.values()), _Peak()
        for number, op in enumerate(ops):
            if not is_constant(op) and not op.has_trait(View):
                made: dict[SSAValue, int] = {result: _bytes_of(result) for result in op.results}
                alive.update(made)
                total += sum(made.values())
            if total + self._inside(op) > peak.bytes:
                peak = _Peak(total + self._inside(op), op)
            unread = [result for result in op.results if result not in last]
            total -= sum(alive.pop(value, 0) for value in (*ends.get(number, ()), *unread))
        return peak

    def _inside(self, op: Operation) -> int:
        """The peak inside an op's regions or called graph, without the arguments; these are counted outside."""
        if op.name == "coreai.invoke" and callee(op) in self._graphs:
            name = callee(op)
            if name not in self._peaks:
                self._peaks[name] = 0
                self._peaks[name] = self._own(self._graphs[name].regions[0].block)
            return self._peaks[name]
        return max((self._own(block) for region in op.regions for block in region.blocks), default=0)

    def _own(self, block: Block) -> int:
        return max(0, self.peak(block).bytes - sum(map(_bytes_of, block.args)))


def _memory(value: SSAValue) -> SSAValue:
    """The value whose memory a view shares."""
    while isinstance(value.owner, Operation) and value.owner.has_trait(View):
        value = value.owner.operands[0]
    return value


def _text(type_: Attribute) -> str:
    return "x".join("?" if size is None else str(size) for size in _shape(type_))

"""Repetition: a layer that a model repeats is converted once, and stamped as often as the model has it.

The import leaves out all layers of a repeat but the first two and the last one. After the stages, this file compares
what became of the second layer with what became of the last one. If they are the same but for their weights, a layer
between two others becomes the same again: the layers that were left out are copies of the second one. If they are not,
or if a stage read the numbers of a layer's weight, the program is converted as a whole.
"""

from __future__ import annotations

import itertools
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from patcomp.errors import Problem
from patcomp.ir.constants import is_constant, uniform_number, was_read
from patcomp.ir.locations import Moved, Origin, origins
from patcomp.ir.module import IRModule
from patcomp.ir.types import is_float, static_shape
from patcomp.ir.xdsl import (
    Attribute,
    Block,
    DenseResourceAttr,
    LocationAttr,
    Operation,
    OpResult,
    Region,
    SSAValue,
    TensorType,
    maker_of,
    ops_inside,
    set_name,
)
from patcomp.patterns.statistics import Record, Statistics


def left_out(count: int) -> range:
    """Of so many equal layers, those that are not converted: all but the first two and the last one."""
    return range(2, count - 1)


class NotRepeatedError(Exception):
    """The layers did not become equal, so that the program has to be converted as a whole."""


@dataclass(frozen=True)
class LayerWeight:
    """A weight of a layer."""

    origin: Origin
    """The placeholder of the weight."""
    attribute: Attribute
    """The constant that the import makes of the weight."""


@dataclass(frozen=True)
class RepeatedLayers:
    """The layers of a repeat, as far as they differ."""

    graph: str
    """The name of the graph."""
    layers: Sequence[Sequence[Origin]]
    """The nodes of each layer."""
    weights: Sequence[Sequence[LayerWeight]]
    """The weights of each layer."""
    placeholders: Mapping[str, int]
    """The place of each constant among the placeholders of the program."""

    @property
    def left_out(self) -> range:
        """The layers that were not converted."""
        return left_out(len(self.layers))

    @property
    def kept(self) -> tuple[int, int, int]:
        """The layers that were converted."""
        return 0, 1, len(self.layers) - 1

    def _origins(self, layer: int) -> list[Origin]:
        return [*self.layers[layer], *(weight.origin for weight in self.weights[layer])]

    def moved(self, layer: int, other: int) -> _Names:
        """The names of one layer in the place of another one's."""
        if (layer, other) not in self._moved:
            places = zip(self._origins(layer), self._origins(other), strict=True)
            self._moved[layer, other] = _Names({place.node: new for place, new in places})
        return self._moved[layer, other]

    @cached_property
    def _moved(self) -> dict[tuple[int, int], _Names]:
        return {}

    @cached_property
    def layer_of(self) -> Mapping[str, int]:
        """The layer of each node and weight that was converted."""
        return {place.node: layer for layer in self.kept for place in self._origins(layer)}

    @cached_property
    def _layers(self) -> dict[LocationAttr, int | None]:
        return {}

    def layer_at(self, location: LocationAttr) -> int | None:
        """The last of the converted layers that an op comes from, by its location; None if it comes from none."""
        if location not in self._layers:
            layers = [self.layer_of.get(origin.node, -1) for origin in origins(location)]
            self._layers[location] = max([layer for layer in layers if layer >= 0], default=None)
        return self._layers[location]

    def missing(self, module: IRModule) -> int:
        """How many ops a module would have more if no layer had been left out."""
        ops = ops_inside(module.graph(self.graph))
        return len(self.left_out) * sum(self.layer_at(op.location) == 1 for op in ops)

    def completed(self, statistics: Statistics) -> None:
        """Add the rewrites of the layers that were left out, which are those of the second layer."""
        added: Counter[str] = Counter()
        for record in [record for record in statistics.records if self.layer_at(record.location) == 1]:
            for layer in self.left_out:
                statistics.records.append(Record(record.rule, self.moved(1, layer).locations[record.location]))
                added[record.rule] += 1
        for rule, count in added.items():
            statistics.rules[rule].rewrites += count


class _Names:
    """The locations and names of one layer, made those of another one."""

    def __init__(self, others: Mapping[str, Origin]):
        self.others = others
        self.locations = Moved(others)
        self._hints: dict[str | None, str | None] = {None: None}

    def hint(self, name: str | None) -> str | None:
        """The name of a value: a node's, which a number or the name of a part may follow."""
        if name not in self._hints:
            assert name is not None
            end = len(name)
            while end > 0 and name[:end] not in self.others:
                end = name.rfind("_", 0, end)
            self._hints[name] = self.others[name[:end]].node + name[end:] if end > 0 else name
        return self._hints[name]


def stamp(module: IRModule, repetition: RepeatedLayers, diagnostics: Iterable[Problem] = ()) -> None:
    """Insert the ops of the layers that were left out.

    Args:
        module: the module after all stages.
        repetition: the layers.
        diagnostics: what the stages warn about.

    Raises:
        NotRepeatedError: the layers did not become equal, or a warning is about one of them.
    """
    _require(not any(problem.node in repetition.layer_of for problem in diagnostics), "a warning is about a layer")
    _Stamp(module, repetition).run()


def _require(condition: object, what: str) -> None:
    if not condition:
        raise NotRepeatedError(what)


class _Stamp:
    def __init__(self, module: IRModule, repetition: RepeatedLayers):
        self.repetition = repetition
        self.read = module.blobs.read
        self.block = module.graph(repetition.graph).regions[0].block
        self.last = len(repetition.layers) - 1
        self.constants = [op for op in self.block.ops if is_constant(op)]
        self.weights = self._weights()
        self.ops: dict[int | None, list[Operation]] = {}
        """The ops of each layer, without its weights."""
        for op in self.block.ops:
            if op not in self.weights:
                self.ops.setdefault(repetition.layer_at(op.location), []).append(op)

    def run(self) -> None:
        first, second = self.ops.get(1, []), self.ops.get(self.last, [])
        _require(first and len(first) == len(second), "the layers have different numbers of ops")
        in_order = [*first, *second]
        _require(
            all(op.next_op is other for op, other in itertools.pairwise(in_order)), "there are ops between the layers"
        )
        self._check_weights()
        places = self._places()
        comparison = _Comparison(self)
        for op, other in zip(first, second, strict=True):
            comparison.compare(op, other)
        inside = set(in_order)
        for op in (*first, *(op for op, (layer, _) in self.weights.items() if layer == 1)):
            for use in (use for result in op.results for use in result.uses):
                _require(
                    self.block.find_ancestor_op_in_block(use.operation) in inside, "a value of a layer is read outside"
                )
        latest: dict[SSAValue, SSAValue] = {value: value for op in first for value in op.results}
        for layer in self.repetition.left_out:
            names = self.repetition.moved(1, layer)
            values = {value: latest[passed] for value, passed in comparison.passed.items()}
            values |= self._weights_for(layer, names, places)
            for op in first:
                self.block.insert_op_before(_copied(op, values, names), second[0])
            latest = {value: values[value] for value in latest}
        for op in (inner for outer in second for inner in outer.walk()):
            op.operands = [latest.get(operand, operand) for operand in op.operands]

    def _weights(self) -> dict[Operation, tuple[int, int]]:
        """The constants of the weights of layers, each with its layer and number."""
        numbers = {
            weight.origin.node: (layer, number)
            for layer in self.repetition.kept
            for number, weight in enumerate(self.repetition.weights[layer])
        }
        found: dict[Operation, tuple[int, int]] = {}
        for op in self.constants:
            places = origins(op.location)
            if len(places) == 1 and places[0].node in numbers:
                found[op] = numbers[places[0].node]
        return found

    def _check_weights(self) -> None:
        """Check that the stages left the weights of two layers as they were, and would have left all others so."""
        made = {place: op.properties["value"] for op, place in self.weights.items()}
        large: list[str] = []
        for number, weight in enumerate(self.repetition.weights[1]):
            others = [weights[number].attribute for weights in self.repetition.weights]
            for layer, other in enumerate(others):
                same = type(other) is type(weight.attribute) and _type(other) == _type(weight.attribute)
                _require(same, "a weight has another type, or is one number")
                if isinstance(other, DenseResourceAttr):
                    key = other.resource_handle.data
                    _require(key not in self.read, "a stage read the numbers of a weight")
                    large += [key] if layer in self.repetition.left_out else []
                elif other != weight.attribute:
                    mixed = all(not was_read(each) and _is_mixed(each) for each in (weight.attribute, other))
                    _require(mixed, "a stage read the numbers of a weight")
                kept = made.get((layer, number), None if isinstance(other, DenseResourceAttr) else other)
                _require(layer not in (1, self.last) or kept == other, "a stage changed a weight")
        values = [op.properties["value"] for op in self.constants]
        large += [value.resource_handle.data for value in values if isinstance(value, DenseResourceAttr)]
        _require(len(large) == len(set(large)), "two layers share a weight")

    def _places(self) -> list[tuple[int, Operation]]:
        """The constants of placeholders, each with the place of its placeholder, in the order of the block."""
        order = self.repetition.placeholders
        places = [(order[node], op) for op in self.constants if (node := _only_node(op)) in order]
        _require(places == sorted(places, key=lambda place: place[0]), "a stage moved weights")
        return places

    def _weights_for(self, layer: int, names: _Names, places: list[tuple[int, Operation]]) -> dict[SSAValue, SSAValue]:
        """Constants for the weights of a layer, each at the place of its placeholder; by those of the second layer.
        They are added to `places`."""
        order = self.repetition.placeholders
        made: dict[SSAValue, SSAValue] = {}
        for op, (own, number) in self.weights.items():
            if own != 1:
                continue
            weight = self.repetition.weights[layer][number]
            copy = _copied(op, made, names)
            copy.properties["value"] = weight.attribute
            at = bisect(places, order[weight.origin.node], key=lambda place: place[0])
            if at < len(places):
                self.block.insert_op_before(copy, places[at][1])
            else:
                self.block.insert_op_after(copy, places[-1][1])
            places.insert(at, (order[weight.origin.node], copy))
        return made


def _only_node(op: Operation) -> str:
    """The node that an op comes from; empty if there are several."""
    places = origins(op.location)
    return places[0].node if len(places) == 1 else ""


def _type(attribute: Attribute) -> Attribute:
    return attribute.type  # type: ignore[attr-defined, no-any-return]


def _is_mixed(attribute: Attribute) -> bool:
    """Whether a small weight has several numbers, all of them floats: no rule has a literal that equals it."""
    type_ = _type(attribute)
    assert isinstance(type_, TensorType)
    return is_float(type_.element_type) and 0 not in static_shape(type_) and uniform_number(attribute) is None


class _Comparison:
    """Compares the ops of the second layer with those of the last one."""

    def __init__(self, stamp: _Stamp):
        self.weights, self.last = stamp.weights, stamp.last
        self.before = dict.fromkeys(stamp.ops.get(0, ()))
        self.first = dict.fromkeys(stamp.ops[1])
        self.names = stamp.repetition.moved(1, stamp.last)
        self.earlier = stamp.repetition.moved(0, 1)
        self.twins: dict[SSAValue, SSAValue] = {}
        """The value of the last layer for each of the second."""
        self.passed: dict[SSAValue, SSAValue] = {}
        """For each value of the first layer that the second one reads, the value that the last one reads."""

    def compare(self, op: Operation, other: Operation) -> None:
        same = (
            type(op) is type(other)
            and op.properties == other.properties
            and op.attributes == other.attributes
            and len(op.operands) == len(other.operands)
            and len(op.regions) == len(other.regions)
        )
        _require(same, f"{op.name} differs between layers")
        _require(self.names.locations[op.location] == other.location, f"the place of {op.name} differs between layers")
        for operand, given in zip(op.operands, other.operands, strict=True):
            self._operand(operand, given)
        for region, twin in zip(op.regions, other.regions, strict=True):
            for block, copy in zip(region.blocks, twin.blocks, strict=True):
                self._values(block.args, copy.args)
                for inner, its in itertools.zip_longest(block.ops, copy.ops):
                    _require(inner is not None and its is not None, f"{op.name} differs between layers")
                    self.compare(inner, its)
        self._values(op.results, other.results)

    def _values(self, values: Sequence[SSAValue], others: Sequence[SSAValue]) -> None:
        _require(len(values) == len(others), "the layers have different numbers of values")
        for value, other in zip(values, others, strict=True):
            _require(value.type == other.type, "the types of the layers differ")
            _require(self.names.hint(value.name_hint) == other.name_hint, "the names of the layers differ")
            self.twins[value] = other

    def _operand(self, value: SSAValue, other: SSAValue) -> None:
        maker, its = maker_of(value), maker_of(other)
        if value in self.twins:
            _require(self.twins[value] is other, "the layers read different values of their own")
        elif maker in self.weights and self.weights[maker][0] == 1:
            same = its is not None and self.weights.get(its) == (self.last, self.weights[maker][1])
            _require(same, "the layers read different weights")
        elif value is not other:
            _require(
                isinstance(value, OpResult)
                and isinstance(other, OpResult)
                and maker in self.before
                and its in self.first
                and value.index == other.index
                and value.type == other.type
                and self.earlier.locations[value.op.location] == other.op.location
                and self.passed.setdefault(value, other) is other,
                "the layers read different values of the layer before",
            )


def _copied(op: Operation, values: dict[SSAValue, SSAValue], names: _Names) -> Operation:
    """A copy of an op for another layer; its values are added to `values`."""
    made = type(op).create(
        operands=[values.get(operand, operand) for operand in op.operands],
        result_types=[result.type for result in op.results],
        properties=op.properties,
        attributes=op.attributes,
        regions=[Region([_block(block, values, names) for block in region.blocks]) for region in op.regions],
        location=names.locations[op.location],
    )
    for result, copy in zip(op.results, made.results, strict=True):
        set_name(copy, names.hint(result.name_hint))
        values[result] = copy
    return made


def _block(block: Block, values: dict[SSAValue, SSAValue], names: _Names) -> Block:
    made = Block(arg_types=[argument.type for argument in block.args])
    for argument, copy in zip(block.args, made.args, strict=True):
        set_name(copy, names.hint(argument.name_hint))
        copy.location = argument.location
        values[argument] = copy
    for op in block.ops:
        made.add_op(_copied(op, values, names))
    return made

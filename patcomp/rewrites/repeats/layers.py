"""Find the equal layers of an imported program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from patcomp.ir.constants import is_constant
from patcomp.ir.coreai_op import CoreaiOp
from patcomp.ir.custom import CustomOp
from patcomp.ir.extents import extents
from patcomp.ir.types import TensorType, element_name
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, DenseIntOrFPElementsAttr, Operation, OpResult, SSAValue

WORTH = 100
"""Fewer ops are converted sooner than stamped."""

_GRAM = 6
"""So many ops in a row say where a layer may begin again."""
_FLOATS = frozenset({"f16", "bf16", "f32"})


@dataclass(frozen=True)
class Layers:
    """Consecutive layers of one block: equal ops, apart from their weights."""

    ops: Sequence[Sequence[Operation]]
    """The ops of each layer, without constants."""
    weights: Sequence[Sequence[Operation]]
    """The constants of each layer that differ from layer to layer, in corresponding order."""

    @property
    def count(self) -> int:
        return len(self.ops)

    def kept(self, number: int) -> tuple[int, ...]:
        """The layers that are converted, if these are so many: the first ones and the last."""
        return (*range(number - 1), self.count - 1)


def find_layers(graph: CoreaiOp, kept: int) -> list[Layers]:
    """The layers of a graph that are worth stamping, in order; those of an encoder and a decoder are two entries.

    Args:
        graph: a graph of an imported program.
        kept: how many layers of each entry will be converted.
    """
    ops = [op for op in graph.regions[0].block.ops if not is_constant(op)]
    found: list[tuple[int, Layers]] = []
    for start, period, count in _runs(_Kinds().of(ops), kept):
        layers = _checked(ops, start, period, count)
        if layers is not None and (layers.count - kept) * period >= WORTH:
            found.append((start, layers))
    return [layers for _, layers in sorted(found, key=lambda item: item[0])]


class _Kinds:
    """A number for each kind of op: its name, properties and types, and what kinds of values its operands are."""

    def __init__(self) -> None:
        self._by_identity: dict[int, int] = {}
        self._attributes: dict[Attribute, int] = {}
        self._kinds: dict[tuple[object, ...], int] = {}

    def of(self, ops: Sequence[Operation]) -> list[int]:
        return [self._kinds.setdefault(self._key(op), len(self._kinds)) for op in ops]

    def _key(self, op: Operation) -> tuple[object, ...]:
        key: list[object] = [op.name]
        for operand in op.operands:
            key += (type(operand), self._number(operand.type))
        for result in op.results:
            key.append(self._number(result.type))
        for name, attribute in op.properties.items():
            key += (name, self._number(attribute))
        return tuple(key)

    def _number(self, attribute: Attribute) -> int:
        number = self._by_identity.get(id(attribute))  # the ops keep it alive
        if number is None:
            number = self._attributes.setdefault(attribute, len(self._attributes))
            self._by_identity[id(attribute)] = number
        return number


def _runs(kinds: Sequence[int], kept: int) -> Iterator[tuple[int, int, int]]:
    """Where kinds of ops repeat: the first op, the number of ops of a layer, and the number of layers. Runs that save
    most come first, and others do not overlap with them."""
    last: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for index in range(len(kinds) - _GRAM + 1):
        gram = tuple(kinds[index : index + _GRAM])
        if gram in last:
            distances[index - last[gram]] += 1
        last[gram] = index
    candidates = []
    for period, _ in distances.most_common(8):
        start = 0
        while start + period < len(kinds):
            end = start
            while end + period < len(kinds) and kinds[end] == kinds[end + period]:
                end += 1
            count = (end - start) // period + 1
            if (count - kept) * period >= WORTH:
                candidates.append(((count - kept) * period, start, period, count))
            start = end + 1
    taken: list[range] = []
    for _, start, period, count in sorted(candidates, key=lambda each: (-each[0], each[1:])):
        place = range(start, start + period * count)
        if all(place.stop <= other.start or other.stop <= place.start for other in taken):
            taken.append(place)
            yield start, period, count


def _checked(ops: Sequence[Operation], start: int, period: int, count: int) -> Layers | None:
    """The layers of a run, as many of them from the first on as are equal; None if they cannot be stamped."""
    places = {op: index - start for index, op in enumerate(ops) if start <= index < start + period * count}
    layers = [list(ops[start + layer * period : start + (layer + 1) * period]) for layer in range(count)]
    slots: list[dict[Operation, Operation]] = []
    """For each layer after the first, its constants by the constants of the second layer."""
    for layer, own in enumerate(layers[1:], 1):
        found: dict[Operation, Operation] = {}
        if not all(_corresponds(layers[1][j], op, layer, period, places, found) for j, op in enumerate(own)):
            break
        slots.append(found)
    layers = layers[: len(slots) + 1]
    slots = slots[: len(layers)]
    first = _first_constants(layers, slots)
    if len(layers) < 3 or first is None:
        return None
    all_slots = [first, *slots]
    differing = [slot for slot in slots[0] if len({_content(found[slot]) for found in all_slots}) > 1]
    result = Layers(layers, [[found[slot] for slot in differing] for found in all_slots])
    return result if differing and _is_closed(result) and _may_be_hidden(result) else None


def _corresponds(
    model: Operation, op: Operation, layer: int, period: int, places: Mapping[Operation, int],
    constants: dict[Operation, Operation],
) -> bool:  # fmt: skip
    """Whether an op of a layer is to its layer what `model` is to the second one. Pairs of constants are added."""
    if model.regions or op.regions or model.attributes != op.attributes or isinstance(op, CustomOp):
        return False  # a user's lowering may do something else each time
    return all(
        _same_role(mine, other, layer, period, places, constants)
        for mine, other in zip(model.operands, op.operands, strict=True)
    )


def _same_role(
    mine: SSAValue, other: SSAValue, layer: int, period: int, places: Mapping[Operation, int],
    constants: dict[Operation, Operation],
) -> bool:  # fmt: skip
    if not isinstance(mine, OpResult) or not isinstance(other, OpResult):
        return mine is other
    if is_constant(mine.op):
        return is_constant(other.op) and constants.setdefault(mine.op, other.op) is other.op
    place = places.get(mine.op)
    if place is None or place >= 2 * period:
        return mine is other  # a value from before the layers, which all of them use
    return mine.index == other.index and places.get(other.op) == place + (layer - 1) * period


def _first_constants(
    layers: Sequence[Sequence[Operation]], slots: Sequence[Mapping[Operation, Operation]]
) -> dict[Operation, Operation] | None:
    """The constants of the first layer by those of the second. What else it uses may differ."""
    found: dict[Operation, Operation] = {}
    for model, op in zip(layers[1], layers[0], strict=True) if slots else ():
        for mine, other in zip(model.operands, op.operands, strict=True):
            if isinstance(mine, OpResult) and is_constant(mine.op):
                assert isinstance(other, OpResult)
                if not is_constant(other.op) or found.setdefault(mine.op, other.op) is not other.op:
                    return None
    return found


def _content(constant: Operation) -> Attribute:
    return constant.properties["value"]


def _is_closed(layers: Layers) -> bool:
    """Whether a layer between the first and the last gives values to the next one, of the same sizes, and none to other
    ops; and no other op has the weights of a layer.

    Integers would be another question, because the conversion bounds them: their bounds may grow from layer to layer.
    """
    layer_of = {op: number for number, ops in enumerate(layers.ops) for op in ops}
    for number, ops in enumerate(layers.ops[:-1]):
        for index, op in enumerate(ops):
            for result in op.results:
                users = {layer_of.get(use.operation) for use in result.uses}
                if number and not users <= {number, number + 1}:
                    return False
                if not (_is_float(result.type) or _is_boolean(result.type)):
                    return False
                if number == 1 and 2 in users and not _keeps_sizes(layers.ops[0][index], op, result.index):
                    return False
    for number, weights in enumerate(layers.weights):
        if any(layer_of.get(use.operation) != number for op in weights for use in op.results[0].uses):
            return False
    return len({op for weights in layers.weights for op in weights}) == sum(map(len, layers.weights))


def _keeps_sizes(before: Operation, after: Operation, result: int) -> bool:
    """Whether a result of a layer has the sizes that it has one layer before, as far as types and ops tell."""
    sizes = extents(Value(after.results[result]))
    return all(isinstance(size, int) for size in sizes) or sizes == extents(Value(before.results[result]))


def _is_float(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and element_name(type_.element_type) in _FLOATS


def _is_boolean(type_: Attribute) -> bool:
    return isinstance(type_, TensorType) and element_name(type_.element_type) == "i1"


def _may_be_hidden(layers: Layers) -> bool:
    """Whether no rule would do anything else if it knew the weights: they are floats, and none repeats one number."""
    attributes = [_content(op) for weights in layers.weights for op in weights]
    splats = any(
        isinstance(value, DenseIntOrFPElementsAttr) and len(value.data.data) < _bytes_of_two(value)
        for value in attributes
    )
    return not splats and all(_is_float(op.results[0].type) for weights in layers.weights for op in weights)


def _bytes_of_two(value: DenseIntOrFPElementsAttr) -> int:
    return 2 * (4 if element_name(value.type.element_type) == "f32" else 2)

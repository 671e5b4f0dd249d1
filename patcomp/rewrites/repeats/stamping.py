"""Put equal layers back into a converted program."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patcomp.ir.constants import is_constant
from patcomp.ir.locations import places_in, with_places
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Block, LocationAttr, Operation, OpResult, SSAValue, set_name
from patcomp.rewrites.repeats.shortening import Removed, Shortened


class NotPeriodicError(Exception):
    """The layers that were kept became different, so that the others have no model. It never leaves a conversion."""


def stamp(shortened: Shortened) -> None:
    """Put the layers back, as copies of what the one before them became.

    Raises:
        NotPeriodicError: the two layers before did not become the same.
    """
    for removed in shortened.removed:
        _Stamp(shortened.module, removed).run()


class _Stamp:
    """One sequence of layers.

    The ops of the graph are those before, two equal periods, and the rest. A period begins with the first op that uses
    a weight of its layer, so it need not begin where a layer of the model does.
    """

    def __init__(self, module: IRModule, removed: Removed):
        self.removed, self.more = removed, removed.count - len(removed.kept)
        self.block: Block = module.graph(removed.graph).regions[0].block
        self.ops = [op for op in self.block.ops if not is_constant(op)]
        self.places = {op: place for place, op in enumerate(self.ops)}
        self.first, self.second, self.after = self._periods()
        self.constants = _Constants(self.block, removed, self.ops[self.first])
        self.origins = _Origins(removed)

    def run(self) -> None:
        model, rest = self.ops[self.second : self.after], self.ops[self.after :]
        for mine, other in zip(self.ops[self.first : self.second], model, strict=True):
            self._check_alike(mine, other)
        for op in rest:
            self._check_rest(op)
        last: Sequence[Operation] = model
        shared = [
            places_in(mine.location) & places_in(other.location)
            for mine, other in zip(self.ops[self.first : self.second], model, strict=True)
        ]
        origins = [self.origins.of(op, common) for op, common in zip(model, shared, strict=True)]
        for number in range(1, self.more + 1):
            last = self._period(model, origins, number, last, rest[0])
        for op in rest:
            for index, operand in enumerate(op.operands):
                if (now := self._operand(operand, self.more, (), last)) is not operand:
                    op.operands[index] = now
            self.origins.of(op, self.origins.early).give(op, self.more)
        for op in self.ops[: self.after]:
            self.origins.of(op).give(op, 0)
        self.constants.restore()

    def _periods(self) -> tuple[int, int, int]:
        """Where the first period, the second and the rest begin."""
        begins: dict[int, int] = {}
        for place, op in enumerate(self.ops):
            for operand in op.operands:
                if (which := self._hidden(operand)) is not None:
                    begins.setdefault(which[0], place)
        first, second, after = range(len(self.removed.kept))[-3:]
        if not {first, second, after} <= begins.keys() or not (
            0 < begins[second] - begins[first] == begins[after] - begins[second]
        ):
            raise NotPeriodicError("the layers do not follow each other")
        return begins[first], begins[second], begins[after]

    def _hidden(self, value: SSAValue) -> tuple[int, int] | None:
        """The kept layer and the number of a weight of a layer."""
        if not isinstance(value, OpResult) or not is_constant(value.op):
            return None
        return self.removed.hidden.get(value.op.properties["value"])

    # ---- whether the layers became the same ------------------------------------------------------

    def _check_alike(self, mine: Operation, other: Operation) -> None:
        """Check that an op of the second period is what `mine` is of the first."""
        alike = (
            type(mine) is type(other)
            and not other.regions
            and mine.properties == other.properties
            and mine.attributes == other.attributes
            and mine.result_types == other.result_types
            and len(mine.operands) == len(other.operands)
            and all(map(self._same_role, mine.operands, other.operands))
        )
        if not alike:
            raise NotPeriodicError(f"{other.name} is not what {mine.name} is one layer before")

    def _same_role(self, mine: SSAValue, other: SSAValue) -> bool:
        if not isinstance(mine, OpResult) or not isinstance(other, OpResult):
            return mine is other
        if (which := self._hidden(other)) is not None:
            return self._hidden(mine) == (which[0] - 1, which[1])
        before, after = self.places.get(mine.op), self.places.get(other.op)
        if before is None or after is None or after < self.first:
            return mine is other
        if after < self.second:  # as the second period uses the first, the first uses what is before it
            return mine.index == other.index and before < self.first
        return mine.index == other.index and before == after - (self.second - self.first)

    def _check_rest(self, op: Operation) -> None:
        """Check that an op after the second period uses no value and no weight of an earlier layer."""
        for inner in op.walk():
            for operand in inner.operands:
                which = self._hidden(operand)
                place = self.places.get(operand.op, -1) if isinstance(operand, OpResult) else -1
                early = which is not None and which[0] < len(self.removed.kept) - 2
                nested = inner is not op and (which is not None or self.first <= place < self.after)
                if early or nested or self.first <= place < self.second:
                    raise NotPeriodicError(f"{op.name} uses a value of an early layer")

    # ---- putting them back -----------------------------------------------------------------------

    def _period(
        self,
        model: Sequence[Operation],
        origins: Sequence[_Origin],
        number: int,
        before: Sequence[Operation],
        anchor: Operation,
    ) -> list[Operation]:
        """Insert a copy of the second period.

        Args:
            model: the ops of the second period.
            origins: where each comes from.
            number: how many layers further on the copy is.
            before: the ops of the period before.
            anchor: the op that follows.
        """
        made: list[Operation] = []
        for op, origin in zip(model, origins, strict=True):
            copy = type(op).create(
                operands=[self._operand(operand, number, before, made) for operand in op.operands],
                result_types=op.result_types,
                properties=dict(op.properties),
                attributes=dict(op.attributes),
            )
            origin.give(copy, number)
            self.block.insert_op_before(copy, anchor)
            made.append(copy)
        return made

    def _operand(
        self, value: SSAValue, further: int, before: Sequence[Operation], own: Sequence[Operation]
    ) -> SSAValue:
        """What a value is some layers further on."""
        if not isinstance(value, OpResult):
            return value
        if (which := self._hidden(value)) is not None:
            return self.constants.of(which[0] + further, which[1])
        place = self.places.get(value.op, -1)
        if self.second <= place < self.after:
            return own[place - self.second].results[value.index]
        if self.first <= place < self.second:
            return before[place - self.first].results[value.index]
        return value


class _Constants:
    """The weights of all layers in the converted graph, in the order of the model."""

    def __init__(self, block: Block, removed: Removed, first: Operation):
        self.block, self.removed = block, removed
        self.kept: dict[tuple[int, int], Operation] = {}
        for op in block.ops:
            if op is first:
                break
            if is_constant(op) and (which := removed.hidden.get(op.properties["value"])) is not None:
                layer, slot = which
                self.kept[removed.kept[layer], slot] = op
        if len(self.kept) < len(removed.hidden):
            raise NotPeriodicError("a weight is unused, or not in front of the layers")
        order = sorted((removed.weights[layer][slot].rank, op) for (layer, slot), op in self.kept.items())
        self.ranks, self.inserted_before = [rank for rank, _ in order], [*(op for _, op in order), first]
        self.made: dict[tuple[int, int], Operation] = {}

    def of(self, layer: int, slot: int) -> SSAValue:
        """The weight of a layer of the model."""
        op = self.kept.get((layer, slot)) or self.made.get((layer, slot))
        if op is None:
            weight, kept = self.removed.weights[layer][slot], self.kept[0, slot]
            op = self.made[layer, slot] = type(kept).create(
                result_types=kept.result_types, properties={"value": weight.attribute}
            )
            op.location = weight.location
            set_name(op.results[0], weight.name)
        return op.results[0]

    def restore(self) -> None:
        """Insert the weights of the layers that were put back, and give all weights their values."""
        for (layer, slot), op in self.kept.items():
            op.properties["value"] = self.removed.weights[layer][slot].attribute
        ranked = {self.removed.weights[layer][slot].rank: op for (layer, slot), op in self.made.items()}
        for rank, op in sorted(ranked.items()):
            self.block.insert_op_before(op, self.inserted_before[bisect_left(self.ranks, rank)])


class _Origins:
    """The names and the locations of ops, which say what layer they come from."""

    def __init__(self, removed: Removed):
        self.removed = removed
        kept = dict(enumerate(removed.kept))
        self.names = {name: (k, i) for k, n in kept.items() for i, name in enumerate(removed.names[n]) if name}
        self.locations = {place: (k, i) for k, n in kept.items() for i, place in enumerate(removed.locations[n])}
        self.early = frozenset(place for n in removed.kept[:-2] for place in removed.locations[n])

    def of(self, op: Operation, fixed: frozenset[LocationAttr] = frozenset()) -> _Origin:
        """Where an op comes from; some places are those of all layers."""
        names = [(result.name_hint, *self.names.get(result.name_hint or "", (None, 0))) for result in op.results]
        places = {
            place: self.locations[place]
            for place in places_in(op.location)
            if place in self.locations and place not in fixed
        }
        return _Origin(self.removed, names, op.location, places)


@dataclass(frozen=True)
class _Origin:
    """The names and the location of an op."""

    removed: Removed
    names: Sequence[tuple[str | None, int | None, int]]
    """Of each result the name; if it is that of an op of a kept layer, the layer and the number of the name."""
    location: LocationAttr
    places: Mapping[LocationAttr, tuple[int, int]]
    """The kept layer and the number of each place in the location."""

    def give(self, op: Operation, further: int) -> None:
        """Give an op the names and the location of its counterpart some layers further on."""
        for result, (name, layer, index) in zip(op.results, self.names, strict=True):
            set_name(result, name if layer is None else self.removed.names[layer + further][index])
        moved = {
            id(place): self.removed.locations[layer + further][index] for place, (layer, index) in self.places.items()
        }
        op.location = with_places(self.location, moved) if moved else self.location

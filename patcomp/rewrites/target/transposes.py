"""Carry transposes: values stay in the order in which they were stored, until an op needs them in their own order.

    transpose(x) + transpose(y)   ->  transpose(x + y)
    softmax(transpose(x), 1)      ->  transpose(softmax(x, 2))

A transpose is not computed where it stands. It is noted as a frame of its result (`frames.py`), and the ops that follow
compute on what is stored. Where carried values meet ops that need an order, a transpose is made. Which ops carry
and which do not is a minimum cut: a value that crosses between the two kinds costs one transpose, however many ops read
it there. On a tie, values are carried.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

import numpy as np

from patcomp.ir import coreai
from patcomp.ir.builder import Builder
from patcomp.ir.cleanup import remove_dead_ops
from patcomp.ir.constants import is_constant
from patcomp.ir.locations import fused
from patcomp.ir.module import IRModule
from patcomp.ir.traits import Reshape
from patcomp.ir.types import TensorType, static_shape, tensor
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block, Operation, SSAValue, maker_of, set_name
from patcomp.rewrites.target.frames import (
    Carried,
    Frame,
    carried,
    channels_first,
    has_known_sizes,
    is_moved,
    order,
    regrouped,
    renamed_units,
    source_frame,
    stored_in_order,
    stored_shape,
    transposed,
)

CARRY = "carry transposes"


def carry_transposes(module: IRModule) -> int:
    """Carry the transposes of every entry point. Return how many ops compute on values in another order."""
    count = 0
    for graph in module.entry_graphs:
        count += _Carrying(graph.regions[0].block, module).run()
        remove_dead_ops(graph)
    return count


class _Carrying:
    def __init__(self, block: Block, module: IRModule):
        self.block, self.module = block, module
        self.frames: dict[SSAValue, Frame] = {}
        """The frame of each value that is not stored as it is."""
        self.forms: dict[SSAValue, dict[Frame, SSAValue]] = {}
        """The stored forms of each value."""
        self.wanted: dict[Operation, Carried] = {}
        """How ops that are no views compute on stored operands."""

    def run(self) -> int:
        ops = [op for op in self.block.ops if not is_constant(op)]
        able = [op for op in ops if self._note(op, self._result_frame(op))]
        moved = {value for value, frame in self.frames.items() if is_moved(static_shape(value.type), frame)}
        if not moved:
            return 0
        keep = _kept_in_order(ops, able, moved, self.wanted)
        self.frames = {}
        count = 0
        for op in ops:
            if op in keep or not self._carry(op):
                self._put_in_order(op)
            else:
                count += 1
        return count

    # ---- frames -----------------------------------------------------------------------------------

    def _frame(self, value: SSAValue) -> Frame | None:
        """The frame of a value; None for constants, which may have any, and values of unknown size."""
        if is_constant(value) or not has_known_sizes(value):
            return None
        return self.frames.get(value) or stored_in_order(len(static_shape(value.type)))

    def _result_frame(self, op: Operation) -> Frame | None:
        """The frame of the results of an op that computes on stored operands; None if it does not."""
        if not op.operands or not op.results or not all(map(has_known_sizes, (op.operands[0], op.results[0]))):
            return None
        x, y = op.operands[0], op.results[0]
        frame = self._frame(x)
        if op.name == "coreai.transpose":
            return None if frame is None else transposed(op, frame)
        if op.has_trait(Reshape):
            before, after = static_shape(x.type), static_shape(y.type)
            if frame is None:
                return None
            named = renamed_units(before, after, frame)
            if named is not None or not is_moved(before, frame):
                return named
            return regrouped(before, after, frame) or channels_first(before, after)
        how = carried(op, [self._frame(operand) for operand in op.operands])
        if how is None:
            return None
        self.wanted[op] = how
        return how.result

    def _note(self, op: Operation, frame: Frame | None) -> bool:
        """Note the frame of the results of an op; return whether there is one."""
        for result in op.results:
            if frame is not None and frame != stored_in_order(len(static_shape(result.type))):
                self.frames[result] = frame
        return frame is not None

    # ---- ops --------------------------------------------------------------------------------------

    def _carry(self, op: Operation) -> bool:
        """Compute an op on stored operands, in front of it; return whether that is possible."""
        frame = self._result_frame(op)
        if frame is None:
            return False
        with Builder(self.block, before=op, blobs=self.module.blobs, location=fused(CARRY, [op])):
            made = self._computed(op, frame)
        self._note(op, frame)
        for result, value in zip(op.results, made, strict=True):
            self.forms[result] = {frame: value}
        return True

    def _computed(self, op: Operation, frame: Frame) -> Sequence[SSAValue]:
        x = op.operands[0]
        if op.name == "coreai.transpose":
            return [self._stored(x)]
        if op.has_trait(Reshape):
            before, after = static_shape(x.type), static_shape(op.results[0].type)
            source = source_frame(before, after, self._frame(x) or stored_in_order(len(before)), frame)
            stored, wanted = Value(self._form(x, source)), stored_shape(after, frame)
            return [stored.ssa if stored.shape == wanted else coreai.reshape(stored, list(wanted)).ssa]
        operands = [
            self._form(operand, given) if isinstance(given, tuple) else operand if given is None else _constant(given)
            for operand, given in zip(op.operands, self.wanted[op].operands, strict=True)
        ]
        types = [_stored_type(result, frame) for result in op.results]
        made = type(op).create(
            operands=operands, result_types=types, properties=dict(op.properties), attributes=dict(op.attributes)
        )
        results = Builder.current().insert(made).results
        for old, new in zip(op.results, results, strict=True):
            set_name(new, old.name_hint)
        return results

    def _put_in_order(self, op: Operation) -> None:
        """Give an op, and the ops inside it, their operands in order."""
        with Builder(self.block, before=op, blobs=self.module.blobs, location=op.location):
            for user in op.walk():
                for index, operand in enumerate(user.operands):
                    if operand in self.forms:
                        user.operands[index] = self._form(operand, stored_in_order(len(static_shape(operand.type))))

    # ---- stored forms -----------------------------------------------------------------------------

    def _stored(self, value: SSAValue) -> SSAValue:
        """A value as it is stored."""
        if value not in self.forms:
            return value
        return next(iter(self.forms[value].values()))

    def _form(self, value: SSAValue, frame: Frame) -> SSAValue:
        """A value in a frame; a form that exists already is used again."""
        shape = static_shape(value.type)
        forms = self.forms.setdefault(value, {stored_in_order(len(shape)): value})
        if frame not in forms:
            known = next((each for each in forms if order(shape, each) == order(shape, frame)), next(iter(forms)))
            forms[frame] = _rearranged(Value(forms[known]), shape, known, frame).ssa
            set_name(forms[frame], value.name_hint)
        return forms[frame]


def _constant(numbers: np.ndarray) -> SSAValue:
    return coreai.constant(numbers).ssa


def _stored_type(value: SSAValue, frame: Frame) -> TensorType:
    assert isinstance(value.type, TensorType)
    return tensor(stored_shape(static_shape(value.type), frame), value.type.element_type)


def _rearranged(x: Value, shape: Sequence[int], known: Frame, wanted: Frame) -> Value:
    """A stored value in another frame."""
    if order(shape, known) != order(shape, wanted):
        units = [place for place, axis in enumerate(known) if axis is None or shape[axis] == 1]
        permutation = []
        for axis in wanted:
            if axis is not None and shape[axis] != 1:
                permutation.append(known.index(axis))
            elif units:
                permutation.append(units.pop(0))
        x = _transposed(x, [*units, *permutation])
    target = stored_shape(shape, wanted)
    return x if x.shape == target else coreai.reshape(x, list(target))


def _transposed(x: Value, permutation: Sequence[int]) -> Value:
    """A transpose in fewer dimensions: drop dimensions of size 1, and join dimensions that stay side by side."""
    sizes = x.static_shape
    runs: list[list[int]] = []
    for axis in (axis for axis in permutation if sizes[axis] != 1):
        if runs and not any(sizes[between] != 1 for between in range(runs[-1][-1] + 1, axis)) and runs[-1][-1] < axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if len(permutation) <= _MOST or len(runs) == len(permutation):
        return coreai.transpose(x, list(permutation))
    before = sorted(runs)
    joined = coreai.reshape(x, [math.prod(sizes[axis] for axis in run) for run in before])
    moved = coreai.transpose(joined, [before.index(run) for run in runs])
    return coreai.reshape(moved, [sizes[axis] for axis in permutation])


_MOST = 5
"""The most dimensions of a transpose that is made as it is."""


# ---- which ops carry --------------------------------------------------------------------------------


def _kept_in_order(
    ops: Sequence[Operation],
    able: Sequence[Operation],
    moved: Container[SSAValue],
    wanted: Mapping[Operation, Carried],
) -> set[Operation]:
    """Choose the ops that take their operands in order, by a minimum cut, so that the fewest transposes remain.

    Args:
        ops: the ops of a block.
        able: those that may be on either side; all others keep the order.
        moved: the values that are stored in another order if every op carries that can.
        wanted: how each op then takes its operands, but for views.
    """
    import networkx as nx  # slow to import

    ordered, carrying = "ordered", "carrying"
    network = nx.DiGraph()
    network.add_nodes_from((ordered, carrying))
    side: dict[Operation, object] = dict.fromkeys(ops, ordered) | {op: op for op in able}
    readers: dict[SSAValue, list[object]] = {}
    """The sides of the ops that read each value in another order if they carry."""
    for op in ops:
        if op.name == "coreai.transpose" and side[op] is op:
            network.add_edge(op, carrying)  # without a capacity: a transpose is never computed where it stands
        for inner in op.walk():
            for index, operand in enumerate(inner.operands):
                frame = wanted[op].operands[index] if op in wanted else None
                turned = isinstance(frame, tuple) and is_moved(static_shape(operand.type), frame)
                if (operand in moved or turned) and not is_constant(operand):
                    readers.setdefault(operand, []).append(side[op])
    for value, users in readers.items():
        computed = maker_of(value)
        maker = ordered if computed is None else side.get(computed, ordered)
        to_order, to_carry = ("in order", value), ("carried", value)
        network.add_edge(to_order, maker, capacity=1)
        network.add_edge(maker, to_carry, capacity=1)
        for user in users:
            network.add_edge(user, to_order)
            network.add_edge(to_carry, user)
    _, (kept, _) = nx.minimum_cut(network, ordered, carrying)
    return {op for op in ops if side[op] in kept}

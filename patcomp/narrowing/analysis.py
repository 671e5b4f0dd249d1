"""Narrowing: which 64-bit numbers may change when they are computed in 32 bits. Runs before the lower stage.

Integers: the ranges of `ranges.py` are propagated from the arguments of each graph to its results. An op whose result
may not fit 32 bits is a `Change` if the overflow can affect an output. Sums, products and similar ops in 32 bits are
right modulo 2**32, so only other uses (a comparison, a division, a cast to floats, an output) depend on the lost bits.
A use as an index or size does not, because valid ones fit.

Floats: float32 results differ from float64 only by one rounding each, as long as numbers are moved, compared before any
rounding, or multiplied. An op that may turn the rounding of its operands into a larger error is a `Change`, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from patcomp.ir.aten import AtenOp
from patcomp.ir.constants import attribute_values, is_constant
from patcomp.ir.extents import MASK, argument_notes
from patcomp.ir.module import IRModule
from patcomp.ir.region import RegionOp
from patcomp.ir.types import TensorType, element_name
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute, Block, BlockArgument, Operation, SSAValue, maker_of
from patcomp.narrowing.float_rounding import rounded_beyond_result
from patcomp.narrowing.index_uses import INDEX_POSITIONS, bound_by_use, holds_value
from patcomp.narrowing.ranges import Range, RangedOp, Transfer, converted, hull, number, range_of_type
from patcomp.narrowing.transfer_functions import transfer_of
from patcomp.narrowing.widths import Widths

NOMINAL = 1 << 30
"""The assumed limit of the magnitude of an int64 input whose example is not a mask."""
STEP = 1 << 16
"""The largest change of a loop-carried integer in an iteration without a warning, enough for counters and positions."""


@dataclass(frozen=True)
class Change:
    """An op whose result may differ in 32 bits."""

    op: Operation
    is_float: bool
    range: Range


@dataclass(frozen=True)
class _Kind:
    """The properties of a type that the analysis needs, computed once."""

    type: Attribute
    name: str
    """The element type; empty if the value is no tensor."""
    range: Range
    narrow: Range
    """The range of the type after lowering."""
    narrowed: bool

    @property
    def is_narrowed_integer(self) -> bool:
        return self.narrowed and self.name[:2] in ("si", "ui")


@dataclass(frozen=True)
class _TracedOp:
    """An op that the analysis follows, with the properties that the analysis needs."""

    op: Operation
    given: Mapping[str, Any]
    results: Sequence[Value]
    function: Transfer | None
    has_floats: bool
    """Whether an operand or a result has float64 numbers that are narrowed."""


class NarrowingFacts:
    """The facts of a module that do not depend on the ranges of inputs, computed once."""

    def __init__(self, module: IRModule, widths: Widths):
        self.module, self.widths = module, widths
        self.kinds: dict[int, _Kind] = {}
        self.constants: dict[SSAValue, Range] = {}
        self.needed: set[SSAValue] = set()
        self.ops: dict[Block, list[_TracedOp]] = {}
        for graph in module.graphs:
            self._read(graph.regions[0].block)

    def kind(self, value: SSAValue) -> _Kind:
        """The kind of a value's type. To hash a type would cost more, and the module keeps it alive."""
        type_ = value.type
        found = self.kinds.get(id(type_))
        if found is None:
            narrow = self.widths.of(type_)
            name = element_name(type_.element_type) if isinstance(type_, TensorType) else ""
            found = _Kind(type_, name, range_of_type(type_), range_of_type(narrow), narrow != type_)
            self.kinds[id(type_)] = found
        return found

    def _read(self, block: Block) -> None:
        """List the ops from which 64-bit numbers are computed, as far back as there are transfer functions."""
        traced: list[_TracedOp] = []
        op = block.last_op
        while op is not None:
            for region in op.regions:
                for inner in region.blocks:
                    self._read(inner)
            values = (*op.results, *op.operands)
            if not is_constant(op) and (
                op.regions
                or any(self.kind(value).narrowed for value in values)
                or not self.needed.isdisjoint(op.results)
            ):
                traced.append(self._traced(op, values))
                if op.regions or transfer_of(type(op)) is not None:
                    self.needed.update(op.operands)
            op = op.prev_op
        self.ops[block] = traced[::-1]

    def _traced(self, op: Operation, values: Sequence[SSAValue]) -> _TracedOp:
        given = op.arguments_by_name() if isinstance(op, AtenOp) else {}
        wide = self.widths.float64 != "keep" and any(
            self.kind(value).name in ("f64", "complex<f64>") for value in values
        )
        return _TracedOp(op, given, list(map(Value, op.results)), transfer_of(type(op)), wide)

    def constant(self, ssa: SSAValue) -> Range:
        """The range of a constant; for float weights, the range of their type."""
        if ssa not in self.constants:
            self.constants[ssa] = self._constant(ssa)
        return self.constants[ssa]

    def _constant(self, ssa: SSAValue) -> Range:
        maker, kind = maker_of(ssa), self.kind(ssa)
        assert maker is not None
        blobs = self.module.blobs if kind.name[0] not in "fb" or kind.narrowed else None
        values = attribute_values(maker.properties["value"], blobs)
        if values is None or values.dtype.kind == "c":
            return kind.range
        if values.dtype.kind == "f":
            values = values[np.isfinite(values)]
        if not values.size:
            return number(0)
        with np.errstate(over="ignore"):
            rounded = values.dtype == np.float64 and bool(np.any(values.astype(np.float32) != values))
        return Range(values.min().item(), values.max().item(), rounded)

    def nominal(self, value: SSAValue) -> Range:
        """The assumed range of integers without other information."""
        return Range(1 - NOMINAL, NOMINAL - 1).clipped(self.kind(value).range)

    def free_inputs(self) -> dict[SSAValue, int]:
        """The int64 inputs whose uses do not limit their range, with the assumed limits of their magnitudes."""
        inputs: dict[SSAValue, int] = {}
        for graph in self.module.graphs:
            for argument, notes in zip(graph.regions[0].block.args, argument_notes(graph), strict=True):
                kind = self.kind(argument)
                if kind.is_narrowed_integer and not bound_by_use(argument).within(kind.narrow):
                    inputs[argument] = 1 if MASK in notes else NOMINAL - 1
        return inputs


class Ranges:
    """The ranges of a module's values, and the changes.

    Args:
        inputs: the limits of the magnitudes of the free int64 inputs.
    """

    def __init__(self, facts: NarrowingFacts, inputs: Mapping[SSAValue, int]):
        self.facts, self.inputs = facts, inputs
        self.known: dict[SSAValue, Range] = {}
        self.changes: dict[tuple[Operation, bool], Change] = {}
        self.seen: dict[tuple[SSAValue, bool], bool] = {}
        for graph in facts.module.graphs:
            block = graph.regions[0].block
            for argument in block.args:
                self.known[argument] = self._argument(argument)
            self.block(block)

    def range(self, value: Value) -> Range:
        """The range of a value."""
        found = self.known.get(value.ssa)
        if found is not None:
            return found
        return self.facts.constant(value.ssa) if is_constant(value.ssa) else self.facts.kind(value.ssa).range

    def _argument(self, argument: BlockArgument) -> Range:
        """The range of a graph's argument."""
        kind = self.facts.kind(argument)
        if not kind.is_narrowed_integer:
            return kind.range
        limit = self.inputs.get(argument, NOMINAL - 1)
        return bound_by_use(argument).clipped(kind.range).clipped(kind.narrow).clipped(Range(-limit, limit))

    def block(self, block: Block) -> None:
        """Follow the ranges through a block."""
        for traced in self.facts.ops[block]:
            op = traced.op
            if isinstance(op, AtenOp):
                self._aten(op, traced)
            elif op.regions:
                self._nested(op)
            elif op.name == "coreai.cast":
                source, target = Value(op.operands[0]), traced.results[0]
                cast = converted(self.range(source), source.dtype, target.dtype)
                self.known[target.ssa] = self._settled(op, target, cast)
            else:
                for result in op.results:  # results of user lowerings are assumed to fit, like inputs
                    if self.facts.kind(result).is_narrowed_integer:
                        self.known[result] = self.facts.nominal(result)

    def _aten(self, op: AtenOp, traced: _TracedOp) -> None:
        found = traced.function(RangedOp(traced.given, traced.results, self.range)) if traced.function else ()
        ranges = [found] if isinstance(found, Range) else found
        for index, result in enumerate(traced.results):
            each = ranges[index] if index < len(ranges) else self.facts.kind(result.ssa).range
            self.known[result.ssa] = self._settled(op, result, each)
        if traced.has_floats:
            self._floats(op, traced)

    def _settled(self, op: Operation, result: Value, found: Range) -> Range:
        """The range of a result after wrapping to its type; records a change if it may not fit 32 bits."""
        kind = self.facts.kind(result.ssa)
        if kind.name[0] in "fbc":
            clipped = found.clipped(kind.range)
            return clipped if clipped.rounded == found.rounded else replace(clipped, rounded=found.rounded)
        if not found.within(kind.range):  # it wraps; a cast of floats that are too large is undefined
            found = found.clipped(kind.range) if found.saturated else kind.range
        if not kind.narrowed or found.within(kind.narrow):
            return found
        found = found.clipped(bound_by_use(result.ssa))
        if not found.within(kind.narrow) and self._is_seen(result.ssa, found.saturated):
            self.changes.setdefault((op, False), Change(op, False, found))
            return self.facts.nominal(result.ssa)
        return found

    # ---- whether lost bits matter -----------------------------------------------------------------

    def _is_seen(self, value: SSAValue, saturated: bool) -> bool:
        """Whether the lost bits of a value that may not fit can change an output or a decision."""
        key = (value, saturated)
        if key not in self.seen:
            self.seen[key] = any(self._sees(use.operation, use.index, value, saturated) for use in value.uses)
        return self.seen[key]

    def _sees(self, op: Operation, index: int, value: SSAValue, saturated: bool) -> bool:
        """Whether one use of a value can change an output or a decision if bits of the value are lost."""
        if isinstance(op, RegionOp) and op.regions:
            return self._is_seen(op.regions[0].block.args[index], saturated)
        if op.name == "coreai.yield":
            parent = op.parent_op()
            assert parent is not None
            return parent.name == "coreai.while" or self._is_seen(parent.results[index], saturated)
        if op.name == "coreai.cast" or op.name == "aten._to_copy":
            target = Value(op.results[0]).dtype
            if target in ("si64", "ui64"):
                return self._is_seen(op.results[0], saturated)
            return target[:2] not in ("si", "ui") or saturated
        if not isinstance(op, AtenOp):
            return True
        for name, argument in op.arguments_by_name().items():
            if not holds_value(argument, value) or name in INDEX_POSITIONS or self._is_never_chosen(op, name):
                continue
            if op.FACTS.elements and not op.SCHEMA[name].type.startswith("SymInt"):  # a size or shift decides
                if any(self._is_seen(result, saturated) for result in op.results):
                    return True
            elif not (op.FACTS.limiting if saturated else op.FACTS.modular):
                return True
        return False

    def _is_never_chosen(self, op: AtenOp, name: str) -> bool:
        """Whether a `where` never selects an argument, because its condition is known."""
        if not op.name.startswith("aten.where.") or name == "condition":
            return False
        condition = self.known.get(op.operands[0])
        return condition is not None and condition.point == (0 if name == "self" else 1)

    # ---- ops with blocks --------------------------------------------------------------------------

    def _nested(self, op: Operation) -> None:
        blocks = [region.block for region in op.regions]
        if op.name == "coreai.while":
            self._loop(op, *blocks)
            return
        if isinstance(op, RegionOp):
            for argument, operand in zip(blocks[0].args, op.operands, strict=True):
                self.known[argument] = self.range(Value(operand))
        for block in blocks:
            self.block(block)
        ends = [block.last_op for block in blocks]
        for index, result in enumerate(op.results):
            self.known[result] = hull(self.range(Value(end.operands[index])) for end in ends if end is not None)

    def _loop(self, op: Operation, before: Block, after: Block) -> None:
        """A loop: a carried value is assumed to keep its initial range, or the range of an input."""
        for index, operand in enumerate(op.operands):
            kind = self.facts.kind(operand)
            nominal = self.facts.nominal(operand)
            carried = hull([self.range(Value(operand)), nominal]) if kind.is_narrowed_integer else kind.range
            places: list[SSAValue] = [before.args[index], after.args[index], op.results[index]]
            for value in places:
                self.known[value] = carried
        self.block(before)
        self.block(after)
        end = after.last_op
        assert end is not None
        for argument, value in zip(after.args, end.operands, strict=True):
            carried, found = self.known[argument], self.range(Value(value))
            grows = not found.within(Range(carried.low - STEP, carried.high + STEP))
            if grows and self.facts.kind(argument).is_narrowed_integer:
                maker = maker_of(value) or op
                self.changes.setdefault((maker, False), Change(maker, False, found))

    # ---- floats -----------------------------------------------------------------------------------

    def _floats(self, op: AtenOp, traced: _TracedOp) -> None:
        differs, rounded = rounded_beyond_result(op, traced.given, self.range)
        if differs:
            self.changes.setdefault((op, True), Change(op, True, self.known[op.results[0]]))
        for result in op.results:
            if self.facts.kind(result).name == "f64":
                self.known[result] = replace(self.known[result], rounded=rounded)

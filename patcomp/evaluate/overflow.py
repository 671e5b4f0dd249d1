"""Evaluations that find the values that half precision cannot hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.machine import Machine, evaluate
from patcomp.evaluate.registry import EvaluatedOp, Implementation
from patcomp.evaluate.twin import HALF, run_wide
from patcomp.evaluate.verification import FirstOverflow
from patcomp.ir.constants import is_constant
from patcomp.ir.half import LARGEST, STANDS_FOR_MINUS_INFINITY
from patcomp.ir.locations import Origin, origins
from patcomp.ir.module import IRModule, callee
from patcomp.ir.xdsl import Operation


@dataclass(frozen=True)
class Overflow:
    """An op whose result float16 cannot hold, although it can hold every operand."""

    operation: Operation
    call: Operation | None
    """The outermost call that the op is in the body of; None if the entry point has it."""
    value: float
    """The number of the largest magnitude, or NaN."""

    @property
    def place(self) -> Operation:
        """The op with the place in the model: the call, if the op is in the body of one."""
        return self.call or self.operation

    def composite(self, names: Mapping[str, str]) -> str | None:
        """The composite whose body has the op; None if it is not in one.

        Args:
            names: the composites by the symbols of their graphs, as `IRModule.composite_names` gives them.
        """
        return names.get(callee(self.call)) if self.call is not None and self.call.name == "coreai.invoke" else None


@dataclass(eq=False)
class _Calls(Machine):
    """Knows the calls around an op, and notes overflows."""

    overflows: list[Overflow] = field(default_factory=list)
    _calls: list[Operation] = field(default_factory=list)

    @staticmethod
    def is_call(operation: Operation) -> bool:
        """Whether an op runs others, which are looked at in its place."""
        return bool(operation.regions) or operation.name == "coreai.invoke"

    @property
    def call(self) -> Operation | None:
        """The outermost call around the op that runs."""
        return self._calls[0] if self._calls else None

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        if not self.is_call(op.operation):
            return super().run_op(op, implementation, operands)
        self._calls.append(op.operation)
        try:
            return super().run_op(op, implementation, operands)
        finally:
            self._calls.pop()


@dataclass(eq=False, kw_only=True)
class OverflowMachine(_Calls):
    """Notes where values first exceed float16. Values that are computed from noted values are not noted again."""

    half: bool = False
    """Whether every float must fit, because the device computes float16 alone; otherwise those of float16."""

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        operation, call = op.operation, self.call
        results = super().run_op(op, implementation, operands)
        if self.is_call(operation) or is_constant(operation):
            return results
        if any(self._beyond(operand) is not None for operand in operands):
            return results
        found = next((value for value in map(self._beyond, results) if value is not None), None)
        known = any(each.operation is operation and each.call is call for each in self.overflows)
        if found is not None and not known:
            self.overflows.append(Overflow(operation, call, found))
        return results

    def _beyond(self, value: Any) -> float | None:
        """The element of a tensor of the largest magnitude if float16 cannot hold it, or NaN."""
        if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
            return None
        if not self.half and value.dtype != torch.float16:
            return None
        low, high = (float(each) for each in value.aminmax())
        largest = low if abs(low) > abs(high) else high
        return None if abs(largest) <= LARGEST else largest


@dataclass(frozen=True)
class _Range:
    """What a tensor holds."""

    outside: int
    """How many elements are NaN, infinite, or stand for minus infinity."""
    largest: float
    """The largest magnitude of the others; 0 without any."""

    @classmethod
    def of(cls, results: Sequence[Any]) -> _Range:
        """The range of the floats among the results of an op."""
        outside, largest = 0, 0.0
        for value in results:
            if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
                counts = value.isfinite() & (value >= STANDS_FOR_MINUS_INFINITY)
                outside += int((~counts).sum())
                largest = max(largest, float(torch.where(counts, value, 0).abs().max()))
        return cls(outside, largest)


def overflows_of_half(
    module: IRModule, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor], entrypoint: str
) -> list[Overflow]:
    """The ops that half precision makes NaN or infinite: the same program in float32 computes finite numbers there.

    Args:
        module: the program.
        inputs, state: tensors by name, of the types that the program takes.
        entrypoint: the name of the graph.

    Returns:
        The ops in the order in which they run, with the largest magnitude in float32; also those that compute from such
        values. Empty if the program does not run in float32.
    """
    wide: list[_Range] = []
    if run_wide(module, inputs, state, entrypoint, lambda op, results: wide.append(_Range.of(results))) is None:
        return []
    machine = _BesideFloat32(module, wide=wide)
    contents = {name: value.clone() for name, value in state.items()}
    evaluate(module, inputs, entry=entrypoint, state=contents, machine=machine)
    return machine.overflows


@dataclass(eq=False, kw_only=True)
class _BesideFloat32(_Calls):
    """Compares each op with the same one in float32, which ran before."""

    wide: Sequence[_Range]
    """The ranges of the results, op by op."""
    _count: int = 0

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        operation = op.operation
        results = super().run_op(op, implementation, operands)
        index, self._count = self._count, self._count + 1
        if not any(isinstance(value, Tensor) and value.dtype in HALF for value in results) or index >= len(self.wide):
            return results
        if self.is_call(operation):
            return results
        if _Range.of(results).outside > self.wide[index].outside:
            self.overflows.append(Overflow(operation, self.call, self.wide[index].largest))
        return results


def first_overflow(
    module: IRModule, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor], entrypoint: str
) -> FirstOverflow | None:
    """The op in which a program of half precision first overflows; None if it does not, or does not run in float32.

    Args:
        module, inputs, state, entrypoint: as for `overflows_of_half`.
    """
    found = overflows_of_half(module, inputs, state, entrypoint)
    return told(found[0], module) if found else None


def told(overflow: Overflow, module: IRModule) -> FirstOverflow:
    """An overflow with its composite and its place in the model."""
    name, called = overflow.operation.name, overflow.composite(module.composite_names())
    place = next(iter(origins(overflow.place.location)), Origin(""))
    text = f"{name} in {called}" if called else name
    return FirstOverflow(text, overflow.value, place.module_path, place.node, place.source)

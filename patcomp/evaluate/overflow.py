"""An evaluation that finds the values that float16 cannot hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.machine import Machine
from patcomp.evaluate.registry import EvaluatedOp, Implementation
from patcomp.ir.constants import is_constant
from patcomp.ir.half import LARGEST
from patcomp.ir.xdsl import Operation


@dataclass(frozen=True)
class Overflow:
    """An op whose result float16 cannot hold, although it can hold every operand."""

    operation: Operation
    call: Operation | None
    """The outermost call that the op is in the body of; None if the entry point has it."""
    value: float
    """The number of the largest magnitude, or NaN."""


@dataclass(eq=False)
class OverflowMachine(Machine):
    """Notes where values first exceed float16. Values that are computed from noted values are not noted again."""

    half: bool = False
    """Whether every float must fit, because the device computes float16 alone; otherwise those of float16."""
    overflows: list[Overflow] = field(default_factory=list)
    _calls: list[Operation] = field(default_factory=list)

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        operation = op.operation
        if operation.regions or operation.name == "coreai.invoke":
            self._calls.append(operation)
            try:
                return super().run_op(op, implementation, operands)
            finally:
                self._calls.pop()
        results = super().run_op(op, implementation, operands)
        if is_constant(operation) or any(self._beyond(operand) is not None for operand in operands):
            return results
        found = next((value for value in map(self._beyond, results) if value is not None), None)
        call = self._calls[0] if self._calls else None
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

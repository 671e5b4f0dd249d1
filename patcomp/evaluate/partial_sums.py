"""An evaluation that rounds as the Core AI runtime on Linux does, to tell its rounding from a wrong program.

In a product of float16 matrices, this runtime rounds every term and every partial sum, one after the other. In a scan,
it rounds every partial result, of bfloat16 too. PyTorch, the evaluator, and the other ops of the runtime compute such
sums in float32 and round once. Tests hold both rules to the runtime's numbers, bit by bit.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from patcomp.evaluate.machine import Machine
from patcomp.evaluate.registry import EvaluatedOp, Implementation, axis_of

_COMBINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": operator.add, "product": operator.mul}


@dataclass(eq=False)
class PartialSumMachine(Machine):
    """Rounds the partial sums of products of float16 matrices and the partial results of scans of half precision."""

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        return super().run_op(op, _rounding(op, operands) or implementation, operands)


def _rounding(op: EvaluatedOp, operands: Sequence[Any]) -> Implementation | None:
    """How the runtime computes an op, if it is not as the evaluator does."""
    name, dtype = op.operation.name, getattr(operands[0], "dtype", None) if operands else None
    if name in ("coreai.batch_matmul", "coreai.decomposable.broadcasting_batch_matmul") and dtype == torch.float16:
        return rounded_product
    if name == "coreai.scan" and dtype in (torch.float16, torch.bfloat16) and op.attribute("scan_op") in _COMBINED:
        return _scan
    return None


def rounded_product(op: EvaluatedOp, x: Tensor, y: Tensor) -> Tensor:
    """A product of matrices, (..., m, k) by (..., k, n), each of whose partial sums is rounded to their type."""
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    total = torch.zeros(*batch, x.shape[-2], y.shape[-1], dtype=x.dtype)
    term = torch.empty_like(total)
    for column, row in zip(x.unbind(-1), y.unbind(-2), strict=True):
        total += torch.mul(column.unsqueeze(-1), row.unsqueeze(-2), out=term)
    return total


def _scan(op: EvaluatedOp, x: Tensor, axis: Tensor, reverse: Tensor) -> Tensor:
    dim, combine = axis_of(op, axis, x.dim()), _COMBINED[op.attribute("scan_op")]
    items = list(x.unbind(dim))[:: -1 if bool(reverse) else 1]
    for index in range(1, len(items)):
        items[index] = combine(items[index - 1], items[index])
    return torch.stack(items[:: -1 if bool(reverse) else 1], dim) if items else x.clone()

"""Products by weights in the bodies of branches and loops, as the rounding by examples sees them.

A weight is rounded once, and a loop multiplies by it many times. So the op runs with the weight as it is, and its
inputs of all iterations count; then it runs again with what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from patcomp.compression.scheme import Stored
from patcomp.compression.weights import Weight
from patcomp.evaluate.lockstep import matrices_read, weight_operand
from patcomp.evaluate.machine import Machine
from patcomp.evaluate.registry import EvaluatedOp, Implementation
from patcomp.ir.axes import axes_before
from patcomp.ir.constants import weight_key
from patcomp.ir.module import IRModule
from patcomp.ir.types import HandleType
from patcomp.ir.xdsl import Operation, SSAValue, ops_inside

Products = Mapping[Operation, tuple[Weight, int]]
"""The products by weights in bodies, each with its weight and the number of the operand that it is."""


def products_in_bodies(weights: Iterable[Weight]) -> dict[Operation, dict[Operation, tuple[Weight, int]]]:
    """The products of each branch or loop of a graph by weights that matrix products alone read.

    Branches and loops that read or write states are left out, because they run twice.
    """
    found: dict[Operation, dict[Operation, tuple[Weight, int]]] = {}
    for weight in weights:
        for reader in weight.readers:
            outer = outermost(reader.op)
            if outer is reader.op or weight.kinds != ("matmul",) or not weight.has_one_layout or _has_states(outer):
                continue
            indices = [index for index in (0, 1) if weight_key(_behind_views(reader.op.operands[index])) == weight.key]
            if indices:
                found.setdefault(outer, {})[reader.op] = weight, indices[0]
    return found


def outermost(op: Operation) -> Operation:
    """The branch or loop of a graph that an op is in; the op itself if it is in none."""
    while (parent := op.parent_op()) is not None and parent.name != "coreai.graph":
        op = parent
    return op


def _has_states(op: Operation) -> bool:
    return any(isinstance(operand.type, HandleType) for each in (op, *ops_inside(op)) for operand in each.operands)


def _behind_views(value: SSAValue) -> SSAValue:
    """What a value is a transposed form of."""
    while isinstance(value.owner, Operation) and axes_before(value.owner) is not None:
        value = value.owner.operands[0]
    return value


class Bodies(Machine):
    """Runs a branch or a loop for one example.

    Args:
        module: the program.
        products: in the bodies.
        stored: gives the form of a weight to multiply by; None for its floats.

    Attributes:
        inputs: what the products by each weight multiplied it by, (matrices, rows, inputs), by the weight's key.
    """

    def __init__(self, module: IRModule, products: Products, stored: Callable[[Weight], Stored | None]):
        super().__init__(module)
        self._products, self._stored = products, stored
        self.inputs: dict[str, list[Tensor]] = {}

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        if op.operation in self._products:
            weight, index = self._products[op.operation]
            read, other = operands[index], operands[1 - index]
            seen = matrices_read(other, read, index, read.shape[:-2].numel())
            self.inputs.setdefault(weight.key, []).append(seen)
            if (stored := self._stored(weight)) is not None:
                operands = [*operands]
                operands[index] = weight_operand(weight.layout.matrices(stored.floats()), read, index)
        return super().run_op(op, implementation, operands)

"""One op on constant operands, for constant folding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.ir.evaluate.machine import Machine
from patcomp.ir.evaluate.registry import IMPLEMENTATIONS, EvaluatedOp
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name
from patcomp.ir.xdsl import Block, Operation, SSAValue


def evaluate_op(op: Operation, module: IRModule, known: Mapping[SSAValue, np.ndarray] = {}) -> list[np.ndarray]:
    """The results, in storage form (bf16 as uint16), of an op whose operands are `coreai.constant`s or known.

    Args:
        op, module: the op, and the module with the weights.
        known: the elements of other values, in storage form.

    Raises:
        EvaluationError: the op is not known or not defined for these operands, or numpy lacks its element type.
    """
    machine = Machine(module)
    operands = []
    for operand in op.operands:
        if operand in known:
            operands.append(_tensor(known[operand], operand))
            continue
        assert not isinstance(operand.owner, Block)
        operands.append(machine.constant(operand.owner.properties["value"]))
    implementation = IMPLEMENTATIONS.get(op.name)
    if implementation is None:
        raise EvaluationError(f"the evaluator does not know the op {op.name}")
    arrays = []
    for value in machine.run_op(EvaluatedOp(op, machine, {}), implementation, operands):
        value = value.contiguous()
        arrays.append(value.view(torch.uint16).numpy() if value.dtype == torch.bfloat16 else _numpy(value))
    return arrays


def _tensor(array: np.ndarray, value: SSAValue) -> Tensor:
    found = torch.from_numpy(array)
    is_bfloat16 = isinstance(value.type, TensorType) and element_name(value.type.element_type) == "bf16"
    return found.view(torch.bfloat16) if is_bfloat16 else found


def _numpy(value: Tensor) -> np.ndarray:
    try:
        return value.numpy()
    except TypeError as error:
        raise EvaluationError(f"constants of {value.dtype} are not folded") from error

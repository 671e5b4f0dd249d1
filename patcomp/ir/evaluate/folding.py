"""One op on constant operands, for constant folding."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.ir.evaluate.machine import Machine
from patcomp.ir.evaluate.registry import IMPLEMENTATIONS, EvaluatedOp
from patcomp.ir.module import IRModule
from patcomp.ir.xdsl import Block, Operation


def evaluate_op(op: Operation, module: IRModule) -> list[np.ndarray]:
    """The results, in storage form (bf16 as uint16), of an op whose operands are all `coreai.constant`s.

    Raises:
        EvaluationError: the op is not known or not defined for these operands, or numpy lacks its element type.
    """
    machine = Machine(module)
    operands = []
    for operand in op.operands:
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


def _numpy(value: Tensor) -> np.ndarray:
    try:
        return value.numpy()
    except TypeError as error:
        raise EvaluationError(f"constants of {value.dtype} are not folded") from error

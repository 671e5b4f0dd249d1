"""One op on constant operands, for constant folding."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.evaluate.machine import Machine, decode_constant
from patcomp.evaluate.registry import EvaluatedOp, implementations
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name
from patcomp.ir.xdsl import Block, DenseResourceAttr, Operation, SSAValue


def evaluate_op(
    op: Operation, module: IRModule, known: Mapping[SSAValue, np.ndarray] = {}, *, views: bool = False
) -> list[np.ndarray]:
    """The results, in storage form (bf16 as uint16, float8 as uint8), of an op on `coreai.constant`s or known values.

    Args:
        op, module: the op, and the module with the weights.
        known: the elements of other values, in storage form.
        views: whether results may be views of the operands, with any strides; otherwise they are contiguous.

    Raises:
        EvaluationError: the op is not known or not defined for these operands.
    """
    machine = Machine(module)
    operands = []
    for operand in op.operands:
        if operand in known:
            operands.append(_tensor(known[operand], operand))
            continue
        assert not isinstance(operand.owner, Block)
        attribute = operand.owner.properties["value"]
        # a weight is read once or twice here, and its elements, unpacked, would stay for as long as the module
        is_weight = isinstance(attribute, DenseResourceAttr)
        operands.append(decode_constant(attribute, module.blobs) if is_weight else machine.constant(attribute))
    implementation = implementations().get(op.name)
    if implementation is None:
        raise EvaluationError(f"the evaluator does not know the op {op.name}")
    arrays = []
    for value in machine.run_op(EvaluatedOp(op, machine, {}), implementation, operands):
        arrays.append(_array(value if views else value.contiguous()))
    return arrays


def copy_elements(source: np.ndarray, target: np.ndarray) -> None:
    """Copy the bits of elements between arrays of the same dtype and shape; PyTorch transposes four times as fast as
    numpy."""
    bits = f"i{source.dtype.itemsize}"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)  # it is only read
        torch.from_numpy(target.view(bits)).copy_(torch.from_numpy(source.view(bits)))


def _tensor(array: np.ndarray, value: SSAValue) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)  # it is only read
        found = torch.from_numpy(array)
    assert isinstance(value.type, TensorType)
    dtype = TORCH_DTYPES[element_name(value.type.element_type)]
    return found.view(dtype) if dtype in _STORAGE else found


def _array(value: Tensor) -> np.ndarray:
    return (value.view(_STORAGE[value.dtype]) if value.dtype in _STORAGE else value).numpy()


_STORAGE = {
    torch.bfloat16: torch.uint16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e8m0fnu: torch.uint8,
}
"""For each dtype that numpy lacks, the dtype of its bits."""

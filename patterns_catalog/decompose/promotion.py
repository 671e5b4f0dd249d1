"""PyTorch's type promotion inside decompositions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from patcomp.patterns import Rule, decomposition
from patcomp.pytorch import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from patcomp.pytorch import elementwise_dtypes


def in_floats(*operands: Any) -> tuple[list[Tensor], torch.dtype]:
    """Operands of a float function in the type in which PyTorch computes it, and the type of its result.

    Integers become floats, half precision becomes float32, numbers become tensors without dimensions.
    """
    computed, result = elementwise_dtypes(*operands, type_promotion_kind=KIND.INT_TO_FLOAT)
    return [_as(operand, computed) for operand in operands], result


def float_function(*ops: str, **declaration: Any) -> Callable[[Callable[..., Tensor]], Rule]:
    """A decomposition whose function gets its operands `in_floats`, and whose result is cast to PyTorch's type."""

    def declare(function: Callable[..., Tensor]) -> Rule:
        @wraps(function)
        def promoted(*operands: Tensor | float) -> Tensor:
            floats, result = in_floats(*operands)
            return function(*floats).to(result)

        return decomposition(*ops, **declaration)(promoted)

    return declare


def in_one_type(*operands: Any) -> list[Tensor]:
    """Operands as tensors of their common type."""
    _, result = elementwise_dtypes(*operands, type_promotion_kind=KIND.DEFAULT)
    return [_as(operand, result) for operand in operands]


def _as(operand: Any, dtype: torch.dtype) -> Tensor:
    return operand.to(dtype) if isinstance(operand, Tensor) else torch.full((), operand, dtype=dtype)

"""Ops of each element."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from patcomp.onnx.importing.ops.types import unary_ops
from patcomp.onnx.importing.rows import MICROSOFT, KnownNumber, NodeCall, OnnxRow, Operand, onnx_op

unary_ops({
    "Abs": torch.abs, "Neg": torch.neg, "Sign": torch.sign, "Ceil": torch.ceil, "Floor": torch.floor,
    "Round": torch.round, "Exp": torch.exp, "Log": torch.log, "Sqrt": torch.sqrt, "Reciprocal": torch.reciprocal,
    "Sin": torch.sin, "Cos": torch.cos, "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos, "Atan": torch.atan,
    "Sinh": torch.sinh, "Cosh": torch.cosh, "Tanh": torch.tanh, "Asinh": torch.asinh, "Acosh": torch.acosh,
    "Atanh": torch.atanh, "Erf": torch.erf, "IsNaN": torch.isnan, "Not": torch.logical_not,
    "BitwiseNot": torch.bitwise_not, "Sigmoid": torch.sigmoid, "Relu": torch.relu, "Softplus": F.softplus,
    "Softsign": F.softsign, "HardSwish": F.hardswish, "Mish": F.mish,
})  # fmt: skip


def _two(function: Any) -> OnnxRow:
    def row(x: Operand, y: Operand) -> Any:
        return function(x, y)

    return row


for _name, _function in {
    "Add": torch.add, "Sub": lambda x, y: x - y, "Mul": torch.mul, "Equal": lambda x, y: x == y,
    "Greater": lambda x, y: x > y, "GreaterOrEqual": lambda x, y: x >= y, "Less": lambda x, y: x < y,
    "LessOrEqual": lambda x, y: x <= y, "And": lambda x, y: x & y, "Or": lambda x, y: x | y, "Xor": lambda x, y: x ^ y,
    "BitwiseAnd": lambda x, y: x & y, "BitwiseOr": lambda x, y: x | y, "BitwiseXor": lambda x, y: x ^ y,
}.items():  # fmt: skip
    onnx_op(_name)(_two(_function))


@onnx_op("Div")
def div(x: Operand, y: Operand) -> Tensor:
    tensor = x if isinstance(x, Tensor) else y
    return x / y if tensor.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


@onnx_op("Pow")
def pow_(x: Tensor, y: Operand) -> Tensor:
    if isinstance(y, float) and y.is_integer():
        y = int(y) if x.dtype.is_floating_point and abs(y) < 100 else y
    return torch.pow(x, y).to(x.dtype)


@onnx_op("Mod")
def mod(x: Operand, y: Operand, *, fmod: int = 0) -> Tensor:
    return torch.fmod(x, y) if fmod else torch.remainder(x, y)


@onnx_op("BitShift")
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    return x << y if direction == "LEFT" else x >> y


@onnx_op("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    either = torch.isinf(x)
    return either if detect_negative and detect_positive else either & ((x < 0) if detect_negative else (x > 0))


@onnx_op("Where")
def _where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """A number takes the element type of the tensor; `torch.where` would promote."""
    if not isinstance(x, Tensor):
        x = torch.scalar_tensor(x, dtype=y.dtype)
    return torch.where(condition, x, y if isinstance(y, Tensor) else torch.scalar_tensor(y, dtype=x.dtype))


@onnx_op("Max")
def _max_(*x: Tensor) -> Tensor:
    return reduce(torch.maximum, x)


@onnx_op("Min")
def _min_(*x: Tensor) -> Tensor:
    return reduce(torch.minimum, x)


@onnx_op("Sum")
def sum_(*x: Tensor) -> Tensor:
    return reduce(torch.add, x)


@onnx_op("Mean")
def mean(*x: Tensor) -> Tensor:
    return reduce(torch.add, x) / len(x)


@onnx_op("Clip")
def clip(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    return x if min is None and max is None else torch.clamp(x, min, max)


@onnx_op("Dropout")
def dropout(x: Tensor, ratio: Any = 0.5, training: Any = None, *, seed: int = 0, node: NodeCall) -> Any:
    """The tensor itself: files are for inference.

    Raises:
        TypeError: the node is for training.
    """
    if training is not None and bool(training.number):
        raise TypeError("it is for training; export the model in eval mode")
    return (x, torch.ones_like(x, dtype=torch.bool)) if node.outputs > 1 else x


# ---- activations with numbers -----------------------------------------------------------------------


@onnx_op("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


@onnx_op("PRelu")
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


@onnx_op("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


@onnx_op("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.celu(x, alpha)


@onnx_op("Selu")
def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    return gamma * F.elu(x, alpha)


@onnx_op("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return F.hardsigmoid(x) if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5 else torch.clamp(alpha * x + beta, 0, 1)


@onnx_op("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return torch.where(x > alpha, x, torch.zeros_like(x))


@onnx_op("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))


@onnx_op("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.silu(x) if alpha == 1 else x * torch.sigmoid(alpha * x)


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return x * torch.sigmoid(alpha * x)


@onnx_op("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


@onnx_op("Gelu", "BiasGelu", domain=MICROSOFT)
def gelu_of_microsoft(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.gelu(x if bias is None else x + bias)


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@onnx_op("CumSum")
def cum_sum(x: Tensor, axis: KnownNumber, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    x = x.flip(axis) if reverse else x
    total = torch.cumsum(x, axis, dtype=x.dtype)
    total = total - x if exclusive else total
    return total.flip(axis) if reverse else total

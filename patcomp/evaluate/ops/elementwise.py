"""Element-wise ops: unary, binary and their broadcasting twins, comparison, selection, casts, complex parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from patcomp.evaluate.element_types import (
    TORCH_DTYPES,
    accumulated,
    as_bits,
    narrow,
    ordered,
    unordered,
    widen,
)
from patcomp.evaluate.registry import EvaluatedOp, computed, implements
from patcomp.ir.types import integer_range, is_float, is_integer

_Function = Callable[..., Tensor]

_UNARY: dict[str, _Function] = {
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "exp": torch.exp,
    "log": torch.log,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "not": torch.logical_not,
}
"""The torch functions that need no more than widening the operand and narrowing the result."""

_BINARY: dict[str, _Function] = {
    "add": torch.add,
    "mul": torch.mul,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "sub": torch.sub,
}
"""The same for two operands, with and without broadcasting."""


def _both(name: str) -> tuple[str, str]:
    """The plain op and its broadcasting twin; both mean the same, the plain one demands equal shapes."""
    return f"coreai.{name}", f"coreai.decomposable.broadcasting_{name}"


for _name in _UNARY:
    implements(f"coreai.{_name}")(computed(_UNARY[_name]))
for _name in _BINARY:
    implements(*_both(_name))(computed(_BINARY[_name]))


@implements("coreai.abs")
def abs_(op: EvaluatedOp, x: Tensor) -> Tensor:
    return x if op.operand_element().startswith("ui") else op.result(torch.abs(widen(x)))


@implements("coreai.round")
def round_(op: EvaluatedOp, x: Tensor) -> Tensor:
    return op.result(torch.round(x)) if x.is_floating_point() else x


@implements("coreai.relu")
def relu(op: EvaluatedOp, x: Tensor) -> Tensor:
    if op.operand_element().startswith("ui"):
        return x
    wide = widen(x)
    return op.result(torch.clamp(wide, min=0))


@implements("coreai.gelu")
def gelu(op: EvaluatedOp, x: Tensor) -> Tensor:
    approximate = op.attribute("approximate", "none")
    wide = accumulated(x)
    if approximate == "sigmoid":
        return op.result(wide * torch.sigmoid(1.702 * wide))
    if approximate == "tanh":
        return op.result(torch.nn.functional.gelu(wide, approximate="tanh"))
    # torch's own gelu of infinity is NaN
    return op.result(0.5 * wide * (1.0 + torch.erf(wide * 0.7071067811865476)))


@implements("coreai.silu")
def silu(op: EvaluatedOp, x: Tensor) -> Tensor:
    wide = accumulated(x)
    return op.result(wide * torch.sigmoid(wide))


def _compared(function: _Function) -> _Function:
    return lambda op, x, y: function(ordered(x), ordered(y))


def _extreme(function: _Function) -> _Function:
    return lambda op, x, y: unordered(function(ordered(x), ordered(y)), op.element())


implements(*_both("equal"))(_compared(torch.eq))
implements(*_both("not_equal"))(_compared(torch.ne))
implements(*_both("greater"))(_compared(torch.gt))
implements(*_both("maximum"))(_extreme(torch.maximum))
implements(*_both("minimum"))(_extreme(torch.minimum))


@implements(*_both("where"))
def where(op: EvaluatedOp, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition, as_bits(a), as_bits(b)).view(a.dtype)


# ---- division and power ---------------------------------------------------------------------------


def _divisor(op: EvaluatedOp, y: Tensor) -> Tensor:
    """The widened divisor; zero among integers aborts the runtime."""
    wide = widen(y)
    if is_integer(op.operand_element()) and bool((wide == 0).any()):
        raise op.error("integer division by zero")
    return wide


def _quotient(op: EvaluatedOp, x: Tensor, y: Tensor, rounding: str | None) -> Tensor:
    divisor = _divisor(op, y)
    if x.dtype == torch.uint64:
        return torch.from_numpy(np.floor_divide(x.numpy(), y.numpy()))
    wide = widen(x)
    if not is_integer(op.operand_element()):
        quotient = torch.div(wide, divisor)
        return op.result(quotient if rounding is None else _floored(wide, divisor, quotient))
    _refuse_overflow(op, wide, divisor)
    return op.result(torch.div(wide, divisor, rounding_mode=rounding or "trunc"))


def _floored(dividend: Tensor, divisor: Tensor, quotient: Tensor) -> Tensor:
    """The rounded-down quotient; infinity divided by a number is NaN at run time, as in Python."""
    return torch.where(dividend.isinf() & (divisor != 0), torch.nan, torch.floor(quotient))


def _refuse_overflow(op: EvaluatedOp, dividend: Tensor, divisor: Tensor) -> None:
    """The smallest integer divided by -1 aborts the runtime."""
    low = integer_range(op.operand_element())[0]
    if low < 0 and bool(((dividend == low) & (divisor == -1)).any()):
        raise op.error("the smallest integer divided by -1")


@implements(*_both("divide"))
def divide(op: EvaluatedOp, x: Tensor, y: Tensor) -> Tensor:
    return _quotient(op, x, y, None)


@implements(*_both("floor_divide"))
def floor_divide(op: EvaluatedOp, x: Tensor, y: Tensor) -> Tensor:
    return _quotient(op, x, y, "floor")


@implements(*_both("modulo"))
def modulo(op: EvaluatedOp, x: Tensor, y: Tensor) -> Tensor:
    divisor = _divisor(op, y)
    if x.dtype == torch.uint64:
        return torch.from_numpy(np.fmod(x.numpy(), y.numpy()))
    wide = widen(x)
    if is_integer(op.operand_element()):
        _refuse_overflow(op, wide, divisor)
    return op.result(torch.fmod(wide, divisor))


@implements(*_both("pow"))
def pow_(op: EvaluatedOp, x: Tensor, y: Tensor) -> Tensor:
    if not is_integer(op.operand_element()):
        return op.result(torch.pow(widen(x), widen(y)))
    base, exponent = torch.broadcast_tensors(widen(x), widen(y))
    unsigned = op.operand_element().startswith("u")
    # by squaring, because torch.pow does not wrap; a negative exponent gives 0, whatever the base
    power, square, bits = torch.ones_like(base), base, exponent
    for _ in range(64):
        power = torch.where((bits & 1) == 1, power * square, power)
        square, bits = square * square, (bits >> 1) & 0x7FFFFFFFFFFFFFFF
    return op.result(power if unsigned else torch.where(exponent < 0, 0, power))


# ---- casts and complex numbers --------------------------------------------------------------------


def saturate(x: Tensor, element: str) -> Tensor:
    """Floats as integers of an element type: truncated, clamped to its range, NaN as 0."""
    low, high = integer_range(element)
    if element == "ui64":
        values = np.trunc(np.nan_to_num(x.double().numpy(), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = np.clip(values, 0.0, 2.0**64 - 2048)
        return torch.from_numpy(np.where(values >= 2.0**64, np.uint64(high), inside.astype(np.uint64)))
    values = torch.nan_to_num(x.double(), nan=0.0, posinf=torch.inf, neginf=-torch.inf).trunc()
    if element == "si64":
        # 2**63 - 1 is no double: what reaches 2**63 is set apart
        clamped = values.clamp(float(low), 2.0**63 - 1024).to(torch.int64)
        return torch.where(values >= 2.0**63, high, clamped)
    return narrow(values.clamp(low, high).to(torch.int64), element)


def saturate_integer(x: Tensor, source: str, target: str) -> Tensor:
    """Integers of one element type in another, clamped to its range."""
    (lowest, highest), (low, high) = integer_range(source), integer_range(target)
    if source == "ui64":
        bound = ordered(torch.tensor(min(high, highest), dtype=torch.uint64))
        return narrow(unordered(torch.minimum(ordered(x), bound), "ui64").view(torch.int64), target)
    return narrow(widen(x).clamp(max(low, lowest), min(high, highest)), target)


@implements("coreai.cast")
def cast(op: EvaluatedOp, x: Tensor) -> Tensor:
    """Floats are truncated to integers; whatever does not fit an integer type saturates, from integers too."""
    source, target = op.operand_element(), op.element()
    if source == target:
        return x
    if target == "i1":
        return widen(x) != 0
    if source.startswith("complex"):
        x, source = torch.real(x), "f32"
    if is_integer(target) and is_float(source):
        return saturate(widen(x), target)
    if is_integer(target) and is_integer(source):
        return saturate_integer(x, source, target)
    if source == "ui64":
        return torch.from_numpy(x.numpy().astype(np.float64)).to(TORCH_DTYPES[target])
    if source == "i1":
        x = x.to(torch.int64)
    return narrow(widen(x), target)


@implements("coreai.create_complex")
def create_complex(op: EvaluatedOp, real: Tensor, imaginary: Tensor) -> Tensor:
    return torch.complex(real, imaginary)


@implements("coreai.real_part")
def real_part(op: EvaluatedOp, x: Tensor) -> Tensor:
    return op.result(torch.real(x))


@implements("coreai.imaginary_part")
def imaginary_part(op: EvaluatedOp, x: Tensor) -> Tensor:
    return op.result(torch.imag(x))

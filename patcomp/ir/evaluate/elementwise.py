"""Element-wise ops: unary, binary and their broadcasting twins, comparison, selection, casts, complex parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from patcomp.ir.evaluate.element_types import (
    TORCH_DTYPES,
    as_bits,
    integer_range,
    is_float,
    is_integer,
    narrow,
    ordered,
    unordered,
    widen,
)
from patcomp.ir.evaluate.registry import IMPLEMENTATIONS, Call, computed, implements

# torch functions that need no more than widening and narrowing
for _name, _function in {
    "abs": torch.abs,
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
    "silu": lambda x: x * torch.sigmoid(x),
    "not": torch.logical_not,
}.items():
    IMPLEMENTATIONS[f"coreai.{_name}"] = computed(_function)


def _both(name: str) -> tuple[str, str]:
    """The plain op and its broadcasting twin; both mean the same, the plain one demands equal shapes."""
    return f"coreai.{name}", f"coreai.decomposable.broadcasting_{name}"


for _name, _function in {
    "add": torch.add,
    "mul": torch.mul,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "sub": torch.sub,
}.items():
    implements(*_both(_name))(computed(_function))


@implements("coreai.round")
def round_(call: Call, x: torch.Tensor) -> torch.Tensor:
    return call.result(torch.round(x)) if x.is_floating_point() else x


@implements("coreai.relu")
def relu(call: Call, x: torch.Tensor) -> torch.Tensor:
    if call.operand_element().startswith("ui"):
        return x
    wide = widen(x)
    return call.result(torch.clamp(wide, min=0))


@implements("coreai.gelu")
def gelu(call: Call, x: torch.Tensor) -> torch.Tensor:
    approximate = call.attribute("approximate", "none")
    if approximate == "sigmoid":
        return call.result(x * torch.sigmoid(1.702 * x))
    return torch.nn.functional.gelu(x, approximate=approximate)


def _compared(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def implementation(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return function(ordered(x), ordered(y))

    return implementation


implements(*_both("equal"))(_compared(torch.eq))
implements(*_both("not_equal"))(_compared(torch.ne))
implements(*_both("greater"))(_compared(torch.gt))


def _extreme(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def implementation(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return unordered(function(ordered(x), ordered(y)), call.element())

    return implementation


implements(*_both("maximum"))(_extreme(torch.maximum))
implements(*_both("minimum"))(_extreme(torch.minimum))


@implements(*_both("where"))
def where(call: Call, condition: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(condition, as_bits(a), as_bits(b)).view(a.dtype)


# ---- division and power ---------------------------------------------------------------------------


def _divisor(call: Call, y: torch.Tensor) -> torch.Tensor:
    """The widened divisor; zero among integers aborts the runtime."""
    wide = widen(y)
    if is_integer(call.operand_element()) and bool((wide == 0).any()):
        raise call.error("integer division by zero")
    return wide


def _quotient(call: Call, x: torch.Tensor, y: torch.Tensor, rounding: str | None) -> torch.Tensor:
    divisor = _divisor(call, y)
    if x.dtype == torch.uint64:
        return torch.from_numpy(np.floor_divide(x.numpy(), y.numpy()))
    wide = widen(x)
    if is_integer(call.operand_element()):
        low = integer_range(call.operand_element())[0]
        if low < 0 and bool(((wide == low) & (divisor == -1)).any()):
            raise call.error("the smallest integer divided by -1")
        return call.result(torch.div(wide, divisor, rounding_mode=rounding or "trunc"))
    return call.result(torch.div(wide, divisor) if rounding is None else torch.floor(torch.div(wide, divisor)))


@implements(*_both("divide"))
def divide(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _quotient(call, x, y, None)


@implements(*_both("floor_divide"))
def floor_divide(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _quotient(call, x, y, "floor")


@implements(*_both("modulo"))
def modulo(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    divisor = _divisor(call, y)
    if x.dtype == torch.uint64:
        return torch.from_numpy(np.fmod(x.numpy(), y.numpy()))
    return call.result(torch.fmod(widen(x), divisor))


@implements(*_both("pow"))
def pow_(call: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if not is_integer(call.operand_element()):
        return call.result(torch.pow(widen(x), widen(y)))
    base, exponent = torch.broadcast_tensors(widen(x), widen(y))
    signed = not call.operand_element().startswith("u")
    # a power to a negative exponent is 1/x**n truncated: 0 unless |x| is 1
    negative = (exponent < 0) & signed
    power = torch.ones_like(base)
    square, bits = base.clone(), torch.where(negative, -exponent, exponent)
    for _ in range(64):
        if not bool(bits.any()):
            break
        power = torch.where((bits & 1) == 1, power * square, power)
        square, bits = square * square, (bits >> 1) & 0x7FFFFFFFFFFFFFFF
    inverse = torch.where(base.abs() == 1, power, torch.zeros_like(power))
    return call.result(torch.where(negative, inverse, power))


# ---- casts and complex numbers --------------------------------------------------------------------


def saturate(x: torch.Tensor, element: str) -> torch.Tensor:
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


@implements("coreai.cast")
def cast(call: Call, x: torch.Tensor) -> torch.Tensor:
    source, target = call.operand_element(), call.element()
    if source == target:
        return x
    if target == "i1":
        return widen(x) != 0
    if source.startswith("complex"):
        x, source = torch.real(x), "f32"
    if is_float(source) and is_integer(target):
        return saturate(widen(x), target)
    if source == "ui64" and is_float(target):
        return narrow(torch.from_numpy(x.numpy().astype(np.float64)), target)
    if source == "i1":
        x = x.to(torch.int64)
    elif is_integer(source) and is_integer(target):
        return _clamped(x, target)
    return narrow(widen(x), target) if not target.startswith("complex") else widen(x).to(TORCH_DTYPES[target])


def _clamped(x: torch.Tensor, target: str) -> torch.Tensor:
    return narrow(widen(x), target)


@implements("coreai.create_complex")
def create_complex(call: Call, real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
    return torch.complex(real, imaginary)


@implements("coreai.real_part")
def real_part(call: Call, x: torch.Tensor) -> torch.Tensor:
    return call.result(torch.real(x))


@implements("coreai.imaginary_part")
def imaginary_part(call: Call, x: torch.Tensor) -> torch.Tensor:
    return call.result(torch.imag(x))

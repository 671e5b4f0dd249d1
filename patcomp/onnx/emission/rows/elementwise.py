"""Element-wise ops and casts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from patcomp.ir.types import integer_range, is_float, is_integer
from patcomp.onnx.emission.nodes import COMPUTED, ONNX_TYPES, EmittedOp, NotInOnnxError, both, emits, simple

ONE_NODE = {
    "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh", "cos": "Cos",
    "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "log": "Log", "not": "Not", "sigmoid": "Sigmoid", "sin": "Sin",
    "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh", "abs": "Abs",
}  # fmt: skip
ONE_NODE_OF_TWO = {
    "sub": "Sub", "and": "And", "or": "Or", "xor": "Xor", "equal": "Equal", "maximum": "Max", "minimum": "Min",
}  # fmt: skip
ON_BOOLS = {
    "add": ("Add", "Or"), "mul": ("Mul", "And"), "bitwise_and": ("BitwiseAnd", "And"),
    "bitwise_or": ("BitwiseOr", "Or"), "bitwise_xor": ("BitwiseXor", "Xor"),
}  # fmt: skip
"""Ops that are another node where their operands are booleans."""


def _of_type(kind: str, of_bools: str) -> Callable[[EmittedOp], str]:
    return lambda call: simple(of_bools if call.element == "i1" else kind)(call)


for _name, _kind in ONE_NODE.items():
    emits(_name)(simple(_kind))
for _name, _kind in ONE_NODE_OF_TWO.items():
    emits(*both(_name))(simple(_kind))
for _name, _kinds in ON_BOOLS.items():
    emits(*both(_name))(_of_type(*_kinds))
emits(*both("where"))(
    lambda call: call.result(call.node("Where", call.inputs[0], *call.computed(1, 2)))
)  # fmt: skip
emits(*both("not_equal"))(lambda call: call.node("Not", call.scope.node("Equal", *call.computed())))


@emits(*both("greater"))
def greater(call: EmittedOp) -> str:
    if call.operand_element() != "i1":
        return call.node("Greater", *call.computed())
    return call.node("And", call.inputs[0], call.scope.node("Not", call.inputs[1]))


@emits("round")
def round_(call: EmittedOp) -> str:
    return simple("Identity" if is_integer(call.element) else "Round")(call)


@emits("relu")
def relu(call: EmittedOp) -> str:
    if is_integer(call.element):
        element = COMPUTED.get(call.element, call.element)
        return call.result(call.node("Max", *call.computed(), call.constant(0, element)))
    return simple("Relu")(call)


def _in_singles(call: EmittedOp) -> str:
    """The operand of a formula of several nodes: half precision is computed in f32, as the program does."""
    return call.cast(0, "f32") if call.element == "f16" else call.computed(0)[0]


def _from_singles(call: EmittedOp, name: str) -> str:
    return call.result(name, "f32" if call.element == "f16" else None)


@emits("rsqrt")
def rsqrt(call: EmittedOp) -> str:
    return _from_singles(call, call.node("Reciprocal", call.scope.node("Sqrt", _in_singles(call))))


@emits("silu")
def silu(call: EmittedOp) -> str:
    x = _in_singles(call)
    return _from_singles(call, call.node("Mul", x, call.scope.node("Sigmoid", x)))


@emits("gelu")
def gelu(call: EmittedOp) -> str:
    x, form = _in_singles(call), call.op.attributes["approximate"]
    if form == "sigmoid":
        element = "f64" if call.element == "f64" else "f32"
        sigmoid = call.scope.node("Sigmoid", call.scope.node("Mul", x, call.constant(1.702, element)))
        return _from_singles(call, call.node("Mul", x, sigmoid))
    return _from_singles(call, call.node("Gelu", x, approximate=form))


@emits(*both("divide"))
def divide(call: EmittedOp) -> str:
    return simple("Div")(call)  # of integers, it truncates


@emits(*both("floor_divide"))
def floor_divide(call: EmittedOp) -> str:
    x, y = call.computed()
    element, quotient = COMPUTED.get(call.element, call.element), call.scope.node("Div", x, y)
    zero = call.constant(0, element)
    if is_integer(element):  # one less where the truncated quotient is no quotient, and the signs differ
        inexact = call.scope.node("Not", call.scope.node("Equal", call.scope.node("Mul", quotient, y), x))
        signs = call.scope.node("Xor", call.scope.node("Less", x, zero), call.scope.node("Less", y, zero))
        less = call.scope.cast(call.scope.node("And", inexact, signs), element)
        return call.result(call.node("Sub", quotient, less))
    undefined = call.scope.node(
        "And", call.scope.node("IsInf", _single(call, x)), call.scope.node("Not", call.scope.node("Equal", y, zero))
    )
    floor = call.scope.node("Floor", quotient)
    return call.result(call.node("Where", undefined, call.constant(np.nan, element), floor))


def _single(call: EmittedOp, name: str) -> str:
    """A float for `IsInf` and `IsNaN`, which onnxruntime has for few types."""
    return call.scope.cast(name, "f32") if call.operand_element() == "f16" else name


@emits(*both("modulo"))
def modulo(call: EmittedOp) -> str:
    return simple("Mod", fmod=1)(call)


@emits(*both("pow"))
def pow_(call: EmittedOp) -> str:
    if not is_integer(call.element):
        return simple("Pow")(call)
    exponent = call.known(1)
    if exponent is None or exponent.size != 1 or not 1 <= (times := int(exponent.reshape(-1)[0])) <= 16:
        raise NotInOnnxError("a power of integers wraps around, and ONNX computes it in floats")
    (base,) = call.computed(0)
    power = call.constant(np.ones(exponent.shape), COMPUTED.get(call.element, call.element))
    for _ in range(times):
        power = call.scope.node("Mul", power, base)
    return call.result(power)


@emits("cast")
def cast(call: EmittedOp) -> str:
    """Floats are truncated to integers; what does not fit an integer type saturates, and NaN becomes 0."""
    source, target = call.operand_element(), call.element
    if target not in ONNX_TYPES or source not in ONNX_TYPES or (source == "ui64") != (target == "ui64"):
        raise NotInOnnxError(f"a cast from {source} to {target}")
    if not is_integer(target) or source == "i1":
        return call.node("Cast", call.inputs[0], to=ONNX_TYPES[target])
    low, high = integer_range(target)
    if is_float(source):
        wide = call.cast(0, "f64")
        numbers = call.scope.node("Where", call.scope.node("IsNaN", wide), call.constant(0.0, "f64"), wide)
        largest = float(high) if target != "si64" else 2.0**63 - 1024
        inside = call.scope.node(
            "Min", call.scope.node("Max", numbers, call.constant(float(low), "f64")), call.constant(largest, "f64")
        )
        made = call.node("Cast", inside, to=ONNX_TYPES[target])
        if target != "si64":
            return made
        beyond = call.scope.node("GreaterOrEqual", numbers, call.constant(2.0**63, "f64"))
        return call.node("Where", beyond, call.constant(high), made)
    lowest, highest = integer_range(source)
    if low <= lowest and highest <= high:
        return call.node("Cast", call.inputs[0], to=ONNX_TYPES[target])
    wide = call.cast(0, "si64")
    bounds = call.constant(max(low, lowest)), call.constant(min(high, highest))
    return call.node(
        "Cast", call.scope.node("Min", call.scope.node("Max", wide, bounds[0]), bounds[1]), to=ONNX_TYPES[target]
    )

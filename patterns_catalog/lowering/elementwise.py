"""Element-wise ops. After normalize, the tensors of an arithmetic op or comparison have one element type."""

from __future__ import annotations

from typing import Any

from patcomp.ir.types import BIT_WIDTHS, element_name, is_float, is_integer
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import OpRule, OpView, Rejected, example, lowering
from patterns_catalog.numbers import number_in

_FLOATS = example("2x3xf32")
_PAIR = example("2x3xf32", "3xf32")


def _unary(aten_name: str, coreai_name: str, values: str = "2x3xf32") -> OpRule:
    @lowering(aten_name, name=aten_name.removeprefix("aten."), examples=[example(values)])
    def rule(op: OpView, c: Any) -> Value:
        (argument,) = op.arguments
        # PyTorch computes float functions of integers in float
        return getattr(c, coreai_name)(c.cast(op[argument], op.result.element_type))

    return rule


acos = _unary("aten.acos", "acos", "2x3xf32[-1,1]")
acosh = _unary("aten.acosh", "acosh", "2x3xf32[1,4]")
asin = _unary("aten.asin", "asin", "2x3xf32[-1,1]")
asinh = _unary("aten.asinh", "asinh")
atan = _unary("aten.atan", "atan")
atanh = _unary("aten.atanh", "atanh", "2x3xf32[-0.9,0.9]")
cos = _unary("aten.cos", "cos")
cosh = _unary("aten.cosh", "cosh")
erf = _unary("aten.erf", "erf")
exp = _unary("aten.exp", "exp")
log = _unary("aten.log", "log", "2x3xf32[0.1,4]")
rsqrt = _unary("aten.rsqrt", "rsqrt", "2x3xf32[0.1,4]")
sigmoid = _unary("aten.sigmoid", "sigmoid")
silu = _unary("aten.silu", "silu")
sin = _unary("aten.sin", "sin")
sinh = _unary("aten.sinh", "sinh")
sqrt = _unary("aten.sqrt", "sqrt", "2x3xf32[0,4]")
tan = _unary("aten.tan", "tan", "2x3xf32[-1,1]")
tanh = _unary("aten.tanh", "tanh")


@lowering("aten.relu", examples=[_FLOATS, example("4xsi32[-3,3]")])
def relu(op: OpView, c: Any) -> Value:
    return c.relu(op["self"])


@lowering("aten.abs", examples=[_FLOATS, example("4xsi32[-3,3]")])
def absolute(op: OpView, c: Any) -> Value:
    op.expect(op["self"].dtype != "i1", "abs of a bool tensor")
    return c.abs_(op["self"])


@lowering("aten.neg", examples=[_FLOATS, example("4xsi32[-3,3]")])
def neg(op: OpView, c: Any) -> Value:
    "x * -1, which keeps the sign of a zero right; unsigned integers wrap in 0 - x"
    x = op["self"]
    return c.broadcasting_sub(0, x) if x.dtype[0] == "u" else c.broadcasting_mul(x, -1)


@lowering("aten.reciprocal", examples=[example("2x3xf32[0.5,2]")])
def reciprocal(op: OpView, c: Any) -> Value:
    return c.broadcasting_divide(1.0, c.cast(op["self"], op.result.element_type))


@lowering("aten.gelu", examples=[_FLOATS, example("2x3xf32", approximate="tanh")])
def gelu(op: OpView, c: Any) -> Value:
    return c.gelu(op["self"], approximate=op.approximate)


@lowering(
    "aten.logical_not", "aten.bitwise_not", examples=[example("4xi1"), example("4xsi32[-9,9]", op="aten.bitwise_not")]
)
def logical_not(op: OpView, c: Any) -> Value:
    "not x; for integers, bitwise not is -1 - x in two's complement"
    x = op["self"]
    if x.dtype == "i1":
        return c.not_(x)
    if op.op_name == "aten.bitwise_not":
        ones = (1 << BIT_WIDTHS[x.dtype]) - 1 if x.dtype[0] == "u" else -1
        return c.broadcasting_bitwise_xor(x, c.constant(ones, x.element_type))
    return c.broadcasting_equal(x, 0)


# ---- arithmetic -----------------------------------------------------------------------------------


def _operands(op: OpView) -> tuple[Value, Value]:
    x, y = op["self"], op.other
    op.expect(x.dtype == y.dtype, f"operands of the different dtypes {x.dtype} and {y.dtype}")
    return x, y


def _arithmetic(aten_name: str, coreai_name: str, of_bools: str | None = None) -> OpRule:
    integers = example("4xsi32", "2x4xsi32")
    examples = [integers] if "bitwise" in aten_name else [_PAIR, integers]

    @lowering(aten_name, name=aten_name.removeprefix("aten.").partition(".")[0], examples=examples)
    def rule(op: OpView, c: Any) -> Value:
        x, y = _operands(op)
        if "alpha" in op.arguments:
            op.expect(op.alpha == 1, "alpha is made a product by the normalize stage")
        if x.dtype == "i1":  # the runtime has no arithmetic on bools
            op.expect(of_bools is not None, "this arithmetic on bool tensors")
            return getattr(c, of_bools or "")(x, y)
        return getattr(c, coreai_name)(x, y)

    return rule


add = _arithmetic("aten.add.Tensor", "broadcasting_add", "broadcasting_or")
sub = _arithmetic("aten.sub.Tensor", "broadcasting_sub")
mul = _arithmetic("aten.mul.Tensor", "broadcasting_mul", "broadcasting_and")
maximum = _arithmetic("aten.maximum", "broadcasting_maximum", "broadcasting_or")
minimum = _arithmetic("aten.minimum", "broadcasting_minimum", "broadcasting_and")
bitwise_and = _arithmetic("aten.bitwise_and.Tensor", "broadcasting_bitwise_and", "broadcasting_and")
bitwise_or = _arithmetic("aten.bitwise_or.Tensor", "broadcasting_bitwise_or", "broadcasting_or")
bitwise_xor = _arithmetic("aten.bitwise_xor.Tensor", "broadcasting_bitwise_xor", "broadcasting_xor")


@lowering("aten.div.Tensor", examples=[example("2x3xf32", "3xf32[0.5,2]")])
def div(op: OpView, c: Any) -> Value:
    x, y = _operands(op)
    op.expect(is_float(x.element_type), "division of integers is made one of floats by the normalize stage")
    return c.broadcasting_divide(x, y)


@lowering(
    "aten.pow.Tensor_Tensor",
    examples=[example("2x3xf32[0.1,2]", "3xf32"), example("3xf32[0.1,2]", 2.0, op="aten.pow.Tensor_Scalar"),
              example("2x3xsi32[-3,3]", 5, op="aten.pow.Tensor_Scalar")],
)  # fmt: skip
def power(op: OpView, c: Any) -> Value:
    "x ** y; constant exponents as PyTorch computes them: 2, 3, 0.5, -0.5, -1, -2 are products and roots"
    x, y = op["self"], op.exponent
    op.expect(x.dtype == y.dtype, "operands of different dtypes")
    exponent = y.constant if y.rank <= x.rank else None
    if is_integer(x.element_type):
        # the runtime computes integer powers as floats, and aborts where they do not fit
        if exponent is None or exponent.size != 1:
            op.reject("an integer power with an exponent that is no constant")
        return _integer_power(op, c, x, int(exponent.reshape(())))
    if exponent is not None and exponent.size == 1:
        match float(exponent.reshape(())):
            case 0.5:
                return c.sqrt(x)
            case -0.5:
                return c.rsqrt(x)
            case -1.0:
                return c.broadcasting_divide(1.0, x)
            case 2.0:
                return c.broadcasting_mul(x, x)
            case -2.0:
                return c.broadcasting_divide(1.0, c.broadcasting_mul(x, x))
            case 3.0:
                return c.broadcasting_mul(c.broadcasting_mul(x, x), x)
    return c.broadcasting_pow(x, y)


def _integer_power(op: OpView, c: Any, x: Value, exponent: int) -> Value:
    """Products of squares, which wrap as PyTorch's powers do."""
    op.expect(0 <= exponent < 64, f"an integer to the power of {exponent}")
    if exponent == 0:
        return c.broadcast_to(c.constant(1, x.element_type), list(x.shape)) if x.rank else c.constant(1, x.element_type)
    power, square = None, x
    while exponent:
        if exponent & 1:
            power = square if power is None else c.broadcasting_mul(power, square)
        exponent >>= 1
        if exponent:
            square = c.broadcasting_mul(square, square)
    assert power is not None
    return power


# ---- comparisons, logic, choice -------------------------------------------------------------------


def _comparison(name: str, build: Any) -> OpRule:
    @lowering(
        f"aten.{name}.Tensor",
        name=name,
        examples=[_PAIR, example("9xsi32[0,3]", "9xsi32[0,3]"), example("4xi1", "4xi1")],
    )
    def rule(op: OpView, c: Any) -> Value:
        x, y = _operands(op)
        if x.dtype == "i1" and name not in ("eq", "ne"):
            x, y = c.cast(x, "si32"), c.cast(y, "si32")  # the runtime orders no bools
        return build(c, x, y)

    return rule


eq = _comparison("eq", lambda c, x, y: c.broadcasting_equal(x, y))
ne = _comparison("ne", lambda c, x, y: c.broadcasting_not_equal(x, y))
gt = _comparison("gt", lambda c, x, y: c.broadcasting_greater(x, y))
lt = _comparison("lt", lambda c, x, y: c.broadcasting_greater(y, x))
# not(x < y) would be true of NaN
ge = _comparison("ge", lambda c, x, y: c.broadcasting_or(c.broadcasting_greater(x, y), c.broadcasting_equal(x, y)))
le = _comparison("le", lambda c, x, y: c.broadcasting_or(c.broadcasting_greater(y, x), c.broadcasting_equal(x, y)))


_LOGIC = [example("4xi1", "4xi1"), example("2x5xf32[0,1]", "5xsi32[0,1]")]


@lowering("aten.logical_and", examples=_LOGIC)
def logical_and(op: OpView, c: Any) -> Value:
    element = op.result.element_type
    return c.broadcasting_and(convert(c, op["self"], element), convert(c, op.other, element))


@lowering("aten.logical_or", examples=_LOGIC)
def logical_or(op: OpView, c: Any) -> Value:
    element = op.result.element_type
    return c.broadcasting_or(convert(c, op["self"], element), convert(c, op.other, element))


@lowering("aten.where.self", examples=[example("2x3xi1", "2x3xf32", "3xf32")])
def where(op: OpView, c: Any) -> Value:
    op.expect(op.condition.dtype == "i1", "a condition that is not bool")
    op.expect(op["self"].dtype == op.other.dtype, "branches of different dtypes")
    return c.broadcasting_where(op.condition, op["self"], op.other)


@lowering(
    "aten.clamp",
    examples=[example("2x3xf32", -0.5, 0.5), example("2x3xf32", None, 0.5), example("5xsi32[-9,9]", -3, 3)],
)
def clamp(op: OpView, c: Any) -> Value:
    "min(max(x, low), high), so that NaN stays NaN and low > high gives high"
    x, low, high = op["self"], op.min, op.max
    element = op.result.element_type
    op.expect(
        is_float(element) or all(bound is None or isinstance(bound, int) for bound in (low, high)),
        "float bounds for an integer result",
    )
    x = c.cast(x, element)
    if low is not None:
        x = c.broadcasting_maximum(x, c.constant(number_in(low, element), element))
    if high is not None:
        x = c.broadcasting_minimum(x, c.constant(number_in(high, element), element))
    return x


@lowering("aten._to_copy", examples=[
    example("2x3xf32", dtype="si32"), example("4xsi32[-3,3]", dtype="f32"), example("4xsi32[-1,1]", dtype="i1"),
    example("6xsi32[-999,999]", dtype="si8"), example("6xsi32[-999,999]", dtype="ui8"), example("4xi1", dtype="si64"),
])  # fmt: skip
def to_copy(op: OpView, c: Any) -> Value:
    "a cast: integers wrap, floats are cut toward zero, anything but zero is true"
    op.ignore("dtype", because="the result type has it")
    return convert(c, op["self"], op.result.element_type)


def convert(c: Any, x: Value, element: Attribute) -> Value:
    """`x` in another element type, as PyTorch casts."""
    wanted = element_name(element)
    if wanted == "i1" and x.dtype != "i1":
        return c.broadcasting_not_equal(x, 0)
    if is_integer(x.element_type) and is_integer(element):
        return wrap(c, x, wanted)
    return c.cast(x, element)


def wrap(c: Any, x: Value, wanted: str) -> Value:
    """An integer cast that wraps; the runtime's saturates.

    Raises:
        Rejected: between signed and unsigned integers of 32 bits, which need a wider type to wrap in.
    """
    bits, signed = BIT_WIDTHS[wanted], wanted[0] == "s"
    if x.dtype != wanted and (x.dtype == "ui32" or (wanted == "ui32" and x.dtype[0] == "s")):
        raise Rejected(f"a cast of {x.dtype} to {wanted}, which has nowhere to wrap")
    if BIT_WIDTHS[x.dtype] < bits and (signed or x.dtype[0] == "u"):
        return c.cast(x, wanted)
    if BIT_WIDTHS[x.dtype] == bits and signed == (x.dtype[0] == "s"):
        return x
    wide = c.cast(x, "si32") if x.dtype != "si32" else x
    mask = c.constant((1 << bits) - 1, "si32")
    low = c.broadcasting_bitwise_and(wide, mask)
    if signed:  # (low ^ sign) - sign spreads the sign bit
        sign = c.constant(1 << (bits - 1), "si32")
        low = c.broadcasting_sub(c.broadcasting_bitwise_xor(low, sign), sign)
    return c.cast(low, wanted)

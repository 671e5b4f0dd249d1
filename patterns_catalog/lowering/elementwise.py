"""Element-wise ops. After normalize, the tensors of an arithmetic op or comparison have one element type."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import BIT_WIDTHS, is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, Rule, example, lowering

_FLOATS = example("2x3xf32")
PAIR = example("2x3xf32", "3xf32")


def _unary(aten_name: str, coreai_name: str, values: str = "2x3xf32") -> Rule:
    @lowering(aten_name, name=aten_name.removeprefix("aten."), examples=[example(values)])
    def rule(op: OpView, c: Coreai) -> Value:
        "the function of Core AI; integers are cast to float first, as in PyTorch"
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
def relu(op: OpView, c: Coreai) -> Value:
    "max(x, 0)"
    return c.relu(op["self"])


@lowering("aten.abs", examples=[_FLOATS, example("4xsi32[-3,3]")])
def absolute(op: OpView, c: Coreai) -> Value:
    "the absolute value"
    op.expect(op["self"].dtype != "i1", "abs of a bool tensor is not supported")
    return c.abs_(op["self"])


@lowering("aten.neg", examples=[_FLOATS, example("4xsi32[-3,3]")])
def neg(op: OpView, c: Coreai) -> Value:
    "x * -1, which keeps the sign of a zero right; unsigned integers wrap in 0 - x"
    x = op["self"]
    return c.broadcasting_sub(0, x) if x.dtype[0] == "u" else c.broadcasting_mul(x, -1)


@lowering("aten.reciprocal", examples=[example("2x3xf32[0.5,2]")])
def reciprocal(op: OpView, c: Coreai) -> Value:
    "1 / x; integers are cast to float first"
    return c.broadcasting_divide(1.0, c.cast(op["self"], op.result.element_type))


@lowering(
    "aten.gelu", examples=[_FLOATS, example("2x3xf32", approximate="tanh")],
    unspecified={"infinities and zeros": "eager's gelu of infinity is NaN, by accident"},
)  # fmt: skip
def gelu(op: OpView, c: Coreai) -> Value:
    "x times the normal distribution function, exact or by tanh"
    return c.gelu(op["self"], approximate=op.approximate)


@lowering(
    "aten.logical_not", "aten.bitwise_not", examples=[example("4xi1"), example("4xsi32[-9,9]", op="aten.bitwise_not")]
)
def logical_not(op: OpView, c: Coreai) -> Value:
    "not x; for integers, bitwise not is -1 - x in two's complement"
    x = op["self"]
    if x.dtype == "i1":
        return c.not_(x)
    if op.op_name == "aten.bitwise_not":
        ones = (1 << BIT_WIDTHS[x.dtype]) - 1 if x.dtype[0] == "u" else -1
        return c.broadcasting_bitwise_xor(x, c.constant(ones, x.element_type))
    return c.broadcasting_equal(x, 0)


# ---- arithmetic -----------------------------------------------------------------------------------


def same_typed(op: OpView) -> tuple[Value, Value]:
    """Both operands of a binary op, which are of one type since normalize."""
    x, y = op["self"], op.other
    op.expect(x.dtype == y.dtype, f"the operands have different dtypes, {x.dtype} and {y.dtype}; cast one of them")
    return x, y


def _arithmetic(aten_name: str, coreai_name: str, of_bools: str | None = None) -> Rule:
    integers = example("4xsi32", "2x4xsi32")
    examples = [integers] if "bitwise" in aten_name else [PAIR, integers]

    @lowering(aten_name, name=aten_name.removeprefix("aten.").partition(".")[0], examples=examples)
    def rule(op: OpView, c: Coreai) -> Value:
        "the broadcasting op of Core AI; of bools the logic op that means the same, or a refusal"
        x, y = same_typed(op)
        if "alpha" in op.arguments:
            op.expect(op.alpha == 1, "alpha must be 1 here, because the normalize stage makes other values a product")
        if x.dtype == "i1":  # the runtime has no arithmetic on bools
            op.expect(of_bools is not None, "this op is not supported for bool tensors; cast them to integers")
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
def div(op: OpView, c: Coreai) -> Value:
    "x / y of floats, broadcasting"
    x, y = same_typed(op)
    op.expect(is_float(x.element_type), "the operands must be floats here, because the normalize stage casts integers")
    return c.broadcasting_divide(x, y)

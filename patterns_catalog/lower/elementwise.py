"""Element-wise ops. After normalize, the tensors of an arithmetic op or comparison have one element type."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.types import BIT_WIDTHS
from patcomp.ir.value import Value
from patcomp.patterns import Attr, Rejected, example, formula
from patcomp.patterns.expressions import Expression
from patterns_catalog.lower.rows import row

_FLOATS = "2x3xf32"
_SIGNED = "4xsi32[-3,3]"
_INTEGERS = example("4xsi32", "2x4xsi32")
PAIR = example("2x3xf32", "3xf32")

_VALUES = {
    "acos": "[-1,1]", "acosh": "[1,4]", "asin": "[-1,1]", "asinh": "", "atan": "", "atanh": "[-0.9,0.9]", "cos": "",
    "cosh": "", "erf": "", "exp": "", "log": "[0.1,4]", "rsqrt": "[0.1,4]", "sigmoid": "", "silu": "", "sin": "",
    "sinh": "", "sqrt": "[0,4]", "tan": "[-1,1]", "tanh": "",
}  # fmt: skip
"""The functions of floats that Core AI has, and the values of an example."""

functions = [
    row(
        name, name, _FLOATS + values, computed="as the result",
        doc="the function of Core AI; integers are cast to float first, as in PyTorch",
    )
    for name, values in _VALUES.items()
]  # fmt: skip
reciprocal = row(
    "reciprocal", lambda c, x: c.broadcasting_divide(1.0, x), "2x3xf32[0.5,2]", computed="as the result",
    doc="1 / x; integers are cast to float first",
)  # fmt: skip
relu = row("relu", "relu", _FLOATS, _SIGNED, doc="max(x, 0)")
absolute = row(
    "abs", "abs_", _FLOATS, _SIGNED, name="absolute", doc="the absolute value",
    of={"bools": Rejected("abs of a bool tensor is not supported")},
)  # fmt: skip
neg = row(
    "neg", lambda c, x: c.broadcasting_mul(x, -1), _FLOATS, _SIGNED,
    of={"unsigned": lambda c, x: c.broadcasting_sub(0, x)},
    doc="x * -1, which keeps the sign of a zero right; unsigned integers wrap in 0 - x",
)  # fmt: skip
logical_not = row(
    "logical_not", lambda c, x: c.broadcasting_equal(x, 0), "4xi1", _SIGNED, of={"bools": "not_"},
    doc="whether x is zero",
)  # fmt: skip
bitwise_not = row(
    "bitwise_not", lambda c, x: complement(c, x), "4xi1", "4xsi32[-9,9]", of={"bools": "not_"},
    doc="x with every bit changed",
)  # fmt: skip


def complement(c: Coreai, x: Value) -> Value:
    """Integers with every bit changed, which also puts them in the opposite order."""
    ones = (1 << BIT_WIDTHS[x.dtype]) - 1 if x.dtype[0] == "u" else -1
    return c.broadcasting_bitwise_xor(x, c.constant(ones, x.element_type))


@formula(
    "lower", "aten.gelu", examples=[example(_FLOATS), example(_FLOATS, approximate="tanh")],
    unspecified={"infinities and zeros": "eager's gelu of infinity is NaN, by accident"},
)  # fmt: skip
def gelu(c: Coreai, self: Value, approximate: Any) -> Value:
    "x times the normal distribution function, exact or by tanh"
    return c.gelu(self, approximate=approximate)


_OF_BOOLS = {
    "add.Tensor": "or", "mul.Tensor": "and", "maximum": "or", "minimum": "and", "bitwise_and.Tensor": "and",
    "bitwise_or.Tensor": "or", "bitwise_xor.Tensor": "xor",
}  # fmt: skip
"""Binary ops, and the logic op that means the same of bools, because the runtime has no arithmetic on those."""


def _unscaled(alpha: Attr) -> list[Expression]:
    return [(alpha == 1).says("alpha must be 1, as the normalize stage spells this op")]


broadcasting_ops = [
    row(
        op, f"broadcasting_{op.removesuffix('.Tensor')}", *([] if "bitwise" in op else [PAIR]), _INTEGERS,
        where=_unscaled if op == "add.Tensor" else None, of={"bools": f"broadcasting_{of_bools}"},
        doc="the broadcasting op of Core AI; of bools the logic op that means the same",
    )
    for op, of_bools in _OF_BOOLS.items()
]  # fmt: skip
subtraction = row(
    "sub.Tensor", "broadcasting_sub", PAIR, _INTEGERS, where=_unscaled, doc="x - y, broadcasting",
    of={"bools": Rejected("this op is not supported for bool tensors; cast them to integers")},
)  # fmt: skip
_NO_INTEGERS = Rejected("the operands must be floats here, because the normalize stage casts integers")
div = row(
    "div.Tensor", "broadcasting_divide", example("2x3xf32", "3xf32[0.5,2]"), doc="x / y of floats, broadcasting",
    of={"bools": _NO_INTEGERS, "integers": _NO_INTEGERS},
)  # fmt: skip

"""Casts as PyTorch's: integers wrap, where the runtime's casts saturate."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import BIT_WIDTHS, element_name, is_integer
from patcomp.ir.value import Value, ValueType
from patcomp.ir.xdsl import Attribute
from patcomp.patterns import Rejected, example, formula
from patcomp.patterns.aspects import SPECIAL

BY_RESULT = {"dtype": "the result type has it"}
"""Why a formula ignores the argument `dtype`."""

_BEYOND = dict.fromkeys((*SPECIAL, "element types"), "a cast of a float outside the range of the integer type")


@formula("lower", "aten._to_copy", ignored=BY_RESULT, unspecified=_BEYOND, examples=[
    example("2x3xf32", dtype="si32"), example("4xsi32[-3,3]", dtype="f32"), example("4xsi32[-1,1]", dtype="i1"),
    example("6xsi32[-999,999]", dtype="si8"), example("6xsi32[-999,999]", dtype="ui8"), example("4xi1", dtype="si64"),
])  # fmt: skip
def to_copy(c: Coreai, self: Value, result: ValueType) -> Value:
    "a cast: integers wrap, floats are cut toward zero, anything but zero is true"
    return convert(c, self, result.element_type)


def convert(c: Coreai, x: Value, element: Attribute) -> Value:
    """`x` in another element type, as PyTorch casts."""
    wanted = element_name(element)
    if wanted == "i1" and x.dtype != "i1":
        return c.broadcasting_not_equal(x, 0)
    if is_integer(x.element_type) and is_integer(element):
        return wrap(c, x, wanted)
    return c.cast(x, element)


def truth(c: Coreai, x: Value) -> Value:
    """Whether each element is not zero; the runtime takes -0.0 for a number."""
    return x if x.dtype == "i1" else c.broadcasting_not_equal(x, 0)


def wrap(c: Coreai, x: Value, wanted: str) -> Value:
    """An integer cast that wraps; the runtime's saturates.

    Raises:
        Rejected: between signed and unsigned integers of 32 bits, which need a wider type to wrap in.
    """
    bits, signed = BIT_WIDTHS[wanted], wanted[0] == "s"
    if x.dtype != wanted and (x.dtype == "ui32" or (wanted == "ui32" and x.dtype[0] == "s")):
        raise Rejected(f"a cast of {x.dtype} to {wanted} is not supported, because the runtime cannot wrap its values")
    if BIT_WIDTHS[x.dtype] < bits and (signed or x.dtype[0] == "u"):
        return c.cast(x, wanted)
    if BIT_WIDTHS[x.dtype] == bits and signed == (x.dtype[0] == "s"):
        return x
    working = "si64" if BIT_WIDTHS[x.dtype] == 64 else "si32"
    wide = c.cast(x, working) if x.dtype != working else x
    low = c.broadcasting_bitwise_and(wide, c.constant((1 << bits) - 1, working))
    if signed:  # (low ^ sign) - sign spreads the sign bit
        sign = c.constant(1 << (bits - 1), working)
        low = c.broadcasting_sub(c.broadcasting_bitwise_xor(low, sign), sign)
    return c.cast(low, wanted)

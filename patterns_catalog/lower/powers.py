"""Powers. Constant exponents are products and roots, as PyTorch computes them; those of integers wrap."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.types import is_integer
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, lowering
from patterns_catalog.lower.combining import filled
from patterns_catalog.lower.integers import is_anywhere
from patterns_catalog.sizes import sizes_of


@lowering(
    "aten.pow.Tensor_Tensor",
    examples=[example("2x3xf32[0.1,2]", "3xf32"), example("3xf32[0.1,2]", 2.0, op="aten.pow.Tensor_Scalar"),
              example("2x3xsi32[-3,3]", 5, op="aten.pow.Tensor_Scalar"), example("2x9xsi32[-9,9]", "9xsi32[-3,9]")],
)  # fmt: skip
def power(op: OpView, c: Coreai) -> Value:
    "x ** y; constant exponents as PyTorch computes them: 2, 3, 0.5, -0.5, -1, -2 are products and roots"
    x, y = op["self"], op.exponent
    op.expect(x.dtype == y.dtype, "the operands of a power must have the same dtype; cast one of them")
    exponent = y.constant if y.rank <= x.rank else None
    if is_integer(x.element_type):
        # the runtime computes integer powers as floats, and aborts where they do not fit
        if exponent is None or exponent.size != 1:
            return _power_by_squaring(c, x, y)
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


def _integer_power(op: OpView, c: Coreai, x: Value, exponent: int) -> Value:
    """Products of squares, which wrap as PyTorch's powers do."""
    op.expect(0 <= exponent < 64, f"a power of integers needs an exponent from 0 to 63, got {exponent}")
    if exponent == 0:
        return filled(c, 1, sizes_of(c, x), x.element_type)
    power, square = None, x
    while exponent:
        if exponent & 1:
            power = square if power is None else c.broadcasting_mul(power, square)
        exponent >>= 1
        if exponent:
            square = c.broadcasting_mul(square, square)
    assert power is not None
    return power


def _power_by_squaring(c: Coreai, x: Value, exponent: Value) -> Value:
    """Powers with exponents known only at run time, bit by bit of the exponent; they wrap.

    With a negative exponent only 1 and -1 have a power that is not 0.
    """
    base = c.broadcasting_add(x, c.broadcasting_mul(exponent, 0))
    exponent = c.broadcasting_add(exponent, c.broadcasting_mul(x, 0))
    one = c.broadcasting_add(c.broadcasting_mul(base, 0), 1)

    def body(power: Value, square: Value, rest: Value) -> list[Value]:
        odd = c.broadcasting_not_equal(c.broadcasting_bitwise_and(rest, 1), 0)
        power = c.broadcasting_where(odd, c.broadcasting_mul(power, square), power)
        # a division cuts toward zero, so that negative exponents end there too
        return [power, c.broadcasting_mul(square, square), c.broadcasting_divide(rest, 2)]

    power, _, _ = c.while_([one, base, exponent], lambda _power, _square, rest: is_anywhere(c, rest), body)
    if x.dtype[0] == "u":
        return power
    small = c.broadcasting_equal(c.broadcasting_mul(base, base), 1)
    gone = c.broadcasting_and(c.broadcasting_greater(0, exponent), c.not_(small))
    return c.broadcasting_where(gone, 0, power)

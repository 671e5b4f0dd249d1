"""Powers. Constant exponents are products and roots, as PyTorch computes them; those of integers wrap."""

from __future__ import annotations

from collections.abc import Callable

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import Capture, Rejected, call, example, formula
from patcomp.patterns.conditions import is_integral
from patcomp.patterns.expressions import Expression
from patterns_catalog.lower.combining import filled
from patterns_catalog.lower.integers import is_anywhere
from patterns_catalog.sizes import sizes_of


def _number(x: Value, exponent: Value) -> float | None:
    """The constant exponent of all elements; None if there are several, or one that is computed."""
    constant = exponent.constant if exponent.rank <= x.rank else None
    return constant.reshape(()).item() if constant is not None and constant.size == 1 else None


_PRODUCTS: dict[float | None, Callable[[Coreai, Value, Value], Value]] = {
    0.5: lambda c, x, y: c.sqrt(x),
    -0.5: lambda c, x, y: c.rsqrt(x),
    -1.0: lambda c, x, y: c.broadcasting_divide(1.0, x),
    2.0: lambda c, x, y: c.broadcasting_mul(x, x),
    -2.0: lambda c, x, y: c.broadcasting_divide(1.0, c.broadcasting_mul(x, x)),
    3.0: lambda c, x, y: c.broadcasting_mul(c.broadcasting_mul(x, x), x),
}
"""The powers with constant exponents that PyTorch computes as products and roots."""


def _any_power(c: Coreai, x: Value, y: Value) -> Value:
    return c.broadcasting_pow(x, y)


def _same(self: Capture, exponent: Capture) -> Expression:
    same = self.dtype == exponent.dtype
    return same.says("the operands of a power must have the same dtype; cast one of them")


@formula(
    "lower", "aten.pow.Tensor_Tensor", where=lambda self, exponent: [~is_integral(self), _same(self, exponent)],
    examples=[example("2x3xf32[0.1,2]", "3xf32"), example("3xf32[0.1,2]", 2.0, op="aten.pow.Tensor_Scalar")],
)  # fmt: skip
def power(c: Coreai, self: Value, exponent: Value) -> Value:
    "x ** y; constant exponents as PyTorch computes them: 2, 3, 0.5, -0.5, -1, -2 are products and roots"
    return _PRODUCTS.get(_number(self, exponent), _any_power)(c, self, exponent)


# the runtime computes integer powers as floats, and aborts where they do not fit
integer_power = formula(
    "lower", "aten.pow.Tensor_Tensor", name="power of integers", doc="products of squares, which wrap as in PyTorch",
    where=lambda self, exponent: [is_integral(self), _same(self, exponent), ~call(_number, self, exponent).is_in(None)],
    examples=[example("2x3xsi32[-3,3]", 5, op="aten.pow.Tensor_Scalar")],
)(lambda c, self, exponent: _integer_power(c, self, exponent.constant.item()))  # fmt: skip
power_by_squaring = formula(
    "lower", "aten.pow.Tensor_Tensor", name="power of integers by integers", doc="exponents known only at run time",
    where=lambda self, exponent: [is_integral(self), _same(self, exponent), call(_number, self, exponent).is_in(None)],
    examples=[example("2x9xsi32[-9,9]", "9xsi32[-3,9]")],
)(lambda c, self, exponent: _power_by_squaring(c, self, exponent))  # fmt: skip


def _integer_power(c: Coreai, x: Value, exponent: int) -> Value:
    """Products of squares."""
    if not 0 <= exponent < 64:
        raise Rejected(f"a power of integers needs an exponent from 0 to 63, got {exponent}")
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

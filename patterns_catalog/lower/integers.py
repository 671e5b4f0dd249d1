"""Functions of integers whose number of steps depends on the numbers."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import example, formula


def is_anywhere(c: Coreai, x: Value) -> Value:
    """A 0-d bool: whether an element is not zero."""
    return c.reshape(c.any_(c.reshape(c.broadcasting_not_equal(x, 0), [-1]), [0]), [])


@formula(
    "lower", "aten.gcd", examples=[example("2x9xsi32[-99,99]", "9xsi32[-99,99]"), example("si32[0,0]", "3xsi32[0,1]")]
)
def gcd(c: Coreai, self: Value, other: Value, result: ValueType) -> Value:
    "the greatest common divisor, by Euclid's algorithm until no remainder is left"
    x, y = (c.abs_(c.cast(operand, result.element_type)) for operand in (self, other))
    left, right = c.broadcasting_add(x, c.broadcasting_mul(y, 0)), c.broadcasting_add(y, c.broadcasting_mul(x, 0))

    def body(left: Value, right: Value) -> list[Value]:
        done = c.broadcasting_equal(right, 0)
        rest = c.broadcasting_modulo(left, c.broadcasting_where(done, 1, right))
        return [c.broadcasting_where(done, left, right), rest]

    return c.while_([left, right], lambda _left, right: is_anywhere(c, right), body)[0]

"""Rounding and signs; `coreai` has `round`."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patterns_catalog.lower.rows import Build, row

_EXAMPLES = "2x9xf32[-4,4]", "4xsi32[-3,3]"


def rounded_down(c: Coreai, x: Value) -> Value:
    """The rounded value, less one where that is greater; `floor_divide` would lose infinities."""
    rounded = c.round_(x)
    return c.broadcasting_where(c.broadcasting_greater(rounded, x), c.broadcasting_sub(rounded, 1.0), rounded)


def _negated(c: Coreai, x: Value) -> Value:
    return c.broadcasting_mul(x, -1.0)


def without_fraction(c: Coreai, x: Value) -> Value:
    """Rounded toward zero; the sign of `x` stays with a zero."""
    whole = rounded_down(c, c.abs_(x))
    signed = c.broadcasting_where(c.broadcasting_greater(0.0, x), _negated(c, whole), whole)
    return c.broadcasting_where(c.broadcasting_equal(whole, 0.0), c.broadcasting_mul(x, 0.0), signed)


_ROUNDED: dict[str, tuple[Build, str]] = {
    "floor": (rounded_down, "the rounded value, less one where that is greater"),
    "ceil": (lambda c, x: _negated(c, rounded_down(c, _negated(c, x))), "-floor(-x), which keeps the sign of a zero"),
    "trunc": (without_fraction, "floor(abs(x)) with the sign of x"),
    "round": ("round_", "to the nearest integer, halves to the even one"),
}
rounded = [
    row(name, formula, *_EXAMPLES, of={"integers": lambda c, x: x}, doc=f"{doc}; integers stay")
    for name, (formula, doc) in _ROUNDED.items()
]


def _sign(c: Coreai, x: Value) -> Value:
    return c.broadcasting_sub(_positive(c, x), c.cast(c.broadcasting_greater(0, x), x.element_type))


def _positive(c: Coreai, x: Value) -> Value:
    return c.cast(c.broadcasting_greater(x, 0), x.element_type)


sign = row(
    "sign", _sign, *_EXAMPLES, of={"bools": lambda c, x: x, "unsigned": _positive},
    doc="(x > 0) - (x < 0), so that NaN gives 0",
)  # fmt: skip

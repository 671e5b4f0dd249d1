"""Which element types hold the numbers of others."""

from __future__ import annotations

from patcomp.ir.types import BIT_WIDTHS, element_name
from patcomp.ir.xdsl import Attribute

_FLOATS = {"f8E5M2": (3, 5), "f8E4M3FN": (4, 4), "f16": (11, 5), "bf16": (8, 8), "f32": (24, 8), "f64": (53, 11)}
"""The bits of the significand and of the exponent."""


def holds(wide: Attribute, narrow: Attribute) -> bool:
    """Whether an element type can represent every number of another."""
    outer, inner = element_name(wide), element_name(narrow)
    if inner in (outer, "i1"):
        return True
    if inner in _FLOATS:
        return outer in _FLOATS and all(o >= i for o, i in zip(_FLOATS[outer], _FLOATS[inner], strict=True))
    if not (signed := inner.startswith("si")) and not inner.startswith("ui"):
        return False
    digits = BIT_WIDTHS[inner] - signed
    if outer in _FLOATS:
        return _FLOATS[outer][0] >= digits
    if outer.startswith("si"):
        return BIT_WIDTHS[outer] - 1 >= digits
    return outer.startswith("ui") and not signed and BIT_WIDTHS[outer] >= digits

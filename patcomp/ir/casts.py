"""Casts that the toolchain drops, although they change numbers.

It merges a cast of a cast if the middle type has at least as many bits as the first type: for `x.int().float()` the
runtime computes `x`. Observed with coreai-core 1.0.0b3.
"""

from __future__ import annotations

from patcomp.ir.types import BIT_WIDTHS, element_name
from patcomp.ir.value import made_by
from patcomp.ir.xdsl import Attribute, SSAValue, TensorType

_CAST = "coreai.cast"
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


def is_dropped(value: SSAValue) -> bool:
    """Whether the toolchain drops the cast that made a value when the value is cast again, so that numbers change."""
    cast = made_by(value, _CAST)
    if cast is None or holds(_element(value), _element(cast.operands[0])):
        return False
    widths = []
    while cast is not None:  # casts before it become one first
        widths.append(_width(cast.operands[0]))
        cast = made_by(cast.operands[0], _CAST)
    return _width(value) >= min(widths)


def _element(value: SSAValue) -> Attribute:
    assert isinstance(value.type, TensorType)
    return value.type.element_type


def _width(value: SSAValue) -> int:
    return BIT_WIDTHS[element_name(_element(value))]

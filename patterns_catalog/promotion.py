"""PyTorch's type promotion, on the element types of the IR.

Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from patcomp.ir.types import BIT_WIDTHS, element_type
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Attribute

_BOOL, _INT, _FLOAT, _COMPLEX = range(4)


def _category(name: str) -> int:
    if name == "i1":
        return _BOOL
    return _INT if name[:2] in ("si", "ui") else _COMPLEX if name.startswith("complex") else _FLOAT


def promote(left: str, right: str) -> str:
    """The element type that holds both, `torch.promote_types` by names."""
    if left == right:
        return left
    low, high = sorted((left, right), key=_category)
    if _category(high) == _COMPLEX:
        return "complex<f64>" if "f64" in left + right else "complex<f32>"
    if _category(low) < _category(high):
        return high
    widths = BIT_WIDTHS[left], BIT_WIDTHS[right]
    if _category(left) == _INT and left[0] != right[0]:
        signed, unsigned = (left, right) if left[0] == "s" else (right, left)
        if BIT_WIDTHS[signed] > BIT_WIDTHS[unsigned]:
            return signed
        wider = BIT_WIDTHS[unsigned] * 2
        return f"si{wider}" if wider <= 64 else "f32"
    if widths[0] == widths[1]:
        return "f32"  # f16 and bf16
    return left if widths[0] > widths[1] else right


def _outrank(higher: str | None, lower: str | None) -> str | None:
    """The type of operands of a higher rank beside those of a lower one, which count by category only."""
    if higher is None or lower is None:
        return higher or lower
    if _category(lower) <= _category(higher) and _category(higher) != _BOOL:
        return higher
    if _category(higher) == _FLOAT:  # beside complex: the complex type of the same precision
        return "complex<f64>" if higher == "f64" else "complex<f32>"
    return promote(higher, lower)


def result_element(operands: Iterable[Any]) -> Attribute:
    """The element type in which an op on these tensors and numbers computes, `torch.result_type`.

    Tensors with dimensions outrank 0-d tensors, and those outrank Python numbers, within a category.
    """
    best: list[str | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Value):
            rank, name = (0 if operand.rank else 1), operand.dtype
        else:
            rank = 2
            name = "i1" if isinstance(operand, bool) else "si64" if isinstance(operand, int) else "f32"
            name = "complex<f32>" if isinstance(operand, complex) else name
        known = best[rank]
        best[rank] = promote(known, name) if known is not None else name
    result = _outrank(best[0], _outrank(best[1], best[2]))
    assert result is not None, "there are no operands"
    return element_type(result)

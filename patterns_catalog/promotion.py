"""PyTorch's type promotion, on the element types of the IR.

Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from patcomp.ir.types import BIT_WIDTHS, element_name, element_type
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


def result_element(operands: Iterable[Any]) -> Attribute:
    """The element type in which an op on these tensors and numbers computes, `torch.result_type`.

    Tensors with dimensions outrank 0-d tensors, and those outrank Python numbers, within a category.
    """
    best: dict[int, str] = {}
    for operand in operands:
        if isinstance(operand, Value):
            rank, name = (0 if operand.rank else 1), operand.dtype
        else:
            rank = 2
            name = "i1" if isinstance(operand, bool) else "si64" if isinstance(operand, int) else "f32"
        best[rank] = promote(best[rank], name) if rank in best else name
    result = ""
    for rank in sorted(best):
        name = best[rank]
        if not result or _category(name) > _category(result):
            # a number of a higher category brings that category's default type, but keeps a float's width
            result = name
    return element_type(result)


def same_element(left: Attribute, right: Attribute) -> bool:
    """Whether two element types are one."""
    return element_name(left) == element_name(right)

"""Cancel conversions between complex numbers and their parts, which import leaves (`decompositions/complex_*`).

Afterwards only inputs and outputs of the program are complex.
"""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Aten
from patcomp.ir.types import tensor
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import OpView, example, normalization, op_rule
from patterns_catalog.views import arguments_of

_PARTS = ("real", "imag")


def _part(aten: Aten, z: Value, index: int, result: ValueType) -> Value:
    """The real (0) or imaginary (1) part of a complex value."""
    made = arguments_of(z, "complex")
    if made is None:
        return aten.build(f"aten.{_PARTS[index]}", result, self=z)
    part: Value = made[_PARTS[index]]
    if part.type == result:
        return part
    sizes = [_broadcast_size(aten, axis, part, made[_PARTS[1 - index]], result) for axis in range(-result.rank, 0)]
    return aten.expand(result, part, size=sizes)


def _broadcast_size(aten: Aten, axis: int, part: Value, other: Value, result: ValueType) -> Any:
    """The size that complex(x, y) gives to an axis of a part, counted from the end: that of the other part, or its own.

    A dynamic size of its own stays; export makes sure that two dynamic sizes are equal.
    """
    size = result.shape[axis]
    if size is not None:
        return size
    if part.rank >= -axis and part.shape[axis] is None:
        return -1
    return aten.build("aten.sym_size.int", ValueType(tensor((), "si64")), self=other, dim=axis + other.rank)


def _second_column(torch: Any, x: Any, y: Any) -> Any:
    return torch.view_as_real(torch.complex(x, y))[..., 1]


@op_rule("normalize", "aten.select.int", name="normalize part of view_as_real", size=2, examples=[
    example("2x3xf32", "2x3xf32", program=_second_column),
])  # fmt: skip
def selected_part(op: OpView, aten: Aten) -> Value | None:
    "select(view_as_real(z), -1, 0 or 1) is a part of z"
    pairs = op["self"]
    viewed = arguments_of(pairs, "view_as_real")
    if viewed is None or op.dim % pairs.rank != pairs.rank - 1:
        return None
    return _part(aten, viewed["self"], op.index % 2, op.result)


@normalization("aten.view_as_real", examples=[example("2x3xcomplex<f32>"), example("complex<f32>")])
def view_as_real(op: OpView, aten: Aten) -> Value:
    "the parts of z side by side"
    z = op["self"]
    element = op.result.element_type
    parts = [_part(aten, z, index, ValueType(tensor(z.shape, element))) for index in (0, 1)]
    columns = [aten.unsqueeze(tensor((*z.shape, 1), element), part, dim=z.rank) for part in parts]
    return aten.cat(op.result, columns, dim=z.rank)

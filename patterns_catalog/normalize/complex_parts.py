"""Cancel conversions between complex numbers and their parts, which import leaves (`decompositions/complex_*`).

Afterwards only inputs and outputs of the program are complex.
"""

from __future__ import annotations

from typing import Any

from patcomp.authoring import Aten, AtenSource, AtenTarget, aten
from patcomp.ir.namespaces import aten_namespace
from patcomp.ir.types import tensor
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import Attr, Capture, Rewrite, build, example, formula, rule
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


def _selected(z: Value, index: int, part: Value) -> Value:
    return _part(aten, z, index % 2, part.type)


@rule(
    stage="normalize", into=aten_namespace, name="normalize part of view_as_real",
    example={"z": "2x3xcomplex<f32>", "dim": 2, "index": 1},
)  # fmt: skip
def selected_part(a: AtenSource, c: AtenTarget, z: Capture, dim: Attr, index: Attr) -> Rewrite:
    "select(view_as_real(z), -1, 0 or 1) is a part of z"
    part = a.op("select.int", a.seen(a.view_as_real(z)), dim=dim, index=index)
    return Rewrite(part, to=build(_selected, z, index, part), where=[dim % (z.rank + 1) == z.rank])


@formula("normalize", "aten.view_as_real", examples=[example("2x3xcomplex<f32>"), example("complex<f32>")])
def view_as_real(aten: Aten, self: Value, result: ValueType) -> Value:
    "the parts of z side by side"
    element = result.element_type
    parts = [_part(aten, self, index, ValueType(tensor(self.shape, element))) for index in (0, 1)]
    columns = [aten.unsqueeze(tensor((*self.shape, 1), element), part, dim=self.rank) for part in parts]
    return aten.cat(result, columns, dim=self.rank)

"""Writes into parts of a tensor in one spelling: `slice_scatter`, or a join of parts that are the whole tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from patcomp.authoring import Aten
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, formula, normalization
from patcomp.patterns.conditions import has_type, is_tensor
from patterns_catalog.views import arguments_of, read_by


@formula("normalize", "aten.copy", examples=[example("2x3xf32", "2x3xf32")],
         where=lambda src, result: [is_tensor(src) & has_type(src, result)],
         ignored={"self": "only its type matters, which the result has"})  # fmt: skip
def copy(aten: Aten, src: Value) -> Value:
    "a copy of a value of the type of the result is the value"
    return src


@dataclass(frozen=True)
class Write:
    """A write of neighbours along a dimension, at known positions."""

    before: Value
    part: Value
    """Without the dimension, if one position was written by `select_scatter`."""
    dim: int
    start: int
    end: int


def write_of(value: Value) -> Write | None:
    """The write that made a value; None if something else did."""
    given = arguments_of(value, "slice_scatter", "select_scatter")
    if given is None or not value.rank or given["src"].element_type != value.element_type:
        return None
    dim = given["dim"] % value.rank
    size = value.shape[dim]
    bounds = (given["index"],) if "index" in given else (given["start"], given["end"], given["step"])
    if size is None or any(isinstance(bound, Value) for bound in bounds):
        return None
    if "index" in given:
        start, end, step = given["index"] % size, given["index"] % size + 1, 1
    else:
        start, end, step = slice(*bounds).indices(size)
    return Write(given["self"], given["src"], dim, start, end) if start < end and step == 1 else None


def _is_written_again(x: Value, dim: int) -> bool:
    """Whether a write along the same dimension goes on with a value."""
    writes = [write_of(after) for after in read_by(x, "slice_scatter", "select_scatter")]
    return any(write is not None and (write.before, write.dim) == (x, dim) for write in writes)


def _filled(torch: Any, x: Any, y: Any) -> Any:
    whole = torch.zeros(4, 3)
    for position, part in enumerate((x[0], x[1])):
        whole = whole.select_scatter(part, 0, position)
    return whole.slice_scatter(y, 0, 2, 4)


@normalization("aten.slice_scatter", "aten.select_scatter", name="normalize writes of all parts", examples=[
    example("2x3xf32", "2x3xf32", program=_filled),
])  # fmt: skip
def writes_of_all_parts(op: OpView, aten: Aten) -> Value | None:
    """writes of all positions of a dimension are the written parts joined

    A loop that fills a new tensor, `result[:, i] = ...`, becomes this. The other dimensions may have any size. Writes
    to an argument stay, because a state, such as a cache of all layers, is better updated in its parts.
    """
    op.ignore(*op.arguments, because="write_of reads them")
    value = Value(op.operation.results[0])
    write = write_of(value)
    if write is None or _is_written_again(value, write.dim):
        return None
    dim, size = write.dim, value.shape[write.dim]
    parts: dict[int, Write] = {}
    while write is not None and write.dim == dim:
        if any(write.start < other.end and other.start < write.end for other in parts.values()):
            return None
        parts[write.start], before = write, write.before
        write = write_of(before)
    if before.maker is None:
        return None
    ordered = [parts[start] for start in sorted(parts)]
    if sum(part.end - part.start for part in ordered) != size:
        return None
    rows = [_row(aten, part.part, dim) if part.part.rank < value.rank else part.part for part in ordered]
    others = [(*row.shape[:dim], *row.shape[dim + 1 :]) for row in (value, *rows)]
    if len(set(others)) != 1:
        return None  # a size is known of one of them only
    return rows[0] if len(rows) == 1 else aten.cat(value.type, rows, dim=dim)


def _row(aten: Aten, part: Value, dim: int) -> Value:
    shape = (*part.shape[:dim], 1, *part.shape[dim:])
    row: Value = aten.unsqueeze(tensor(shape, part.element_type), part, dim=dim)
    return row

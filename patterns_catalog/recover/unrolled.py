"""Loops over a sequence that export has unrolled: what is read at each step, and how results are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patcomp.authoring import aten
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import OpView
from patterns_catalog.views import arguments_of, read_by


@dataclass(frozen=True)
class Element:
    """One element of a sequence: `source[:, ..., index]`, or a value of its own."""

    source: Value
    dim: int | None = None
    index: int = 0

    @property
    def before_last(self) -> bool:
        """Whether the source has the sequence in a dimension before the last one."""
        return self.dim is not None and self.dim < self.source.rank - 1


def element_at(value: Value) -> Element:
    """The element that a value is."""
    selected = arguments_of(value, "select.int")
    if selected is None:
        return Element(value)
    source, dim, index = selected["self"], selected["dim"], selected["index"]
    dim %= source.rank
    if not isinstance(index, int) or source.shape[dim] is None:
        return Element(value)
    return Element(source, dim, index % source.shape[dim])


def selected(x: Value, dim: int, index: int) -> Value:
    """`x[:, ..., index]`."""
    shape = x.static_shape
    type_ = tensor((*shape[:dim], *shape[dim + 1 :]), x.element_type)
    value: Value = aten.select.int(type_, x, dim=dim, index=index)
    return value


def joined_parts(whole: Value, dim: int) -> list[Value] | None:
    """The values that are joined along a new dimension, as `torch.stack` joins them; None if a tensor is not joined."""
    if (view := arguments_of(whole, "view")) is not None:
        join = arguments_of(view["self"], "cat")
        parts = [] if join is None or join["dim"] % view["self"].rank != dim else list(join["tensors"])
        shapes = {(*part.shape[:dim], len(parts), *part.shape[dim:]) for part in parts}
        return parts if shapes == {whole.shape} else None
    join = arguments_of(whole, "cat")
    if join is not None and join["dim"] % whole.rank != dim:
        return None
    rows = [whole] if join is None else join["tensors"]
    given = [arguments_of(row, "unsqueeze") for row in rows]
    parts = [row["self"] for row in given if row is not None and row["dim"] % whole.rank == dim]
    return parts if len(parts) == len(rows) else None


def joined(values: Sequence[Value]) -> tuple[Value, int] | None:
    """The tensor that joins values along a new dimension, and the dimension; None if anything else reads a value."""
    if not all(value.is_read_once for value in values):
        return None
    rows = read_by(values[0], "unsqueeze")
    wholes = [*rows, *(whole for row in rows for whole in read_by(row, "cat"))]
    wholes += [whole for join in read_by(values[0], "cat") for whole in read_by(join, "view")]
    for whole in wholes:
        for dim in range(whole.rank):
            if joined_parts(whole, dim) == list(values):
                return whole, dim
    return None


# ---- sequences that are padded to whole chunks ------------------------------------------------------


def without_padding(sequences: Sequence[Value], dim: int) -> tuple[list[Value], int]:
    """Sequences without the zeros behind their tokens, and how many these are; 0 and the sequences as they are, if they
    do not all have the same number."""
    padded = [_padded(x, dim) for x in sequences]
    counts = {count for _, count in padded}
    return ([x for x, _ in padded], counts.pop()) if len(counts) == 1 else (list(sequences), 0)


def _padded(x: Value, dim: int) -> tuple[Value, int]:
    given = arguments_of(x, "constant_pad_nd")
    if given is None or given["value"] != 0:
        return x, 0
    amounts = list(given["pad"])
    behind = 2 * (x.rank - 1 - dim) + 1
    count = amounts[behind] if behind < len(amounts) else 0
    only = [count if position == behind else 0 for position in range(len(amounts))]
    return (given["self"], count) if amounts == only and count > 0 else (x, 0)


def padded(x: Value, dim: int, count: int) -> Value:
    """A sequence with zeros behind its tokens."""
    if not count:
        return x
    shape = list(x.static_shape)
    shape[dim] += count
    pad = [0] * (2 * (x.rank - 1 - dim)) + [0, count]
    longer: Value = aten.constant_pad_nd(tensor(shape, x.element_type), x, pad=pad, value=0.0)
    return longer


def replace_cuts(op: OpView, old: Value, new: Value, dim: int) -> None:
    """Replace slices that leave out what is behind the tokens of a sequence by the sequence `new`."""
    for part in read_by(old, "slice.Tensor"):
        cut = arguments_of(part, "slice.Tensor")
        if cut and (cut["dim"] % part.rank, cut["start"], cut["step"]) == (dim, 0, 1) and part.type == new.type:
            op.replace(part, new)

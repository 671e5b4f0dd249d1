"""Rotary embeddings that a device computes from positions, instead of from tables that it reads.

    cos, sin = cos(p f) m, sin(p f) m;  rope(x, cos, sin)   ->   m rope(x, p)

The frequencies f are powers of a base, which become attributes, or an input of their own. m is the factor of
attention of models with longer contexts (YaRN).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.traits import Reshape
from patcomp.ir.types import is_float
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.composites.rope import powers, rope


def _turned(torch: Any, x: Any, p: Any, frequencies: Any, factor: float | None = None) -> Any:
    """Llama's rotation of (batch, heads, sequence, width) at positions, for the examples."""
    angles = p[:, :, None].float() * frequencies
    tables = torch.cat([angles, angles], -1)
    cos, sin = tables.cos(), tables.sin()
    if factor is not None:
        cos, sin = cos * factor, sin * factor
    half = x.shape[-1] // 2
    return x * cos[:, None] + torch.cat([-x[..., half:], x[..., :half]], -1) * sin[:, None]


def _of_base(torch: Any, base: float, half: int) -> Any:
    return 1.0 / base ** (torch.arange(half, dtype=torch.float32) / half)


@op_rule("target", rope, name="rope by positions", targets=("gpu",), examples=[
    example("1x2x5x8xf32", "1x5xsi32[0,99]", program=lambda torch, x, p: _turned(torch, x, p, _of_base(torch, 1e4, 4))),
    example("2x3x5x16xf32", "2x5xsi32[0,99]", program=lambda torch, x, p: (
        _turned(torch, x, p, _of_base(torch, 1e6, 8) * 0.125))),
    example("1x2x5x8xf32", "1x5xsi32[0,99]", program=lambda torch, x, p: (
        _turned(torch, x, p, torch.tensor([1.0, 0.3, 0.02, 0.001]), 1.25))),
])  # fmt: skip
def rope_by_positions(op: OpView, c: Coreai) -> Value:
    """rope(x, cos(p f) m, sin(p f) m) -> m rope(x, p), with f as `base` and `scale`, else as `freqs`

    A frequency of the body may differ from the model's in the last bit of float32.
    """
    op.expect(op.cos is not None, "the rope has no tables")
    options = {name: op[name] for name in ("dims", "interleaved")}
    op.ignore("position_ids", "freqs", "scale", "base", because="tables take their place")
    cos, sin = _table(op.cos, "coreai.cos"), _table(op.sin, "coreai.sin")
    if cos is None or sin is None:
        op.reject("the tables are not the cosine and sine of positions times constants")
    op.expect(cos == sin, "the two tables are of different angles")
    op.expect(op.input.rank == 4 and op.cos.type == op.sin.type, "the input must have rank 4, and the tables one type")
    positions = _positions(op, c, cos.positions, op.cos.shape)
    base, scale, frequencies = _base(cos.frequencies), 1.0, None
    if base is None:
        base, frequencies = 1e4, c.constant(cos.frequencies)
    else:
        scale = float(cos.frequencies[0])
    made = rope(op.input, None, None, positions, frequencies, scale=scale, base=base, **options)
    assert isinstance(made, Value)
    return made if cos.factor == 1 else c.broadcasting_mul(made, c.constant(cos.factor, made.element_type))


@dataclass(frozen=True, eq=False)
class _Table:
    """factor * cos(positions * frequencies), or of the sine."""

    positions: Value
    """Integers; the axes of the table, of which the last is 1 or missing."""
    frequencies: np.ndarray
    factor: float

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Table)
            and (self.positions, self.factor) == (other.positions, other.factor)
            and np.array_equal(self.frequencies, other.frequencies)
        )


def _table(table: Value, function: str) -> _Table | None:
    """What a table is computed from; None if it is something else."""
    factor, value = 1.0, _before_rounding(table)
    if (product := _product(value)) is not None:
        other, number = product
        if number.size != 1:
            return None
        factor, value = float(number.flat[0]), _before_rounding(other)
    if value.dtype != "f32" or not value.made_by(function):
        return None
    angles = _operands(value)[0]
    product = _product(angles)
    if product is None:
        return None
    positions, frequencies = product
    columns = frequencies.shape[-1:] == (frequencies.size,) == angles.shape[-1:]
    if not columns or positions.shape[-1] != 1 or positions.rank > angles.rank:
        return None
    cast = _before_views(positions)
    numbers = _operands(cast)[0] if cast.made_by("coreai.cast") else cast
    return _Table(numbers, frequencies.reshape(-1), factor) if numbers.dtype in _INTEGERS else None


_INTEGERS = ("si32", "ui32", "si16", "ui16", "si8", "ui8")


def _operands(value: Value) -> list[Value]:
    assert value.maker is not None
    return [Value(operand) for operand in value.maker.operands]


def _product(value: Value) -> tuple[Value, np.ndarray] | None:
    """The value and the constant whose product a value is."""
    if not value.made_by("coreai.decomposable.broadcasting_mul"):
        return None
    left, right = _operands(value)
    for one, other in ((left, right), (right, left)):
        if (constant := other.constant) is not None and constant.size:
            return one, constant
    return None


def _before_rounding(value: Value) -> Value:
    """A table before it was rounded to another float type, or given or rid of dimensions of size 1."""
    while True:
        value = _before_views(value)
        if not value.made_by("coreai.cast") or not is_float(_operands(value)[0].element_type):
            return value
        value = _operands(value)[0]


def _before_views(value: Value) -> Value:
    while value.made_by(Reshape) and _is_same_without_ones(value):
        value = _operands(value)[0]
    return value


def _is_same_without_ones(view: Value) -> bool:
    """Whether a view only adds or drops dimensions of size 1, and so keeps the order of the others."""
    before = _operands(view)[0]
    if not view.made_by("coreai.reshape"):
        return True
    sizes = [[size for size in each.shape if size != 1] for each in (before, view)]
    return sizes[0] == sizes[1] and sizes[0].count(None) < 2


def _positions(op: OpView, c: Coreai, given: Value, table: tuple[int | None, ...]) -> Value:
    """Positions as (batch, sequence), for tables that broadcast to (batch, heads, sequence, pairs)."""
    op.expect(len(table) < 3 or table[-3] == 1, "the tables differ between heads")
    wanted = (table[0] if len(table) == 4 else 1, table[-2])
    positions = given
    while positions.shape != wanted and positions.made_by(Reshape) and _is_same_without_ones(positions):
        positions = _operands(positions)[0]
    if positions.shape == wanted:
        return positions
    op.expect(positions.shape == wanted[1:] and wanted[0] == 1, "the tables do not have one position for each row")
    return c.expand_dims(positions, [0])


def _base(frequencies: np.ndarray) -> float | None:
    """The base of which frequencies are powers, times the first of them, up to the last bit; None if there is none."""
    half, first = frequencies.size, float(frequencies[0])
    if half == 1:
        return 1e4
    if not (np.isfinite(frequencies) & (frequencies > 0)).all():
        return None
    exact = (first / float(frequencies[-1])) ** (half / (half - 1))
    for base in (float(round(exact)), float(f"{exact:.6g}")):
        if 0 < base < 1e30:
            made = powers(half, first, base)
            if (np.abs(made - frequencies) <= np.spacing(frequencies)).all():
                return base
    return None

"""Gathers that a device computes elsewhere, as ops that it computes."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import condition, example, formula
from patcomp.patterns.conditions import is_constant
from patterns_catalog.slices import side_by_side, slice_axis

_MOST = 4
"""The most runs of consecutive rows that slices replace."""


def _runs(rows: int, indices: np.ndarray) -> list[np.ndarray]:
    """The runs of consecutive numbers of a column of indices."""
    numbers = indices.reshape(-1).astype(np.int64) % rows
    return np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)


@condition("{indices} choose rows of {x}, of static sizes")
def _choose_rows(x: Value, indices: Value, result: ValueType) -> bool:
    (count, *columns), rows = indices.shape, x.shape[1:]
    return columns == [1] and bool(count) and x.is_static and result.shape == (count, *rows)


@condition("{indices} are at most {most} runs of consecutive numbers")
def _are_few_runs(x: Value, indices: Value, most: int) -> bool:
    assert indices.constant is not None
    return len(_runs(x.static_shape[0], indices.constant)) <= most


@formula("target", "coreai.gather_nd", name="gather of runs as slices", targets=("neural_engine",), examples=[
    example("5x3x4xf32", program=lambda torch, x: torch.roll(x, -2, 0)),
    example("2x5x4xf32", program=lambda torch, x: torch.roll(x, (1, 2), (1, 2))),
], where=lambda input, indices, result: [
    is_constant(indices).says("the indices are not constant"),
    ((indices.rank > 0) & _choose_rows(input, indices, result)).says("the indices do not choose rows"),
    _are_few_runs(input, indices, _MOST).says(f"the rows are more than {_MOST} runs of consecutive numbers"),
])  # fmt: skip
def gather_of_runs_as_slices(c: Coreai, input: Value, indices: Value) -> Value:
    "rows of a few runs of consecutive numbers -> slices, side by side; shifted windows gather in this way"
    assert indices.constant is not None
    runs = _runs(input.static_shape[0], indices.constant)
    return side_by_side(c, 0, [slice_axis(c, input, 0, int(run[0]), int(run[-1]) + 1) for run in runs])

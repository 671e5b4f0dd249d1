"""Gathers that a device computes elsewhere, as ops that it computes."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule
from patterns_catalog.slices import slice_axis

_MOST = 4
"""The most runs of consecutive rows that slices replace."""


@op_rule("target", "coreai.gather_nd", name="gather of runs as slices", targets=("neural_engine",), examples=[
    example("5x3x4xf32", program=lambda torch, x: torch.roll(x, -2, 0)),
    example("2x5x4xf32", program=lambda torch, x: torch.roll(x, (1, 2), (1, 2))),
])  # fmt: skip
def gather_of_runs_as_slices(op: OpView, c: Coreai) -> Value:
    "rows of a few runs of consecutive numbers -> slices, side by side; shifted windows gather in this way"
    x, indices = op.input, op.indices.constant
    op.expect(indices is not None, "the indices are not constant")
    op.expect(indices.ndim == 2 and indices.shape[1] == 1 and indices.size > 0, "the indices do not choose rows")
    op.expect(op.result.shape == (len(indices), *x.shape[1:]) and x.is_static, "the indices do not choose rows")
    rows = indices.reshape(-1).astype(np.int64) % x.static_shape[0]
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    op.expect(len(runs) <= _MOST, f"the rows are {len(runs)} runs of consecutive numbers, more than {_MOST}")
    parts = [slice_axis(c, x, 0, int(run[0]), int(run[-1]) + 1) for run in runs]
    return parts[0] if len(parts) == 1 else c.concat(0, parts)

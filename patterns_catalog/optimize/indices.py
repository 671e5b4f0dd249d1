"""Indices of gathers and scatters."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, op_rule


@op_rule("optimize", "coreai.gather_nd", examples=[
    example("4x5xf32", program=lambda _, x: x[[-1, 2]]), example("4x5xf32", program=lambda _, x: x[[0, -4], [-1, 1]]),
])  # fmt: skip
def gather_from_the_front(op: OpView, c: Coreai) -> Value | None:
    """gather_nd(x, i) -> gather_nd(x, i + size where i < 0) of constant indices

    The toolchain reads outside of x where it folds a gather at negative indices.
    """
    indices = _from_the_front(op.input, op.indices)
    return None if indices is None else c.gather_nd(op.input, indices, result_type=op.result.attribute)


@op_rule("optimize", "coreai.scatter_nd", examples=[
    example("4x5xf32", "2x5xf32", program=lambda _, x, v: x.index_put((x.new_tensor([-1, 2]).long(),), v)),
])  # fmt: skip
def scatter_from_the_front(op: OpView, c: Coreai) -> Value | None:
    "scatter_nd(x, i, v) -> scatter_nd(x, i + size where i < 0, v) of constant indices"
    indices = _from_the_front(op.input, op.indices)
    return None if indices is None else c.scatter_nd(op.input, indices, op.updates, result_type=op.result.attribute)


def _from_the_front(x: Value, indices: Value) -> np.ndarray | None:
    """Constant indices counted from the front; None if they are so already, are not known, or are outside of `x`."""
    numbers = constant_values(indices.ssa, Builder.current().blobs)
    if numbers is None or not (numbers < 0).any():
        return None
    sizes = x.shape[: numbers.shape[-1]]
    if None in sizes or (numbers < -np.array(sizes)).any():
        return None
    return np.where(numbers < 0, numbers + np.array(sizes), numbers).astype(numbers.dtype)

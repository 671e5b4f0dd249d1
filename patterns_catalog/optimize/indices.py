"""Indices of gathers and scatters."""

from __future__ import annotations

import numpy as np

from patcomp.authoring import Coreai
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import condition, example, formula


@condition("{indices} are constants, some of them counted from the end of {x}")
def _count_from_the_end(x: Value, indices: Value) -> bool:
    numbers = constant_values(indices.ssa, Builder.current().blobs)
    if numbers is None or not (numbers < 0).any():
        return False
    sizes = x.shape[: numbers.shape[-1]]
    return None not in sizes and not (numbers < -np.array(sizes)).any()


def _from_the_front(x: Value, indices: Value) -> np.ndarray:
    """Constant indices counted from the front."""
    numbers = constant_values(indices.ssa, Builder.current().blobs)
    assert numbers is not None
    sizes = np.array(x.shape[: numbers.shape[-1]])
    return np.where(numbers < 0, numbers + sizes, numbers).astype(numbers.dtype)


@formula("optimize", "coreai.gather_nd", examples=[
    example("4x5xf32", program=lambda _, x: x[[-1, 2]]), example("4x5xf32", program=lambda _, x: x[[0, -4], [-1, 1]]),
], where=lambda input, indices: [_count_from_the_end(input, indices)])  # fmt: skip
def gather_from_the_front(c: Coreai, input: Value, indices: Value, result: ValueType) -> Value:
    """gather_nd(x, i) -> gather_nd(x, i + size where i < 0) of constant indices

    The toolchain reads outside of x where it folds a gather at negative indices.
    """
    return c.gather_nd(input, _from_the_front(input, indices), result_type=result.attribute)


@formula("optimize", "coreai.scatter_nd", examples=[
    example("4x5xf32", "2x5xf32", program=lambda _, x, v: x.index_put((x.new_tensor([-1, 2]).long(),), v)),
], where=lambda input, indices: [_count_from_the_end(input, indices)])  # fmt: skip
def scatter_from_the_front(c: Coreai, input: Value, indices: Value, updates: Value, result: ValueType) -> Value:
    "scatter_nd(x, i, v) -> scatter_nd(x, i + size where i < 0, v) of constant indices"
    return c.scatter_nd(input, _from_the_front(input, indices), updates, result_type=result.attribute)

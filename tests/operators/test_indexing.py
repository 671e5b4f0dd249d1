"""Values combined at places that repeat: integers that wrap, where the runtime's own sums abort; NaN in extremes."""

from __future__ import annotations

import pytest
import torch

from patcomp.emit.native import Native
from tests.catalog.cases import Case, assert_all_agree, overload_of, values

_PLACES = values([0, 0, 0, 2], torch.int64)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean"])
def test_integers_wrap(dtype: torch.dtype, reduce: str, native: Native) -> None:
    limits = torch.iinfo(dtype)
    x = values([limits.max, 3, limits.min], dtype)
    _check(x, values([limits.max, limits.max, 7, -1], dtype), reduce, native)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_nan_is_the_largest_and_the_smallest(reduce: str, native: Native) -> None:
    nan = float("nan")
    _check(values([1.0, 2.0, nan]), values([3.0, nan, 4.0, 5.0]), reduce, native)


def _check(x: torch.Tensor, source: torch.Tensor, reduce: str, native: Native) -> None:
    arguments = {"self": x, "dim": 0, "index": _PLACES, "src": source, "reduce": reduce}
    op = "aten.scatter_reduce.two"
    assert_all_agree(Case(op, arguments, [overload_of(op)(**arguments)]), native)

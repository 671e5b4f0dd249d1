"""Integers wrap where the runtime's own sums, products and quotients would end the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from patcomp.emit.native import Native
from tests.operators.programs import assert_agrees

CASES = [
    pytest.param(lambda x: x @ x.T, id="matrix product"),
    pytest.param(lambda x: torch.bmm(x[None], x.T[None]), id="matrix product of batches"),
    pytest.param(lambda x: torch.addmm(x[:, :3], x, x.T, alpha=3, beta=2), id="matrix product and sum"),
    pytest.param(lambda x: torch.mv(x, x[0]), id="product with a vector"),
    pytest.param(lambda x: x.cumsum(1, dtype=x.dtype), id="running sum"),
    pytest.param(lambda x: x[:1].repeat(1, 9000) @ x[:1].repeat(1, 9000).T, id="long product"),
    pytest.param(lambda x: x.repeat(1, 9000).cumsum(1, dtype=x.dtype), id="long running sum"),
    pytest.param(lambda x: torch.div(x, torch.full_like(x, -1), rounding_mode="floor"), id="quotient by -1"),
    pytest.param(lambda x: torch.remainder(x, torch.full_like(x, -1)), id="remainder by -1"),
    pytest.param(lambda x: torch.fmod(x, -1), id="remainder by the number -1"),
]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
@pytest.mark.parametrize("function", CASES)
def test_integers_wrap(function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype, native: Native) -> None:
    limits = torch.iinfo(dtype)
    x = torch.tensor([[limits.max] * 4, [limits.min] * 4, [limits.max, limits.min, -3, 7]], dtype=dtype)
    assert_agrees(native, function, x)

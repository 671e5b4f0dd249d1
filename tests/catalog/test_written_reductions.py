"""Norms of vectors and `log_softmax`, found where models write them out, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from patcomp.emit.native import Native
from tests.catalog.recovering import convert

X = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))


def _after_the_largest(x: torch.Tensor) -> torch.Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    return shifted - shifted.exp().sum(-1, keepdim=True).log()


FORMS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "x - logsumexp": ("log_softmax", lambda x: x - torch.logsumexp(x, 1, keepdim=True)),
    "after the largest": ("log_softmax", _after_the_largest),
    "root of squares": ("linalg_vector_norm", lambda x: (x * x).sum(-1).sqrt()),
    "half power of squares": ("linalg_vector_norm", lambda x: x / x.pow(2).sum((1, 2), keepdim=True).pow(0.5)),
    "sum of sizes": ("linalg_vector_norm", lambda x: x.abs().sum(1)),
    "largest size": ("linalg_vector_norm", lambda x: x.abs().amax((0, -1))),
    "smallest size": ("linalg_vector_norm", lambda x: x.abs().amin(-1, keepdim=True)),
    "normalize": ("linalg_vector_norm", lambda x: functional.normalize(x, p=3.0, dim=1)),
}


@pytest.mark.parametrize("default_table", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_forms_are_found(form: str, default_table: bool, native: Native) -> None:
    composite, function = FORMS[form]
    assert convert(function, X, default_table=default_table, native=native).composites == {composite: 1}


@pytest.mark.parametrize("size", [1e-30, 1e4, 3e38])
def test_extreme_numbers_agree(size: float, native: Native) -> None:
    assert convert(_after_the_largest, X.sign() * size, native=native).composites == {"log_softmax": 1}


NEAR_MISSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "another axis": lambda x: x - torch.logsumexp(x.transpose(1, 2), 2, keepdim=True).transpose(1, 2).sin(),
    "two axes": lambda x: x - torch.logsumexp(x, (1, 2), keepdim=True),
    "the largest along another axis": lambda x: x
    - (x - x.amax(1, keepdim=True)).exp().sum(2, keepdim=True).log()
    - x.amax(1, keepdim=True),
    "overflow": lambda x: x - x.exp().sum(-1, keepdim=True).log(),
    "log of softmax": lambda x: torch.softmax(x, -1).log(),
    "sum of cubes": lambda x: x.pow(3.0).sum(-1).abs().sqrt(),
    "mean of squares": lambda x: x.pow(2).mean(-1).sqrt(),
    "with eps": lambda x: (x.pow(2).sum(-1) + 1e-6).sqrt(),
    "largest": lambda x: x.amax(-1),
    "product": lambda x: (x * x.sin()).sum(-1).abs().sqrt(),
    "softplus": functional.softplus,
    "log1p of exp": lambda x: x.exp().log1p(),
}  # fmt: skip


@pytest.mark.parametrize("form", NEAR_MISSES)
def test_near_misses_stay(form: str) -> None:
    assert convert(NEAR_MISSES[form], X).composites == {}


def test_half_precision_stays() -> None:
    assert convert(FORMS["root of squares"][1], X.half()).composites == {}


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_softplus_agrees_where_exp_overflows(beta: float, native: Native) -> None:
    convert(lambda x: functional.softplus(x, beta), torch.tensor([-200.0, -1.0, 0.0, 19.0, 21.0, 200.0]), native=native)

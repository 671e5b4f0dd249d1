"""A fixed part of the operator sweep: what the table says passes does, and nothing is ever wrong, dead or an error.

`-m slow` runs the whole sweep.
"""

from __future__ import annotations

import pytest
import torch

from patcomp.emit.native import Native
from patcomp.frontend_torch.support import sweep_shares
from tests.operators.samples import DTYPES, name_of, operators, samples
from tests.operators.sweep import mismatch, run_sample

EVERY = {"float32": 25, "float16": 60, "bfloat16": 60, "int32": 45, "int64": 60, "bool": 60, "complex64": 60}
"""Of each element type every so many operators are run, with two samples each."""


def _parameters() -> list[object]:
    parameters = []
    for dtype, step in EVERY.items():
        for index, op in enumerate(operators(DTYPES[dtype])):
            marks = [pytest.mark.slow] if index % step else []
            parameters.append(pytest.param(op, dtype, id=f"{name_of(op)}-{dtype}", marks=marks))
    return parameters


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("op", "dtype"), _parameters())
def test_operator(op: object, dtype: str, native: Native, request: pytest.FixtureRequest) -> None:
    limit = None if request.node.get_closest_marker("slow") else 2
    refused = sweep_shares()[dtype]["others"]
    for sample in samples(op, DTYPES[dtype], limit):  # type: ignore[arg-type]
        outcome = run_sample(sample, native)
        allowed = {"pass", "not exported"} | ({"refused"} if name_of(op) in refused else set())  # type: ignore[arg-type]
        assert outcome.kind in allowed, f"{sample.text}: {outcome.kind}: {outcome.message}"


def test_comparison_tells_wrong_numbers() -> None:
    op = next(op for op in operators(torch.float32) if name_of(op) == "exp")
    sample = next(iter(samples(op, torch.float32)))
    assert mismatch(sample, sample.expected) == ""
    assert mismatch(sample, [sample.expected[0] + 1e-2]).startswith("output 0: ")
    assert mismatch(sample, [sample.expected[0].double()]).startswith("output 0 is torch.float64")

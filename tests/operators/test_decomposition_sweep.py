"""PyTorch's decompositions at the edges of their operators: each call converts to eager's numbers, or is refused.

`-m slow` runs the whole sweep.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest
import torch

from patcomp.ir import aten
from patcomp.pytorch import OpOverload
from tests.operators.decomposition_cases import Call, made_calls, sampled_calls
from tests.operators.decomposition_sweep import WAYS, Table, compared, converted, every_decomposition, overloads, sweep
from tests.operators.samples import DTYPES, OpInfo, name_of, operators

EXPLAINED = {
    "addmv": "eager PyTorch does not expand the result for an empty vector, unlike its shape function",
    "aten._native_batch_norm_legit*": "PyTorch calls it with weights and statistics of one size and type only",
    "aten._prelu_kernel_backward": "PyTorch calls it with weights that broadcast to the input only",
    "aten.hardsigmoid_backward": "eager PyTorch's 1 / 6 has the precision of float32",
    "aten.hardtanh_backward": "the vector and scalar loops of eager PyTorch differ for NaN",
    "aten.l*space*": "a range from or to an infinity",
    "aten.soft_margin_loss_backward": "eager PyTorch's exponential overflows to NaN",
    "*_unsafe_masked_index*": "PyTorch calls it with negative indices where they are masked only",
    "nn.functional.upsample*": "as `nn.functional.interpolate`",
    "nn.functional.interpolate*": "NaN or an infinity beside an element: kernels leave out terms with the weight 0",
    "*std_mean*": "the mean of infinities is infinite; it is NaN in the algorithm of eager PyTorch",
    "*var_mean*": "the same",
}
"""Departures from eager PyTorch that stay, by the subject of the sweep, and why."""

BEFORE_THE_TABLE = {
    "*multi_margin_loss": "NaN among the scores; PyTorch's own kernel decomposes the op before it asks a table",
}
"""The same, only of programs that `run_decompositions` has decomposed."""

NAN, INF = float("nan"), float("inf")


def _call(op: OpOverload, *args: Any, **kwargs: Any) -> Call:
    return Call(op, args, kwargs, aten.op_name(op.name()))


def _x(*numbers: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)


ops = torch.ops.aten
DEFECTS = {
    "the weight norm of a vector": _call(ops._weight_norm.default, _x(3, -4, 1), _x(1, 2, 3)),
    "targets that end with -1": _call(
        ops.multilabel_margin_loss.default, _x(1, -1, 0.5)[None], _x(0, 1, -1, dtype=torch.int64)[None]
    ),
    "one sample": _call(ops.multilabel_margin_loss.default, _x(1, -1), _x(0, -1, dtype=torch.int64), 0),
    "NaN in a loss": _call(ops.multilabel_margin_loss.default, _x(1, NAN), _x(0, -1, dtype=torch.int64), 2),
    "a threshold of integers": _call(ops.threshold.default, _x(-1, 0, 5, dtype=torch.int32), -1.5, 7),
    "an infinite alpha": _call(ops.celu.default, _x(0, 1), INF),
    "an infinite alpha of elu": _call(ops.elu.default, _x(0, 1), INF),
    "infinities beside NaN": _call(ops.isin.Tensor_Tensor, _x(INF, 1), _x(*[NAN, 1, 0, 2, INF, 3, 0, 4, -INF, 5] * 2)),
    "a gradient of two types": _call(ops.threshold_backward.default, _x(1, 2).half(), _x(0, 1), 0.5),
    "the gradient of integers": _call(
        ops.mse_loss_backward.default, *(torch.tensor(n, dtype=torch.int32) for n in (-5, [[6, -6, 5]] * 2, 1)), 1
    ),
    "the gradient of mish of two types": _call(ops.mish_backward.default, _x().bfloat16(), torch.tensor(-1.0)),
}
"""Calls whose decompositions by PyTorch are wrong."""


@cache
def _table() -> Table:
    return every_decomposition()


@pytest.mark.parametrize("name", DEFECTS)
def test_pytorchs_decomposition_departs_and_ours_does_not(name: str) -> None:
    call = DEFECTS[name]
    assert compared(call, _table())
    for way in WAYS:
        verdict = converted(call, way)
        assert verdict == "right" or verdict.startswith(("refused: a gradient", "not exported: a gradient")), way


def _explained(subject: str, way: str) -> bool:
    tables = (EXPLAINED, BEFORE_THE_TABLE) if way == "patcomp's table" else (EXPLAINED,)
    return any(fnmatch.fnmatch(subject, pattern) for table in tables for pattern in table)


def _check(subject: str, calls: Iterable[Call]) -> None:
    _, found = sweep(calls, _table())
    wrong = [
        f"{call}, {way}: {verdict}"
        for call, _, verdicts in found
        for way, verdict in verdicts.items()
        if verdict.startswith("wrong") and not _explained(subject, way)
    ]
    assert not wrong, "\n".join(wrong)


def _often(items: Iterable[Any], step: int, name: Callable[[Any], str]) -> list[Any]:
    """Parameters of which CI runs every so many."""
    return [
        pytest.param(item, id=name(item), marks=[pytest.mark.slow] if index % step else [])
        for index, item in enumerate(items)
    ]


@pytest.mark.parametrize("op", _often(overloads(), 60, lambda op: aten.op_name(op.name())))
def test_calls_from_schemas(op: OpOverload, request: pytest.FixtureRequest) -> None:
    is_slow = request.node.get_closest_marker("slow") is not None
    _check(aten.op_name(op.name()), made_calls(op, 100 if is_slow else 20))


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "uint8", "bool"])
@pytest.mark.parametrize("op", _often(operators(torch.float32), 120, name_of))
def test_samples_and_their_edges(op: OpInfo, dtype: str, request: pytest.FixtureRequest) -> None:
    if not op.supports_dtype(DTYPES[dtype], "cpu"):
        pytest.skip(f"the operator does not take {dtype}")
    is_slow = request.node.get_closest_marker("slow") is not None
    _check(name_of(op), sampled_calls(op, DTYPES[dtype], 3 if is_slow else 1))

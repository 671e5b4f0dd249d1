"""PyTorch's decompositions at the edges of their operators: each call converts to eager's numbers, or is refused.

`-m slow` runs the whole sweep.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from patcomp.ir import aten
from patcomp.pytorch import OpOverload
from tests.operators.decomposition_cases import Call, made_calls, sampled_calls
from tests.operators.decomposition_sweep import (
    BY_PYTORCH,
    WAYS,
    Table,
    changed_by_pytorch,
    compared,
    converted,
    every_decomposition,
    overloads,
    sweep,
)
from tests.operators.samples import DTYPES, OpInfo, name_of, operators

EXPLAINED = {
    "addmv": "eager PyTorch does not expand the result for an empty vector, unlike its shape function",
    "aten._native_batch_norm_legit*": "PyTorch calls it with weights and statistics of one size and type only",
    "aten._prelu_kernel_backward": "PyTorch calls it with weights that broadcast to the input only",
    "aten._weight_norm_interface*=float16*": "the norm of float16 is float32 in eager PyTorch, not in an export",
    "aten.multilabel_margin_loss_forward(self=bool[],*": "the same of no flags, as of no integers",
    "aten.multilabel_margin_loss_forward(self=*int*[],*": "eager PyTorch leaves the loss of no integers undefined",
    "aten.hardsigmoid_backward": "eager PyTorch's 1 / 6 has the precision of float32",
    "aten.hardtanh_backward": "the vector and scalar loops of eager PyTorch differ for NaN",
    "aten.ldexp.Tensor(*other=int64*": "eager PyTorch takes the exponent modulo 2 ** 32",
    "aten.l*space*inf*": "a range from or to an infinity",
    "*_unsafe_masked_index*": "PyTorch calls it with negative indices where they are masked only",
    "aten.embedding_dense_backward": "PyTorch calls it with a gradient for each index only",
    "aten.native_dropout_backward*complex64*scale=*inf*": "eager PyTorch multiplies both parts by the infinity",
    "nn.functional.upsample*": "as `nn.functional.interpolate`",
    "nn.functional.interpolate*": "a + (b - a) * 0 is NaN if a is infinite, and so is a product with a row of it",
    "nn.functional.pixel_unshuffle": "eager PyTorch leaves the shape of an image without elements as it is",
    "prod": "products beyond the range of the type, whose order decides between 0 and NaN",
    "*std_mean*": "the mean of infinities is infinite; it is NaN in the algorithm of eager PyTorch",
    "*var_mean*": "the same",
}
"""Departures from eager PyTorch that stay, by the subject of the sweep or the text of the call, and why."""

BEFORE_THE_TABLE = {
    "*multi_margin_loss": "NaN among the scores; PyTorch's own kernel decomposes the op before it asks a table",
    "aten.multilabel_margin_loss_forward": "the same, and one sample; `multilabel_margin_loss` itself is right",
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
    "complex ends of a range": _call(ops.logspace.Tensor_Scalar, torch.tensor(1 + 2j), 3, 2),
    "a gradient of two types": _call(ops.threshold_backward.default, _x(1, 2).half(), _x(0, 1), 0.5),
    "the gradient of integers": _call(
        ops.mse_loss_backward.default, *(torch.tensor(n, dtype=torch.int32) for n in (-5, [[6, -6, 5]] * 2, 1)), 1
    ),
    "the gradient of mish of two types": _call(ops.mish_backward.default, _x().bfloat16(), torch.tensor(-1.0)),
    "the gradient of a margin of two types": _call(
        ops.soft_margin_loss_backward.default, _x(1).double(), _x(2), _x(1), 0
    ),
    "the gradient of rrelu of two types": _call(
        ops.rrelu_with_noise_backward.default, _x(1).half(), _x(2), _x(0.5).half(), 0, 1, True, False
    ),
    "an infinite pixel": _call(
        ops.grid_sampler_2d.default, _x(INF, 1, 2, 3).reshape(1, 1, 2, 2), _x(9, 0).reshape(1, 1, 1, 2), 2, 0, False
    ),
}
"""Calls whose decompositions by PyTorch are wrong."""

CHANGED_BY_PYTORCH = [
    _call(ops._weight_norm_interface.default, _x(3, -4, 1), _x(1, 2, 3)),
    _call(ops.multilabel_margin_loss_forward.default, _x(1, -1), _x(0, -1, dtype=torch.int64), 0),
    _call(ops.multi_margin_loss.default, _x(NAN, 1, 2)[None], _x(1, dtype=torch.int64)),
    _call(ops.logit_backward.default, _x(1), _x(-0.5), -1.0),
    _call(ops.smooth_l1_loss_backward.default, _x(1), _x(0), _x(0), 2, -1.0),
    _call(ops.linspace.default, 0, INF, 3),
    _call(ops.logspace.default, -INF, 0, 3),
    _call(ops.upsample_linear1d.vec, _x(INF, 1, 1, 1)[None, None], [3], True, None),
    _call(ops.upsample_bilinear2d.default, _x(INF, *[1] * 15).reshape(1, 1, 4, 4), [3, 3], True),
    _call(ops.upsample_trilinear3d.vec, _x(INF, *[1] * 63).reshape(1, 1, 4, 4, 4), [3, 3, 3], True, None),
]
"""Calls that PyTorch's own table changes, besides these; patcomp refuses the ops, or `EXPLAINED` has the reason."""


@cache
def _table() -> Table:
    return every_decomposition()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DEFECTS)
def test_pytorchs_decomposition_departs_and_ours_does_not(name: str) -> None:
    call = DEFECTS[name]
    assert compared(call, _table())
    for way in WAYS:
        verdict = converted(call, way)
        assert verdict == "right" or verdict.startswith(("refused: ", "not exported: a gradient")), way


def _documented() -> set[str]:
    """The ops that the documentation says PyTorch's own table changes."""
    page = (Path(__file__).parents[2] / "docs" / "conversion-workflows.md").read_text()
    section = page.partition("### Numbers that PyTorch's own table changes")[2].partition("\n## ")[0]
    return {name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def _name(call: Call) -> str:
    return call.text.split(".")[1]


def test_the_documentation_lists_what_pytorchs_own_table_changes() -> None:
    calls = [*DEFECTS.values(), *CHANGED_BY_PYTORCH]
    changes = {_name(call) for call, message in zip(calls, changed_by_pytorch(calls), strict=True) if message}
    assert changes == _documented()


def _explained(subject: str, call: str, way: str) -> bool:
    tables = (EXPLAINED, BEFORE_THE_TABLE) if way == "patcomp's table" else (EXPLAINED,)
    return any(fnmatch.fnmatch(text, pattern) for table in tables for pattern in table for text in (subject, call))


def _operators() -> list[OpInfo]:
    """The operators that take any of the element types."""
    return list({name_of(op): op for dtype in DTYPES.values() for op in operators(dtype)}.values())


def _check(subject: str, calls: Iterable[Call]) -> list[str]:
    """Check the verdicts of calls; the result is the calls that PyTorch's own table changes."""
    _, found = sweep(calls, _table())
    wrong = [
        f"{call}, {way}: {verdict}"
        for call, _, verdicts in found
        for way, verdict in verdicts.items()
        if way in WAYS and verdict.startswith("wrong") and not _explained(subject, call, way)
    ]
    assert not wrong, "\n".join(wrong)
    return [
        call
        for call, _, verdicts in found
        if verdicts[BY_PYTORCH].startswith("wrong") and not _explained(subject, call, BY_PYTORCH)
    ]


def _often(items: Iterable[Any], step: int, name: Callable[[Any], str]) -> list[Any]:
    """Parameters of which CI runs every so many."""
    return [
        pytest.param(item, id=name(item), marks=[pytest.mark.slow] if index % step else [])
        for index, item in enumerate(items)
    ]


@pytest.mark.parametrize("op", _often(overloads(), 60, lambda op: aten.op_name(op.name())))
def test_calls_from_schemas(op: OpOverload, request: pytest.FixtureRequest) -> None:
    is_slow = request.node.get_closest_marker("slow") is not None
    name = aten.op_name(op.name())
    changed = _check(name, made_calls(op, 100 if is_slow else 20))
    for dtype in DTYPES.values() if is_slow else ():
        changed += _check(name, made_calls(op, 30, dtype))
    assert not changed or name.split(".")[1] in _documented(), changed


@pytest.mark.parametrize("op", _often(_operators(), 250, name_of))
def test_samples_and_their_edges(op: OpInfo, request: pytest.FixtureRequest) -> None:
    is_slow = request.node.get_closest_marker("slow") is not None
    for dtype in DTYPES.values():
        if op.supports_dtype(dtype, "cpu"):
            _check(name_of(op), sampled_calls(op, dtype, 2 if is_slow else 1))

"""Core ATen with every dimension dynamic: the numbers are eager's at all sizes, or it is refused for a reason.

`-m slow` runs all overloads, and samples of PyTorch's operators.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import interpolate, pad

from patcomp.emit.native import Native
from tests.operators.core import EXAMPLES
from tests.operators.dynamic import core_sample, run_dynamic
from tests.operators.samples import OpInfo, Program, Sample, name_of, operators, samples

EVERY = 5
"""Of the overloads every so many are run."""

GUARDS = "PyTorch's decomposition holds for some of the sizes only"

REFUSED = {
    "aten._fft_c2r": GUARDS,
    "aten._fft_r2c": GUARDS,
    "aten._pdist_forward": GUARDS,
    "aten.col2im": GUARDS,
    "aten.embedding_dense_backward": GUARDS,
    "aten.max_pool2d_with_indices_backward": GUARDS,
    **dict.fromkeys(("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d"), "the windows depend on the sizes"),
    **dict.fromkeys(("aten.adaptive_avg_pool1d", "aten.as_strided"), "places depend on the sizes"),
    **dict.fromkeys(("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices"), "places depend on the sizes"),
    "aten.native_group_norm": "the number of channels is dynamic",
}
"""What may be refused when all dimensions are dynamic, and why."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("decompose", [False, True], ids=["whole", "decomposed"])
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if i % EVERY else []) for i, n in enumerate(sorted(EXAMPLES))],
)
def test_core_overload(name: str, decompose: bool, native: Native) -> None:
    sample = core_sample(name)
    if not sample.program.tensors:
        pytest.skip("it has no tensor whose sizes could change")
    outcome = run_dynamic(sample, native, decompose=decompose)
    allowed = {"pass", "refused"} if name in REFUSED else {"pass"}
    assert outcome.kind in allowed, f"{outcome.kind}: {outcome.message}"


def _item(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    number = x.argmax(1)[0].item()
    torch._check(number >= 0)
    torch._check(number < x.shape[1])
    return x[:, number], x * number, torch.where(x > number, x, 0.0), x.select_scatter(x[:, 0], 1, number)


def _bool_item(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    positive, large = (x.sum() > 0).item(), (x.max() > 1).item()
    rows = torch.sym_ite(positive, 2, 3)
    return (
        x * positive,
        x + torch.sym_ite(large, 0.5, 1.5),
        torch.full((3,), positive),
        x.narrow(0, 0, rows),
        torch.cond(large, lambda x: x + 1, lambda x: x * 2, (x,)),
    )


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "numbers": lambda x: (x * x.shape[0] - x.shape[1], x.shape[0] - x, x.sum(0) / x.shape[0], x > x.shape[1] ** 0.5),
    "whole numbers": lambda x: (x.argmax(1) // x.shape[0], x.argmax(1) % x.shape[0], x.argmax(1) * x.shape[1]),
    "powers and bounds": lambda x: (
        x.abs() ** x.shape[0],
        x.clamp(max=x.shape[0]),
        x.argmax(1).clamp(1, x.shape[1] - 2),
    ),
    "fills": lambda x: (torch.full((x.shape[0], 3), x.shape[1]), x.new_zeros(x.shape[0], 1), torch.eye(x.shape[0])),
    "ranges": lambda x: (torch.arange(x.shape[0], dtype=x.dtype), torch.arange(1, 2 * x.shape[1], 2)),
    "items": _item,
    "bool items": _bool_item,
    "padding": lambda x: (
        pad(x, (0, x.shape[0])),
        pad(x, (0, -x.shape[1] % 4)),
        pad(x, (-1, -1)),
    ),
    "parts": lambda x: (*x.chunk(2, 1), *x.split([2, x.shape[1] - 2], 1), x.narrow(1, 1, x.shape[1] - 2)),
    "copies": lambda x: (
        x.repeat(3, 1, 2),
        x.repeat(x.shape[0], 1),
        x.repeat_interleave(2, 1),
        x.roll((1, -2), (0, 1)),
    ),
    "statistics": lambda x: (x.std(1), x.var(correction=0), x.norm(dim=1), x.logsumexp(1), x.cumsum(0), x.cummax(1)[1]),
    "orders": lambda x: (x.sort(1)[0], x.argsort(0), x.topk(x.shape[1] // 2, 1)[0], x.median(1)[0]),
    "masks": lambda x: (x[x > 0], x[x.sum(1) > 0], (x > 0).nonzero(), x.masked_scatter(x > 0, x.flatten()), x.tril()),
    "sums at places": lambda x: (
        x.argmax(1).new_zeros(x.shape[1]).scatter_add(0, x.argmax(1), torch.full_like(x.argmax(1), 2**30)),
        x.index_add(0, x.argmax(0) % x.shape[0], x.T @ x[:, : x.shape[1]]),
    ),
    "windows": lambda x: (x.unfold(1, 3, 1), x.unfold(0, 2, 1), x.unfold(-1, 2, 2), x.unfold(1, 1, 1)),
    "diagonals": lambda x: (
        x.diagonal(),
        x.diagonal(-1),
        x[None].expand(3, -1, -1).diagonal(1, 1, 2),
        x.diagonal(2, 1, 0),
    ),
    "resizes": lambda x: tuple(
        interpolate(x[None, None], scale_factor=factor, mode=mode)
        for factor, mode in ((2.0, "nearest"), (1.5, "nearest"), (2.0, "bilinear"))
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_of_sizes(name: str, native: Native) -> None:
    op = SimpleNamespace(name=name, op=FUNCTIONS[name])
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    program = Program(op, SimpleNamespace(input=x, args=(), kwargs={}))  # type: ignore[arg-type]
    outcome = run_dynamic(Sample(program, program(x), name), native)
    assert outcome.kind == "pass", f"{outcome.kind}: {outcome.message}"


@pytest.mark.slow
@pytest.mark.parametrize("op", [pytest.param(op, id=name_of(op)) for op in operators(torch.float32)])
def test_operator(op: OpInfo, native: Native) -> None:
    for sample in samples(op, torch.float32, 3):
        outcome = run_dynamic(sample, native, decompose=True)
        assert outcome.kind in ("pass", "refused", "not exported"), f"{sample.text}: {outcome.kind}: {outcome.message}"

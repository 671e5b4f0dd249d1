"""Tensors written in branches and in the bodies of loops, `torch.tensor([1.0, 2.0])`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from patcomp import TorchConverter, UnsupportedError


def branches(x: Tensor) -> Any:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x.max() > 5, lambda x: x * torch.tensor([2, 3, 4]), lambda x: x + torch.tensor(1.5), (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: x + torch.tensor([[True, False, True]]), (x,))


def loop(x: Tensor) -> Any:
    def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, y * torch.tensor([1.0, float("inf"), -2.0]) + torch.tensor([0.5, 0.5, 0.5])

    return while_loop(lambda i, y: i < torch.tensor(3), body, (torch.tensor(0), x))


def rows(x: Tensor) -> Any:
    written = x.clone()
    written.add_(1)
    sums = scan(lambda s, r: (s + r * torch.tensor([1.0, 2.0, 3.0]), s * torch.tensor(2.0)), torch.zeros(3), written)
    joined = associative_scan(lambda a, b: a + b * torch.tensor(0.5), x, 0, combine_mode="generic")
    return *sums, map_rows(lambda r: r - torch.tensor([3.0, 2.0, 1.0]), x), joined


@pytest.mark.parametrize("function", [branches, loop, rows])
def test_as_eager(function: Callable[[Tensor], Any]) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function(x)

    x = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
    exported = torch.export.export(Model(), (x,))  # PyTorch cannot save it
    graphs = [str(each.graph) for each in exported.graph_module.modules()]  # type: ignore[union-attr]
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert [str(each.graph) for each in exported.graph_module.modules()] == graphs  # type: ignore[union-attr]
    for given in (x, -x, 4 * x):
        wanted, made = function(given), program.run(given)
        several = isinstance(wanted, tuple)
        for output, expected in zip(made if several else [made], wanted if several else [wanted], strict=True):
            torch.testing.assert_close(torch.as_tensor(output), expected, check_dtype=False, equal_nan=True)


def test_a_large_tensor_is_refused() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: x + torch.tensor(list(range(2000))), lambda x: x * 2, (x,))

    exported = torch.export.export(Model(), (torch.ones(2000),))
    with pytest.raises(UnsupportedError, match="written with a tensor of 2000 elements; make it a buffer"):
        TorchConverter().add_exported_program(exported)

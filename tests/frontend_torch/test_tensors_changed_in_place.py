"""Tensors that are turned into another view of their memory, numbers copied into tensors, and writes to no elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from patcomp import TorchConverter


def turned_and_written(x: Tensor) -> Any:
    row = x[0]
    turned = x.t_()
    turned.add_(1)
    row.mul_(3)
    return x * 2, x.sum(1), row


def copies_turned(x: Tensor) -> Any:
    copied = x.clone().unsqueeze_(0).swapaxes_(0, 2)
    copied[1:].mul_(2)
    return copied.transpose_(0, 1).squeeze_(), x.t_()


def turned_before_a_branch(x: Tensor) -> Any:
    x.transpose_(0, 1).add_(1)
    return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))


def copied_numbers(x: Tensor) -> Any:
    whole, part = x.int(), x.clone()
    part[1:].copy_(-2)
    return whole.copy_(2.7) * x, part, x.bool().copy_(3), x.copy_(0.5) * 2


def nothing_written(x: Tensor) -> Any:
    part = x.clone()
    part[:, 5::2] = x[:, 5::2] * 2
    part[3:, ::2].fill_(9)
    part[0, 4::3].copy_(x[1, 4::3])
    return part


@pytest.mark.parametrize(
    ("function", "is_open", "decomposed"),
    [
        *((function, False, False) for function in (turned_and_written, copies_turned, turned_before_a_branch)),
        *((copied_numbers, is_open, decomposed) for is_open in (False, True) for decomposed in (False, True)),
        (nothing_written, False, False),
    ],
)
def test_as_eager(function: Callable[[Tensor], Any], is_open: bool, decomposed: bool) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function(x)

    x = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0], [2.0, 2.0, -7.0]])
    dims = {0: Dim("n", min=3, max=9)} if is_open else {}
    exported = torch.export.export(Model(), (x.clone(),), dynamic_shapes={"x": dims})
    exported = exported.run_decompositions() if decomposed else exported
    program = TorchConverter().add_exported_program(exported).to_coreai()
    for given in (x, torch.cat([x, -x])) if is_open else (x,):
        wanted, made = function(given.clone()), program.run(given.clone())
        several = isinstance(wanted, tuple)
        for output, expected in zip(made if several else [made], wanted if several else [wanted], strict=True):
            torch.testing.assert_close(torch.as_tensor(output), expected, check_dtype=False)

"""Control flow: models and comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from patcomp import AIProgram
from patcomp.emit.native import Native
from patcomp.evaluate.element_types import to_tensor


class Captures(nn.Module):
    """A model whose control flow may use its layers."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(3, 3), nn.LayerNorm(3)
        self.weight = nn.Parameter(torch.randn(3))
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def zero() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64)


def assert_agrees(model: nn.Module, program: AIProgram, inputs: tuple[Any, ...], native: Native) -> None:
    """Evaluator and runtime agree with eager in every result."""
    leaves = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        expected = leaves(model(*inputs))
    narrow = [value.to(torch.int32) if value.dtype == torch.int64 else value for value in leaves(inputs)]
    given = dict(zip(program.input_names(), narrow, strict=True))
    for outputs in (program.run(given), native.run(program.module, given)):
        for name, wanted in zip(program.output_names(), expected, strict=True):
            wanted = wanted.to(torch.int32) if wanted.dtype == torch.int64 else wanted
            torch.testing.assert_close(to_tensor(outputs[name]), wanted, atol=1e-5, rtol=1e-4)

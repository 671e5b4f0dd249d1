"""Functions of dynamic sizes, exported and converted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from patcomp import AIProgram, TorchConverter

BATCH, SEQ = Dim("batch", min=1, max=16), Dim("seq", min=2, max=64)


class Pair(nn.Module):
    def forward(self, x: torch.Tensor, pair: dict[str, torch.Tensor]) -> Any:
        return x.sum() + pair["left"].sum(), pair["right"] * 2


def exported(left: Any = 2 * SEQ + 1, right: Any = None) -> torch.export.ExportedProgram:
    args = torch.randn(3, 4, 8), {"left": torch.randn(3, 9), "right": torch.randn(5)}
    shapes = {"x": {0: BATCH, 1: SEQ}, "pair": {"left": {0: BATCH, 1: left}, "right": {0: right}}}
    return torch.export.export(Pair(), args, dynamic_shapes=shapes)


def exported_function(function: Callable[..., Any], *args: Any, shapes: Any) -> torch.export.ExportedProgram:
    """A function of one or two arguments, exported as a module; `shapes` has the dynamic dimensions of each."""

    class Unary(nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    class Binary(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return function(x, y)

    return torch.export.export(Unary() if len(args) == 1 else Binary(), args, dynamic_shapes=tuple(shapes))


def converted(program: torch.export.ExportedProgram, **options: Any) -> AIProgram:
    return TorchConverter().add_exported_program(program, **options).to_coreai()

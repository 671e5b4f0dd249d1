"""Exported programs of small models and functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def exported(model: nn.Module | Callable[..., Any], inputs: tuple[Any, ...], sizes: Any = None) -> ExportedProgram:
    """The exported program of a model, or of a function, in eval mode."""
    module = model if isinstance(model, nn.Module) else Function(model)
    return torch.export.export(module.eval(), inputs, dynamic_shapes=sizes)

"""Programs of models that draw random numbers, with the draws as inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from patcomp import AIProgram, TorchConverter, UnsupportedError
from tests.frontend_torch.models import Function

X, SHARES = torch.linspace(-2, 2, 24).reshape(4, 6), torch.linspace(0.05, 0.95, 24).reshape(4, 6)
BATCH = Dim("batch", min=1, max=64)


def program_of(exported: ExportedProgram, **options: Any) -> AIProgram:
    return TorchConverter(random="inputs").add_exported_program(exported, **options).to_coreai()


def converted(model: nn.Module | Callable[..., Any], *args: Any, shapes: Any = None) -> tuple[nn.Module, AIProgram]:
    module = model if isinstance(model, nn.Module) else Function(model)
    shapes = {"args": tuple(shapes)} if shapes and isinstance(module, Function) else shapes
    return module, program_of(torch.export.export(module, args, dynamic_shapes=shapes))


def noise_of(program: AIProgram, entrypoint: str = "main") -> list[str]:
    """The inputs that are random numbers, as the signature shows them."""
    return [str(spec) for spec in program.signature(entrypoint).inputs if spec.distribution]


def refusal(model: nn.Module | Callable[..., Any], *args: Any, shapes: Any = None) -> str:
    with pytest.raises(UnsupportedError) as error:
        converted(model, *args, shapes=shapes)
    return str(error.value)

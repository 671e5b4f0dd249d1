"""Small models, their export, and comparisons of their programs with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from patcomp import AIProgram, TorchConverter, get_decomp_table
from patcomp.emit.native import Native
from patcomp.errors import Problem
from patcomp.evaluate.calling import arguments_by_name, result_of


class Function(nn.Module):
    """A function as a module, for export."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class TwoBranches(nn.Module):
    def forward(self, x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + z, x * z


def export(model: nn.Module | Callable[..., Any], *args: Any, **options: Any) -> torch.export.ExportedProgram:
    module = model if isinstance(model, nn.Module) else Function(model)
    return torch.export.export(module.eval(), args, **options).run_decompositions(get_decomp_table())


PAIR = (torch.randn(2, 3), torch.randn(2, 3))


class Views(nn.Module):
    """Linear layers and views with two dynamic dimensions, a derived one, sizes as numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, length, _ = x.shape
        heads = self.linear(x).view(batch, length, 2, 4).transpose(1, 2)
        flat = heads.reshape(batch, 2 * length, 4)
        return (
            flat[:, :length].mean(1),
            torch.cat([x, y], 1)[:, -1],
            torch.arange(length) * 2,
            x * length + torch.zeros(batch, 1, 8),
            flat.unsqueeze(1).expand(-1, 3, -1, -1),
            torch.full((length,), length // 2),
        )


def assert_same(given: Any, expected: Any) -> None:
    assert pytree.tree_structure(given) == pytree.tree_structure(expected)
    for value, reference in zip(pytree.tree_leaves(given), pytree.tree_leaves(expected), strict=True):
        if isinstance(reference, torch.Tensor):
            torch.testing.assert_close(torch.as_tensor(value), reference.detach(), check_dtype=False)
        else:
            assert value == reference
            assert type(value) is type(reference)


def converted(model: nn.Module, args: tuple[Any, ...], shapes: Any, **options: Any) -> AIProgram:
    exported = torch.export.export(model, args, dynamic_shapes=shapes)
    return TorchConverter().add_exported_program(exported, **options).to_coreai()


def without_devices(program: AIProgram) -> list[Problem]:
    """The warnings about a program, without those about devices, which have an address."""
    return [problem for problem in program.diagnostics if "https://" not in problem.message]


def run_on(native: Native, program: AIProgram, args: tuple[Any, ...]) -> Any:
    call = program.signature().call
    assert call is not None
    values = {
        name: torch.tensor(value, dtype=torch.int32) if isinstance(value, int) else value
        for name, value in arguments_by_name(call, args, {}).items()
    }
    return result_of(call, native.run(program.module, values))

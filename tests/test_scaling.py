"""The work of a conversion grows as the program does: calls of Python functions a node, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

import patcomp
from patcomp import TorchConverter

Program = Callable[[int], ExportedProgram]
ROOT = Path(patcomp.__file__).parents[1]
OURS = (f"{ROOT}/patcomp/", f"{ROOT}/patterns_catalog/")


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def of(function: Callable[[Tensor], Any]) -> ExportedProgram:
    return export(Function(function), (torch.ones(3),))


def chain(count: int) -> ExportedProgram:
    def function(x: Tensor) -> Tensor:
        for index in range(count):
            x = torch.sin(x) if index % 2 else x + 1
        return x

    return of(function)


def readers(count: int) -> ExportedProgram:
    """One value with many readers, whose results one op takes."""

    def function(x: Tensor) -> Tensor:
        y = torch.relu(x)
        return torch.stack([y * float(index) for index in range(count)]).sum(0)

    return of(function)


def outputs(count: int) -> ExportedProgram:
    return of(lambda x: [x + float(index) for index in range(count)])


def constants(count: int) -> ExportedProgram:
    class Buffers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for index in range(count):
                self.register_buffer(f"b{index}", torch.full((3,), float(index)))

        def forward(self, x: Tensor) -> Tensor:
            for _, buffer in self.named_buffers():
                x = x * buffer
            return x

    return export(Buffers(), (torch.ones(3),))


def layers(count: int) -> ExportedProgram:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4)) for _ in range(count)))
    return export(model.eval(), (torch.ones(2, 4),))


def sizes(count: int) -> ExportedProgram:
    class Many(nn.Module):
        def forward(self, xs: list[Tensor]) -> Any:
            return torch.cat([torch.relu(x).reshape(-1) for x in xs]), [x.view(x.shape[0] * 4) for x in xs]

    shapes = ([{0: Dim(f"d{index}", min=2, max=1000)} for index in range(count)],)
    return export(Many(), ([torch.ones(3 + index, 4) for index in range(count)],), dynamic_shapes=shapes)


def branches(count: int) -> ExportedProgram:
    """Branches in branches."""

    def nested(x: Tensor, depth: int) -> Tensor:
        if depth == 0:
            return x.sin()
        return torch.cond(x.sum() > depth, lambda x: nested(x, depth - 1) + 1, lambda x: x.cos(), (x,))

    return of(lambda x: nested(x, count))


def calls(program: ExportedProgram, ours: bool) -> int:
    """How many functions a second conversion calls; only those of patcomp, if PyTorch's are more for other reasons."""
    TorchConverter().add_exported_program(program).to_coreai()
    count = 0

    def seen(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and (not ours or frame.f_code.co_filename.startswith(OURS))

    converter = TorchConverter()
    sys.setprofile(seen)
    try:
        converter.add_exported_program(program).to_coreai()
    finally:
        sys.setprofile(None)
    return count


def grown(program: Program, small: int, large: int) -> float:
    """How many times more calls a node the large program takes."""
    ours = program is branches  # PyTorch traces an inner branch once for each branch around it
    return calls(program(large), ours) / calls(program(small), ours) * small / large


KINDS: dict[Program, tuple[int, int]] = {
    chain: (30, 300), readers: (30, 300), outputs: (30, 300), constants: (30, 300), layers: (3, 30), sizes: (3, 24),
    branches: (2, 4),
}  # fmt: skip
LARGE: dict[Program, int] = {
    chain: 20_000,
    readers: 5000,
    outputs: 5000,
    constants: 5000,
    layers: 128,
    sizes: 24,
    branches: 16,
}


@pytest.mark.parametrize("program", KINDS)
def test_calls_a_node_do_not_grow(program: Program) -> None:
    assert grown(program, *KINDS[program]) < 1.1


@pytest.mark.slow
@pytest.mark.parametrize("program", LARGE)
def test_calls_a_node_do_not_grow_in_large_programs(program: Program) -> None:
    assert grown(program, max(LARGE[program] // 10, 2), LARGE[program]) < 1.1

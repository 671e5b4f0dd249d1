"""Weights that are computed from weights are computed once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from patcomp import AIProgram
from patcomp.emit.native import Native
from tests.frontend_torch.models import assert_same, converted, run_on

WIDTH = 160  # 25,600 elements


def ops(program: AIProgram) -> set[str]:
    """The names of the ops that compute."""
    return {op.name.removeprefix("coreai.") for graph in program.module.graphs for op in graph.walk()}


class Normed(nn.Module):
    """A product with a weight of a weight norm."""

    def __init__(self, reader: Callable[[Tensor], Tensor] | None = None):
        super().__init__()
        self.v, self.g = nn.Parameter(torch.randn(WIDTH, WIDTH)), nn.Parameter(torch.rand(WIDTH, 1) + 0.5)
        self.reader = reader

    def forward(self, x: Tensor) -> Any:
        weight = self.g * self.v / self.v.norm(dim=1, keepdim=True)
        y = x @ weight.t()
        return y if self.reader is None else (y, self.reader(self.v) * x)


class Resized(nn.Module):
    """Tokens with position embeddings of another size."""

    def __init__(self, size: int):
        super().__init__()
        self.positions, self.size = nn.Parameter(torch.randn(1, 32, 28, 28)), size

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.interpolate(self.positions, (self.size, self.size), mode="bilinear")


def test_weight_norm_is_computed_once(native: Native) -> None:
    model, x = Normed(), torch.randn(3, WIDTH)
    program = converted(model, (x,), None)
    assert not ops(program) & {"decomposable.broadcasting_mul", "decomposable.broadcasting_divide", "sqrt", "invoke"}
    assert_same(run_on(native, program, (x,)), model(x))


@pytest.mark.parametrize(("size", "is_folded"), [(24, True), (56, False)])
def test_positions_of_another_size(size: int, is_folded: bool, native: Native) -> None:
    model, x = Resized(size), torch.randn(1, 32, size, size)
    program = converted(model, (x,), None)
    assert ("resize" in " ".join(ops(program)) or "interpolate" in ops(program)) != is_folded  # or it would be larger
    # a position of the resized grid, up to 28, is rounded by up to 2e-6, and neighbours differ by up to 6
    torch.testing.assert_close(torch.as_tensor(run_on(native, program, (x,))), model(x).detach(), atol=5e-5, rtol=1e-5)


def test_a_weight_that_others_read_stays() -> None:
    program = converted(Normed(torch.sin), (torch.randn(WIDTH, WIDTH),), None)
    assert "decomposable.broadcasting_divide" in ops(program)


def test_a_small_weight_stays() -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.rand(1024))

        def forward(self, x: Tensor) -> Tensor:
            return x * (1 + self.scale)

    assert "decomposable.broadcasting_add" in ops(converted(Small(), (torch.randn(2, 1024),), None))


def test_movements_stay() -> None:
    class Moved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight.t()

    assert "transpose" in ops(converted(Moved(), (torch.randn(2, WIDTH),), None))


def test_numbers_are_those_of_a_run() -> None:
    model, x = Normed(), torch.randn(3, WIDTH)
    given = converted(model, (x,), None).run(x)
    np.testing.assert_allclose(given, model(x).detach(), rtol=1e-5, atol=1e-5)

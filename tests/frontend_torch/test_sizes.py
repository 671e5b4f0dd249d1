"""Computations with sizes: each operator equal to eager PyTorch, in the evaluator and on the real runtime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.patterns import RuleSet, decomposition, example
from tests.frontend_torch.models import assert_same, converted, run_on

AXES = {0: Dim("n", min=1, max=64), 1: Dim("m", min=1, max=64)}
SIZES = [(5, 3), (3, 5), (4, 4), (12, 1)]

EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sums and products": lambda n, m: (n + m, n * m + 1, 2 * n - m, -n),
    "floor division": lambda n, m: (n // m, n // 2, (n - 2 * m) // 3),
    "remainder": lambda n, m: (n % m, n % 3, (n * n) % (m + 1)),
    "division": lambda n, m: (n / m, n / 4),
    "powers": lambda n, m: (n**2, m**3 + n, (n + m) ** 2),
    "least and largest": lambda n, m: (torch.sym_min(n, m), torch.sym_max(n, m), torch.sym_max(n, 4)),
    "comparisons": lambda n, m: (n < m, n <= m, n > m, n >= m, n == m, n != m, n * m > 12),
    "conditions": lambda n, m: (torch.sym_not(n == m), torch.sym_ite(n > m, n, 2 * m)),
    "numbers of other types": lambda n, m: (torch.sym_float(n) * 0.5, torch.sym_int(n / m), torch.sym_float(n + m)),
    "rounding": lambda n, m: (math.ceil(n / m), math.floor(n / m), round(n / 2)),
    "roots": lambda n, m: (torch.sym_sqrt(n * n), torch.sym_sqrt(n + m)),
}


class Numbers(nn.Module):
    """What an expression gives as numbers, and the same as values of tensors."""

    def __init__(self, expression: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.expression = expression

    def forward(self, x: torch.Tensor) -> Any:
        results = self.expression(x.shape[0], x.shape[1])
        return results, [x * result for result in results]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name: str, native: Native) -> None:
    model = Numbers(EXPRESSIONS[name])
    program = converted(model, (torch.randn(7, 6),), {"x": AXES})
    for size in SIZES:
        x = torch.randn(size)
        for given in (program.run(x), run_on(native, program, (x,))):
            assert_close(given, model(x))


def assert_close(given: Any, expected: Any) -> None:
    for value, wanted in zip(given[0], expected[0], strict=True):
        assert type(value) is type(wanted)
        assert value == pytest.approx(wanted, rel=1e-6)
    for value, wanted in zip(given[1], expected[1], strict=True):
        torch.testing.assert_close(torch.as_tensor(value), wanted)


class Indexed(nn.Module):
    """Sizes that values tell: reads by mask, their number, a position and a length from tensors."""

    def forward(self, x: torch.Tensor, start: torch.Tensor, length: torch.Tensor) -> Any:
        found = x[x > 0]
        where = (x > 0).nonzero()
        first, count = start.item(), length.item()
        torch._check(first >= 0)
        torch._check(count >= 0)
        torch._check(first + count <= x.shape[0])
        return found.shape[0], found.sum() / found.shape[0], where * where.shape[0], torch.narrow(x, 0, first, count)


def test_sizes_that_values_tell(native: Native) -> None:
    def args(rows: int, start: int, length: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(rows, 6), torch.tensor(start), torch.tensor(length)

    program = converted(Indexed(), args(9, 2, 3), {"x": {0: Dim.AUTO}, "start": None, "length": None})
    for case in ((9, 2, 3), (6, 0, 6), (20, 19, 1)):
        x, start, length = args(*case)
        assert_same(program.run(x, start, length), Indexed()(x, start, length))
        assert_same(run_on(native, program, (x, start.int(), length.int())), Indexed()(x, start, length))


class Rows(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.reshape(x.shape[0] // 2, -1), y[: x.shape[0]] + x, x.shape[0]


HINTS: dict[str, Any] = {
    "AUTO": {"x": {0: Dim.AUTO}, "y": {0: Dim.AUTO}},
    "DYNAMIC": {"x": {0: 2 * Dim("k", min=1)}, "y": {0: Dim.DYNAMIC(min=4)}},
    "derived": {"x": {0: 2 * Dim("k", min=1)}, "y": {0: 2 * Dim("k", min=1) + 1}},
}


@pytest.mark.parametrize("name", HINTS)
def test_kinds_of_dimensions(name: str, native: Native) -> None:
    example = torch.randn(6, 3), torch.randn(9 if name == "DYNAMIC" else 7, 3)
    program = converted(Rows(), example, HINTS[name])
    for rows in (4, 8):
        x, y = torch.randn(rows, 3), torch.randn(rows + 1, 3)
        assert_same(program.run(x, y), Rows()(x, y))
        assert_same(run_on(native, program, (x, y)), Rows()(x, y))


@torch.library.custom_op("sizes::chosen", mutates_args=())
def chosen(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@chosen.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(3)


@decomposition("sizes.chosen", examples=[example("4xf32")])
def by_mask(x: torch.Tensor) -> torch.Tensor:
    "as many elements as are positive"
    return torch.masked_select(x, x > 0)


class Chosen(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return chosen(x).clone() @ torch.ones(3, 2)  # type: ignore[no-any-return]


def test_a_size_that_export_knows_and_a_decomposition_does_not() -> None:
    x = torch.tensor([1.0, -1.0, 2.0, 3.0])
    exported = torch.export.export(Chosen(), (x,))
    program = TorchConverter(catalog=[RuleSet([by_mask])]).add_exported_program(exported).to_coreai()
    assert_same(program.run(x), Chosen()(x))

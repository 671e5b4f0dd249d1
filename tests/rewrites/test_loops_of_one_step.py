"""Loops that are known to run once become the ops of their body; all others stay loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan

from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from tests.catalog.recovering import convert


def loops(program: AIProgram) -> int:
    """How many loops a program has, also in the graphs that it calls."""
    return program.text().count("coreai.while")


def times(count: int, bound: Callable[[Tensor], Any] = lambda step: step) -> Callable[..., Tensor]:
    """`sin`, repeated while a counter is below a number."""
    return lambda x: while_loop(lambda step, y: bound(step) < count, lambda step, y: (step + 1, y.sin()), (_zero(), x))[
        1
    ]


def _zero() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


def scanned(init: Tensor, rows: Tensor) -> Any:
    def step(before: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        after = before * 0.5 + row
        return after, after.sin()

    return scan(step, init, rows)


def mapped(rows: Tensor) -> Any:
    return map_rows(lambda row: row.sin() + 1, rows)


def products(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    """Products of integers that wrap, which are lowered to a loop along the axis."""
    return x.scatter_reduce(0, index, source, "prod")


def _indices(count: int) -> tuple[Tensor, ...]:
    return torch.arange(12).view(4, 3), torch.ones(count, 3, dtype=torch.int64), torch.full((count, 3), 7)


def deciding(count: int) -> Callable[..., Tensor]:
    """A branch by the counter, in a loop and in a loop in that: after one step it is known."""

    def decided(step: Tensor, y: Tensor) -> Tensor:
        return torch.cond(step % 2 == 0, lambda y: y.sin(), lambda y: y.cos(), (y,))

    def body(step: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        inner = while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, decided(step, z)), (_zero(), decided(step, y)))
        return step + 1, inner[1]

    return lambda x: while_loop(lambda step, y: step < count, body, (_zero(), x))[1]


CASES: dict[str, Callable[[int], tuple[Callable[..., Any], tuple[Tensor, ...]]]] = {
    "while": lambda count: (times(count), (torch.randn(3),)),
    "while with more in its condition": lambda count: (times(2 * count, lambda step: 2 * step), (torch.randn(3),)),
    "scan": lambda count: (scanned, (torch.randn(3), torch.randn(count, 3))),
    "map": lambda count: (mapped, (torch.randn(count, 3),)),
    "scatter of products": lambda count: (products, _indices(count)),
}


def test_branches_by_the_counter_of_one_step_are_known(native: Native) -> None:
    program = convert(deciding(1), torch.randn(3), native=native)
    assert "coreai.if" not in program.text()


@pytest.mark.parametrize("case", CASES)
def test_one_step_is_no_loop(case: str, native: Native) -> None:
    function, tensors = CASES[case](1)
    assert loops(convert(function, *tensors, native=native)) == 0


@pytest.mark.parametrize("case", CASES)
def test_two_steps_are_a_loop(case: str, native: Native) -> None:
    function, tensors = CASES[case](2)
    assert loops(convert(function, *tensors, native=native)) == 1


def test_no_step_stays(native: Native) -> None:
    """A loop whose condition does not hold at first gives its initial values."""
    assert loops(convert(times(0), torch.randn(3), native=native)) == 1


def test_loops_in_each_other(native: Native) -> None:
    def function(x: Tensor) -> Tensor:
        def outer(step: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return step + 1, times(1)(y) + 1

        return while_loop(lambda step, y: step < 3, outer, (_zero(), x))[1]

    assert loops(convert(function, torch.randn(3), native=native)) == 1


def test_a_count_of_the_data_stays() -> None:
    def function(x: Tensor) -> Tensor:
        count = (x > 0).sum()
        return while_loop(lambda step, y: step < count, lambda step, y: (step + 1, y.sin()), (_zero(), x))[1]

    assert loops(convert(function, torch.tensor([1.0, -1.0, -1.0]))) == 1


def test_a_step_of_the_data_stays() -> None:
    """The first step is certain, how many follow is not."""

    def function(x: Tensor) -> Tensor:
        stride = (x > 0).sum()
        return while_loop(lambda step, y: step < 2, lambda step, y: (step + stride, y.sin()), (_zero(), x))[1]

    assert loops(convert(function, torch.tensor([1.0, -1.0, -1.0]))) == 1


class Scan(nn.Module):
    def forward(self, init: Tensor, rows: Tensor) -> Any:
        return scanned(init, rows)


def _open_scan() -> TorchConverter:
    length = torch.export.Dim("length", min=1, max=9)
    tensors = torch.randn(3), torch.randn(4, 3)
    exported = torch.export.export(Scan(), tensors, dynamic_shapes=({}, {0: length}))
    return TorchConverter().add_exported_program(exported)


@pytest.mark.parametrize("length", [1, 2])
def test_a_length_that_is_fixed(length: int, native: Native) -> None:
    program = _open_scan().to_coreai()
    assert loops(program) == 1
    tensors = torch.randn(3), torch.randn(length, 3)
    expected = Scan()(*tensors)
    for fixed in (program.specialize({"length": length}), _open_scan().to_coreai(fixed={"length": length})):
        assert loops(fixed) == length - 1
        inputs = dict(zip(fixed.input_names(), tensors, strict=True))
        given = native.run(fixed.module, {name: value.numpy() for name, value in inputs.items()})
        for name, reference in zip(fixed.output_names(), expected, strict=True):
            torch.testing.assert_close(fixed.run(inputs)[name], reference)
            torch.testing.assert_close(torch.from_numpy(given[name]), reference)

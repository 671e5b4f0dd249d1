"""Dynamic shapes: one program for all sizes, equal to eager PyTorch on the evaluator and on the real runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from patcomp import TorchConverter, UnsupportedError
from patcomp.emit.native import Native
from patcomp.evaluate.inputs import prepare_input
from tests.frontend_torch.models import Views


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def export(function: Callable[..., Any], x: torch.Tensor, dims: dict[int, Any]) -> torch.export.ExportedProgram:
    return torch.export.export(Function(function), (x,), dynamic_shapes={"x": dims})


def check_sizes(model: nn.Module, dynamic_shapes: Any, calls: Sequence[tuple[Any, ...]], native: Native) -> Any:
    """Exports with the first call, converts once, and compares every call with eager."""
    exported = torch.export.export(model.eval(), calls[0], dynamic_shapes=dynamic_shapes)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    types = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    for call in calls:
        with torch.no_grad():
            expected = model(*call)
        named = zip(program.input_names(), call, types, strict=True)
        inputs = {name: prepare_input(value, type_, name) for name, value, type_ in named}  # type: ignore[arg-type]
        for outputs in (program.run(inputs), native.run(program.module, inputs)):
            for name, wanted in zip(program.output_names(), expected, strict=True):
                torch.testing.assert_close(
                    torch.as_tensor(outputs[name]), wanted, rtol=1e-4, atol=1e-5, check_dtype=False
                )
    return program


def test_views_slices_and_sizes_as_numbers(native: Native) -> None:
    batch, length = Dim("batch", min=1, max=16), Dim("length", min=2, max=64)
    shapes = {"x": {0: batch, 1: length}, "y": {0: batch, 1: length + 1}}
    calls = [(torch.randn(b, n, 8), torch.randn(b, n + 1, 8)) for b, n in ((3, 5), (1, 7), (4, 2))]
    check_sizes(Views(), shapes, calls, native)


def test_provable_sizes_stay_numbers() -> None:
    exported = export(lambda x: x.reshape(-1, 6)[:, : x.shape[1] - 1], torch.randn(4, 6), {0: Dim("n")})
    program = TorchConverter().add_exported_program(exported).to_coreai()
    assert "get_shape" not in str(program)
    assert "tensor<?x5xf32>" in str(program)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "as_strided": (lambda x: x.as_strided((2, 2), (3, 1)), r"but dimension \[1\] is dynamic; use slices"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_open_dimension(name: str) -> None:
    function, message = REFUSED[name]
    exported = export(function, torch.randn(4, 6), {1: Dim("n", min=4, max=64)})
    with pytest.raises(UnsupportedError, match=message):
        TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.arange(0, x.shape[0], 0.3),),
        lambda x: (torch.arange(0.5, x.shape[0]), torch.arange(x.shape[0], 0, -0.7, dtype=torch.float64).float()),
        lambda x: (torch.logcumsumexp(x, 0), torch.logcumsumexp(-100 * x, -2)),
    ],
    ids=["a range of fractions", "ranges from a fraction and downwards", "logcumsumexp"],
)
def test_ops_of_a_dynamic_length(function: Callable[..., Any], native: Native) -> None:
    calls = [(torch.randn(size, 2),) for size in (4, 1, 9)]
    check_sizes(Function(function), {"x": {0: Dim("n", min=1, max=64)}}, calls, native)


def test_a_range_whose_bound_is_a_computed_fraction_is_refused() -> None:
    exported = export(lambda x: torch.arange(0, x.shape[0] * 0.3), torch.randn(4), {0: Dim("n", min=4, max=64)})
    with pytest.raises(UnsupportedError, match="a bound of arange is a float known only at run time; compute"):
        TorchConverter().add_exported_program(exported).to_coreai()

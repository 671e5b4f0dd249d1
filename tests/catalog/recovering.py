"""Functions written as models write them, converted, and compared with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import patcomp
from patcomp import AIProgram, TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.inputs import prepare_input
from patcomp.ir.types import TensorType
from tests.catalog.cases import TOLERANCES


class Calling(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def convert(
    function: Callable[..., Any],
    *tensors: torch.Tensor,
    without: Sequence[str] = (),
    default_table: bool = False,
    as_exported: bool = False,
    sizes: Sequence[Any] | None = None,
    native: Native | None = None,
) -> AIProgram:
    """The program of a function, which gives eager's numbers on the evaluator.

    Args:
        without: names of rules to leave out.
        default_table: decompose as PyTorch does by default, instead of with `get_decomp_table()`.
        as_exported: leave the program as `torch.export.export` gives it.
        sizes: the dynamic dimensions of each tensor; all are static by default.
        native: the runtime, which must give eager's numbers as well.
    """
    module = Calling(function)
    exported = torch.export.export(module, tensors, dynamic_shapes=None if sizes is None else (tuple(sizes),))
    if not as_exported:
        exported = exported.run_decompositions(None if default_table else patcomp.get_decomp_table())
    converter = TorchConverter(without=without)
    program = converter.add_exported_program(exported).to_coreai()
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(module(*tensors))
    inputs: dict[str, Any] = {}
    arguments = program.module.graph("main").regions[0].block.args
    for name, value, argument in zip(program.input_names(), tensors, arguments, strict=True):
        assert isinstance(argument.type, TensorType)
        inputs[name] = prepare_input(value, argument.type, name)
    _assert_close(program.run(inputs), program, tensors, expected)
    if native is not None:
        given = native.run(program.module, inputs)
        _assert_close({name: to_tensor(value) for name, value in given.items()}, program, tensors, expected)
    return program


def _assert_close(given: Any, program: AIProgram, tensors: Any, expected: list[torch.Tensor]) -> None:
    tolerance = max(TOLERANCES.get(x.dtype, 1e-5) for x in [*tensors, *expected])
    for name, reference in zip(program.output_names(), expected, strict=True):
        torch.testing.assert_close(given[name].to(reference.dtype), reference, rtol=tolerance, atol=tolerance)

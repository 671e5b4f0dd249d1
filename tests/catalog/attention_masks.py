"""How the results of masked attentions are compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp import AIProgram
from patcomp.emit.native import Native
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.inputs import prepare_input
from tests.catalog.recovering import Calling

TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def assert_equal(
    program: AIProgram, module: Calling, inputs: tuple[Tensor, ...], native: Native | None = None, rows: Any = ...
) -> None:
    """The program gives eager's rows, NaN where eager has NaN."""
    types: Any = [argument.type for argument in program.module.graph("main").regions[0].block.args]
    named = zip(program.input_names(), inputs, types, strict=True)
    prepared = {name: prepare_input(x, type_, name) for name, x, type_ in named}
    expected, tolerance = module(*inputs), TOLERANCES[inputs[0].dtype]
    results = [program.run(prepared), *([native.run(program.module, prepared)] if native else [])]
    for result in results:
        (given,) = map(to_tensor, result.values())
        torch.testing.assert_close(
            given[..., rows, :], expected[..., rows, :], rtol=tolerance, atol=tolerance, equal_nan=True
        )

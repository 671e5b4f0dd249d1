"""Programs of single ops, compared with eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from patcomp import TorchConverter
from patcomp.emit.native import Native
from patcomp.evaluate.element_types import to_tensor


class _Function(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.function(*tensors)


def _converted(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> Any:
    exported = torch.export.export(_Function(function), tensors, strict=False)
    return TorchConverter().add_exported_program(exported).to_coreai()


def assert_agrees(native: Native, function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> None:
    """Evaluator and runtime give what eager PyTorch gives."""
    program = _converted(function, *tensors)
    inputs = dict(zip(program.input_names(), tensors, strict=True))
    narrow = {name: x.to(torch.int32) if x.dtype == torch.int64 else x for name, x in inputs.items()}
    wanted = function(*tensors)
    wanted = wanted.to(torch.int32) if wanted.dtype == torch.int64 else wanted
    tolerance = 1e-6 if wanted.dtype == torch.float32 else 4e-3
    (name,) = program.output_names()
    for outputs in (program.run(inputs), native.run(program.module, narrow)):
        given = to_tensor(np.asarray(outputs[name]) if np.isscalar(outputs[name]) else outputs[name])
        torch.testing.assert_close(given, wanted, rtol=tolerance, atol=0.0, equal_nan=True)
        zeros = (wanted == 0) & wanted.is_floating_point()
        assert torch.equal(torch.signbit(given[zeros]), torch.signbit(wanted[zeros])), (given, wanted)

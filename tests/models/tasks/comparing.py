"""Compare the programs of models with what eager PyTorch computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from patcomp import AIProgram
from patcomp.emit.native import Native


def runs(program: AIProgram, native: Native, entry: str, inputs: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    """The outputs on both backends, as tensors."""
    given = {name: value.int() if value.dtype == torch.int64 else value for name, value in inputs.items()}
    arrays = {name: value.numpy() for name, value in given.items()}
    found = (program.run(given, entrypoint=entry), native.run(program.module, arrays, entry=entry))
    return [{name: torch.as_tensor(np.asarray(value)) for name, value in outputs.items()} for outputs in found]


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def image(size: int) -> torch.Tensor:
    return torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1))

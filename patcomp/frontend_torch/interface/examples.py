"""The example inputs that a program was exported with."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

from patcomp.frontend_torch.interface.signature import Signature
from patcomp.pytorch import FakeTensor


def example_inputs(program: ExportedProgram, signature: Signature) -> dict[str, Any]:
    """The example of each input, by the FX name of its placeholder; empty if the program has no examples."""
    if program.example_inputs is None:
        return {}
    examples = program.call_spec.in_spec.flatten_up_to(program.example_inputs)  # type: ignore[union-attr]
    return dict(zip(signature.user_inputs, examples, strict=True))


def is_mask(example: Any) -> bool:
    """Whether an example is an int64 mask: several rows of only zeros and ones."""
    if not isinstance(example, torch.Tensor) or isinstance(example, FakeTensor) or example.device.type == "meta":
        return False
    if example.dtype != torch.int64 or example.dim() < 2 or not example.numel():
        return False
    return bool(((example == 0) | (example == 1)).all())

"""Stored weights in tests: their floats, and formats by what a `config.json` says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.formats.base import Format
from patcomp_models.checkpoints.quantized.weight import Unpacking


def floats(stored: Any) -> Tensor:
    """The weight as the model computes with it, the inputs in the model's order."""
    made = Unpacking(stored, torch.float32, "w")()
    return made if stored.order is None else made[:, stored.order.argsort()]


def described(form: type[Format], method: str, **entries: Any) -> Format:
    found = form.of({"quantization_config": {"quant_method": method, **entries}})
    assert found is not None
    return found

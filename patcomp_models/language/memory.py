"""The memory of a model's weights, which may be files that are mapped."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn


def weight_memory(model: nn.Module) -> Iterator[memoryview]:
    """The memory of a model's weights."""
    for weight in (*model.parameters(), *model.buffers()):
        if weight.is_contiguous() and not weight.is_meta:
            yield weight.detach().reshape(-1).view(torch.uint8).numpy().data

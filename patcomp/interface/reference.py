"""The values of a run of an exported model, which a debugger compares with those of an asset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

ReferenceKind = Literal["inputs", "outputs", "intermediates"]


@dataclass(frozen=True)
class ReferenceValue:
    """The value of a node in a run of the exported model."""

    kind: ReferenceKind
    name: str
    op: str
    """`placeholder`, `get_attr` or `call_function`."""
    target: str
    """The name of the input, the path of the weight, or the operator: `aten.mul.Tensor`."""
    array: np.ndarray
    element_type: str
    """`torch.float32`; bfloat16, which numpy lacks, is stored as float32."""


Save = Callable[[ReferenceValue], None]
"""Called with each value, in the order of the program."""

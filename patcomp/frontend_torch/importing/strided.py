"""`as_strided` reads a tensor's memory. Values of the IR have no memory layout, so it becomes a read of a flat tensor.

The recorded strides of its input determine the order of the elements.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from patcomp.frontend_torch.fx.dtypes import type_of
from patcomp.frontend_torch.fx.sizes import known, known_shape
from patcomp.ir import aten
from patcomp.ir.value import Value


def flatten_source(node: Node, arguments: dict[str, Any]) -> None:
    """Bring the input of a node into memory order and flatten it; put the flat value and its offset into `arguments`.

    Raises:
        TypeError: sizes are dynamic, or the memory overlaps or has gaps.
    """
    source = node.args[0]
    assert isinstance(source, Node)
    fake: torch.Tensor = source.meta["val"]
    shape, strides = known_shape(fake), [known(stride) for stride in fake.stride()]
    if dynamic := [axis for axis, size in enumerate(shape) if not isinstance(size, int)]:
        raise TypeError(
            f"as_strided needs an input of static shape, but dimension {dynamic} is dynamic; use slices, views, unfold "
            "or diagonal, which allow dynamic dimensions"
        )
    if not all(isinstance(stride, int) for stride in strides):
        raise TypeError("as_strided needs an input with static strides")
    order = sorted(range(fake.dim()), key=lambda axis: (-strides[axis], axis))
    expected = 1
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != expected:
            raise TypeError("as_strided of a tensor that overlaps itself or has gaps cannot be converted")
        expected *= shape[axis]
    value: Value = arguments["self"]
    if order != sorted(order):
        permuted = type_of(fake.permute(order))
        value = aten.build("aten.permute", permuted, self=value, dims=order)
    count = math.prod(shape)
    arguments["self"] = aten.build("aten.view", type_of(fake.reshape(-1)), self=value, size=[count])
    offset = arguments.get("storage_offset")
    arguments["storage_offset"] = (offset or 0) - fake.storage_offset() if offset is not None else 0

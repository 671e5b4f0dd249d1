"""`as_strided` reads memory, which values of the IR do not have: it becomes a read of a flat tensor.

The strides that export recorded give the order of the elements.
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
    """Brings the input of a node into memory order and flattens it: `arguments` get the flat value and its offset.

    Raises:
        TypeError: sizes are dynamic, or the memory overlaps or has gaps.
    """
    source = node.args[0]
    assert isinstance(source, Node)
    fake: torch.Tensor = source.meta["val"]
    shape, strides = known_shape(fake), [known(stride) for stride in fake.stride()]
    if open_axes := [axis for axis, size in enumerate(shape) if not isinstance(size, int)]:
        raise TypeError(
            f"as_strided needs sizes that are known before the program runs, but dimension {open_axes} of its input is "
            "open; slices, views, unfold and diagonal can do with open sizes"
        )
    if not all(isinstance(stride, int) for stride in strides):
        raise TypeError("as_strided needs strides that are known before the program runs")
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

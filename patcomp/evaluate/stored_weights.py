"""PyTorch operators that decompress weights, for models with checkpoints in few bits.

    weight = torch.ops.patcomp.blockwise_shift_scale(data, scale, zero_point=zeros, input_dtype=torch.uint4)
    weight = torch.ops.patcomp.lut_to_dense(indices, table, 0)

Here they compute in float32. A conversion keeps what is stored (`patterns_catalog/lower/compression.py`), in as many
bits as `input_dtype` or the length of the table say. They have the signatures of coreai-opt's operators, and names of
their own, because a process may import that library, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from patcomp.evaluate.operators import register
from patcomp.ir.mapped import mapped
from patcomp.ir.parts import in_parts


def _wide(parameter: Tensor, like: Tensor) -> Tensor:
    """The parameters of blocks, one for each element, as float32."""
    wide = parameter.float()
    for axis, size in enumerate(like.shape):
        if wide.shape[axis] not in (1, size):
            wide = wide.repeat_interleave(size // wide.shape[axis], dim=axis)
    return wide


def blockwise_shift_scale(
    input: Tensor, scale: Tensor, zero_point: Tensor | None = None, minval: Tensor | None = None,
    input_dtype: torch.dtype | None = None, output_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """`scale * (input - zero_point)`, or `scale * (input - least) + minval`, where least is the smallest integer.

    Args:
        input: integers of a byte each, or floats.
        scale: of the rank of the input; each size divides the input's, and a scale is for a block.
        zero_point: integers of the shape of the scale.
        minval: floats of the shape of the scale; excludes a zero point.
        input_dtype: the type that says how many bits an element takes; by default the input's.
        output_dtype: of the result; by default the scale's.
    """
    element = str(input_dtype or input.dtype).removeprefix("torch.")
    made = _mapped(input.shape, output_dtype or scale.dtype)
    for place, blocks in in_parts(input.shape, 0, len(scale)):
        data = wide = input[place].float()
        if zero_point is not None:
            wide = wide - _wide(zero_point[blocks], data)
        elif minval is not None and element.startswith("int"):
            wide = wide + 2.0 ** (int(element.removeprefix("int")) - 1)
        wide = wide * _wide(scale[blocks], data)
        made[place] = wide if minval is None else wide + _wide(minval[blocks], data)
    return made


def lut_to_dense(indices: Tensor, lut: Tensor, axis: int) -> Tensor:
    """The entries of a table for indices.

    Args:
        indices: of uint8, of any rank.
        lut: (blocks of each axis..., entries, 1); the number of entries is a power of 2.
        axis: along which the elements of an entry would lie, if it had several.
    """
    made = _mapped(_shape_of_entries(indices, lut, axis).shape, lut.dtype)
    vector = lut.shape[-1] if axis == 0 else 1
    for place, blocks in in_parts(indices.shape, 0, len(lut)):
        made[place.start * vector : place.stop * vector] = _entries(indices[place], lut[blocks], axis)
    return made


def _mapped(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A new tensor. A large one is in a file, because a table of embeddings takes several times what is stored."""
    return torch.from_numpy(mapped((math.prod(shape) * dtype.itemsize,), np.dtype(np.uint8))).view(dtype).reshape(shape)


def _entries(indices: Tensor, lut: Tensor, axis: int) -> Tensor:
    blocks = []
    for place, size in enumerate(indices.shape):
        number = torch.arange(size) // (size // lut.shape[place])
        blocks.append(number.reshape([-1 if each == place else 1 for each in range(indices.dim())]))
    return lut[(*blocks, indices.long())].movedim(-1, axis + 1).flatten(axis, axis + 1)


def _shape_of_blocks(
    input: Tensor, scale: Tensor, zero_point: Tensor | None = None, minval: Tensor | None = None,
    input_dtype: torch.dtype | None = None, output_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    return input.new_empty(input.shape, dtype=output_dtype or scale.dtype)


def _shape_of_entries(indices: Tensor, lut: Tensor, axis: int) -> Tensor:
    shape = list(indices.shape)
    shape[axis] *= lut.shape[-1]
    return lut.new_empty(shape)


register(blockwise_shift_scale, _shape_of_blocks)
register(lut_to_dense, _shape_of_entries)

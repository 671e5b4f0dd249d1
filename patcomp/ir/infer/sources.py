"""Result types of constants, ranges, tokens, look-up tables, sparse data and images."""

from __future__ import annotations

import math

import numpy as np

from patcomp.ir.attributes import SparseEncodingAttr
from patcomp.ir.constants import constant_values
from patcomp.ir.infer.common import InferenceError, InferredOp, inference, normalize_axis, require
from patcomp.ir.types import TOKEN, HandleType, tensor
from patcomp.ir.xdsl import Attribute


@inference
def _constant(op: InferredOp) -> list[Attribute]:
    return [op.properties["value"].type]  # type: ignore[attr-defined]


@inference
def _range(op: InferredOp) -> list[Attribute]:
    start, stop, step = map(constant_values, op.operands)
    length = None
    if start is not None and stop is not None and step is not None:
        require(float(step) != 0, "the step of a range must not be zero")
        length = max(0, math.ceil((np.float64(stop) - np.float64(start)) / np.float64(step)))
    return op.result((length,))


@inference
def _token(op: InferredOp) -> list[Attribute]:
    return [TOKEN]


@inference
def _read_handle(op: InferredOp) -> list[Attribute]:
    handle = op.operands[0].type
    if not isinstance(handle, HandleType):
        raise InferenceError(f"expected a handle, got {handle}")
    return [handle.tensor_type, TOKEN]


@inference
def _lut(op: InferredOp) -> list[Attribute]:
    indices, lut = op.shape(), op.shape(1)
    require(len(lut) == len(indices) + 2, f"a lookup table for rank {len(indices)} needs rank {len(indices) + 2}")
    axis = op.integers(2)
    vector = lut[-1]
    if axis is None or vector == 1:
        return op.result(indices)
    position = normalize_axis(axis[0], len(indices))
    dims = [
        None if dim is None or vector is None else dim * vector if i == position else dim
        for i, dim in enumerate(indices)
    ]
    return op.result(dims)


@inference
def _build_sparse(op: InferredOp) -> list[Attribute]:
    values, shape = op.length(0), op.shape(1)
    require(values is not None, "the number of values must be known")
    require(None not in shape, "the shape of the bitmask must be known")
    return [tensor(shape, op.element(0), SparseEncodingAttr.bitmask(values or 0))]


@inference
def _lut_to_sparse(op: InferredOp) -> list[Attribute]:
    indices, lut = op.operands[0].type, op.shape(1)
    rank = len(op.shape())
    require(len(lut) == rank + 2, f"a lookup table for rank {rank} needs rank {rank + 2}")
    require(lut[-1] == 1, "a lookup table of sparse indices has no vectors")
    return [tensor(op.shape(), op.element(1), indices.encoding)]  # type: ignore[attr-defined]


@inference
def _sparse_to_dense(op: InferredOp) -> list[Attribute]:
    return op.result(op.shape())


@inference
def _image_to_tensor(op: InferredOp) -> list[Attribute]:
    return op.result((None, None, None))

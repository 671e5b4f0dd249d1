"""Result types of constants, ranges, tokens, look-up tables, sparse data and images."""

from __future__ import annotations

import math

import numpy as np

from patcomp.ir.constants import constant_integers, constant_values
from patcomp.ir.infer.common import (
    Operands,
    Properties,
    inference,
    normalize_axis,
    operand_element,
    operand_shape,
    require,
)
from patcomp.ir.rows import Row
from patcomp.ir.types import TOKEN, HandleType, element_type, tensor
from patcomp.ir.xdsl import Attribute


@inference
def _constant(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [properties["value"].type]  # type: ignore[attr-defined]


@inference
def _range(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    start, stop, step = (constant_values(operand) for operand in operands)
    length = None
    if start is not None and stop is not None and step is not None:
        require(float(step) != 0, "the step of a range must not be zero")
        length = max(0, math.ceil((np.float64(stop) - np.float64(start)) / np.float64(step)))
    return [tensor((length,), operand_element(operands[0]))]


@inference
def _token(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [TOKEN]


@inference
def _read_handle(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    require(isinstance(operands[0].type, HandleType), f"expected a handle, got {operands[0].type}")
    return [operands[0].type.tensor_type, TOKEN]  # type: ignore[attr-defined]


@inference
def _lut(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    indices, lut = operand_shape(operands[0]), operand_shape(operands[1])
    require(len(lut) == len(indices) + 2, f"a lookup table for rank {len(indices)} needs rank {len(indices) + 2}")
    axis = constant_integers(operands[2])
    vector = lut[-1]
    if axis is None or vector == 1:
        return [tensor(indices, operand_element(operands[1]))]
    position = normalize_axis(axis[0], len(indices))
    dims = [
        None if dim is None or vector is None else dim * vector if i == position else dim
        for i, dim in enumerate(indices)
    ]
    return [tensor(dims, operand_element(operands[1]))]


@inference
def _sparse_to_dense(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor(operand_shape(operands[0]), operand_element(operands[0]))]


@inference
def _image_to_tensor(row: Row, operands: Operands, properties: Properties) -> list[Attribute]:
    return [tensor((None, None, None), element_type("ui8"))]

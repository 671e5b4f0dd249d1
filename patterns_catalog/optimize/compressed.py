"""Weights of few bits, kept as they are: the toolchain computes casts of constants when it saves, and stores floats.

It never computes `blockwise_shift_scale`, so that a weight that a program casts to floats goes through this op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from patcomp.authoring import Coreai, CoreaiSource
from patcomp.ir.builder import Builder
from patcomp.ir.constants import constant_values, is_constant
from patcomp.ir.namespaces import coreai_namespace
from patcomp.ir.traits import Reshape
from patcomp.ir.types import integer_range
from patcomp.ir.value import Value, ValueType
from patcomp.ir.weights import is_compressed_type
from patcomp.ir.xdsl import DenseResourceAttr
from patcomp.patterns import ANY, OpView, any_of, call, example, formula, op_rule, pattern

_MUL, _SUB, _CAST = "coreai.decomposable.broadcasting_mul", "coreai.decomposable.broadcasting_sub", "coreai.cast"
_FLOATS = ("f16", "f32")
"""The floats that the toolchain makes of such integers when it saves. It leaves bfloat16 alone."""
_TABLE = [[(7 * i + 11 * j) % 255 - 127 for j in range(32)] for i in range(32)]


def _is_weight(data: Value, floats: Value | ValueType) -> bool:
    """Whether a value is a weight of integers, and another its floats."""
    maker = data.ssa.owner
    if not is_compressed_type(data.ssa.type) or floats.dtype not in _FLOATS or data.shape != floats.shape:
        return False
    return is_constant(maker) and isinstance(maker.properties["value"], DenseResourceAttr)  # type: ignore[union-attr]


def _weight(floats: Value) -> Value | None:
    """The integers of a weight that is cast to floats."""
    cast = floats.made_by(_CAST)
    data = None if cast is None else Value(cast.operands[0])
    return data if data is not None and _is_weight(data, floats) else None


def _is_of_weights(x: Value) -> bool:
    while (maker := x.made_by(Reshape, "coreai.transpose", _CAST)) is not None:
        x = Value(maker.operands[0])
    return is_constant(x.ssa.owner)


def _zero_point(x: Value, element: str, shape: Sequence[int]) -> np.ndarray | None:
    """The numbers of a constant as zero points for scales of a shape; None if it is another value, or they are not."""
    if (cast := x.made_by(_CAST)) is not None:
        x = Value(cast.operands[0])
    values = constant_values(x.ssa, Builder.current().blobs)
    if values is None or not np.isfinite(values).all():
        return None
    low, high = integer_range(element)
    aligned = (
        values.reshape([1] * (len(shape) - values.ndim) + list(values.shape)) if values.ndim <= len(shape) else None
    )
    if aligned is None or any(own not in (1, size) for own, size in zip(aligned.shape, shape, strict=True)):
        return None
    is_exact = np.all((values == np.trunc(values)) & (low <= values) & (values <= high))
    return np.broadcast_to(aligned, shape) if is_exact else None


def _dequantized(c: Coreai, data: Value, scale: Value, zero_point: np.ndarray) -> Value:
    """scale * (data - zero point); what is added is -0.0, which leaves zeros of either sign as they are."""
    offset = c.constant(zero_point, data.element_type)
    return c.blockwise_shift_scale(
        data, scale, offset, c.constant(np.full(scale.static_shape, -0.0), scale.element_type)
    )


@pattern(source=coreai_namespace)
def _scaled(a: CoreaiSource) -> Any:
    floats = a.cast(ANY, ANY)
    return a.broadcasting_mul(any_of(floats, a.broadcasting_sub(floats, ANY)), ANY), []


@op_rule("optimize", _MUL, size=2, pattern=_scaled, examples=[
    example("2x32xf32", program=lambda torch, x: x @ (torch.tensor(_TABLE, dtype=torch.int8).float() * 0.01)),
    example("2x32xf32", program=lambda torch, x: x @ (
        torch.linspace(0.01, 0.02, 32)[:, None] * (torch.tensor(_TABLE, dtype=torch.int8).float() - 3))),
])  # fmt: skip
def scaled_weight(op: OpView, c: Coreai) -> Value | None:
    "(cast(weight) - zero point) * scale -> blockwise_shift_scale, for weights of at most 8 bits"
    for floats, scale in ((op.input, op.other), (op.other, op.input)):
        minus = floats.made_by(_SUB)
        data = _weight(floats if minus is None else Value(minus.operands[0]))
        if data is None or op.result.shape != data.shape or not scale.is_static or not _is_of_weights(scale):
            continue
        shape = (*[1] * (data.rank - scale.rank), *scale.static_shape)
        zero = np.zeros(shape) if minus is None else _zero_point(Value(minus.operands[1]), data.dtype, shape)
        if zero is not None:
            return _dequantized(c, data, c.reshape(scale, shape), zero)
    return None


@formula("optimize", _CAST, examples=[
    example("2x32xf32", program=lambda torch, x: x @ torch.tensor(_TABLE, dtype=torch.int8).float()),
    example("32x32xf16", program=lambda torch, x: x + torch.tensor(_TABLE, dtype=torch.int8).half()),
], where=lambda input, result: [call(_is_weight, input, result)])  # fmt: skip
def weight_as_floats(c: Coreai, input: Value, result: ValueType) -> Value:
    "cast(weight) -> blockwise_shift_scale by 1, for weights of at most 8 bits"
    shape = [1] * input.rank
    return _dequantized(c, input, c.constant(np.ones(shape), result.element_type), np.zeros(shape))

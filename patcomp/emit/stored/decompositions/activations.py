"""Decompositions of activations and softmax.

Facts: the programs that coreai-core 1.0.0b3 saves for each op and element type.
"""

from __future__ import annotations

from collections.abc import Sequence

from patcomp.emit.bytecode import StoredEntry, StoredValue
from patcomp.emit.stored.decompositions.body import Body, decomposes, element, stored_dims_of, stored_tensor


@decomposes("relu_v1")
def relu(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """max(x, 0)"""
    (x,) = operands
    return [body.broadcasting("maximum", x, body.scalar(0, element(x)), stored_dims_of(x))]


@decomposes("sigmoid_v1")
def sigmoid(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """1 / (1 + exp(0 - x))"""
    (x,) = operands
    zero, one = (body.small_integer(number, element(x)) for number in (0, 1))
    power = body.primitive("exp", [body.broadcasting("sub", zero, x, stored_dims_of(x))], x.type)
    return [
        body.broadcasting("divide", one, body.broadcasting("add", one, power, stored_dims_of(x)), stored_dims_of(x))
    ]


@decomposes("silu_v1")
def silu(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """x * sigmoid(x)"""
    (x,) = operands
    return [body.broadcasting("mul", x, sigmoid(body, operands, results)[0], stored_dims_of(x))]


@decomposes("softmax_v1")
def softmax(body: Body, operands: Sequence[StoredValue], results: Sequence[StoredEntry]) -> list[StoredValue]:
    """exp(x) / sum(exp(x)) over one axis"""
    x, axis = operands
    axes = body.reshape(axis, body.vector([1]), (1,))
    power = body.primitive("exp", [x], x.type)
    total = body.composite("reduce_sum_v1", [power, axes], stored_tensor(stored_dims_of(x), element(x)))
    return [body.broadcasting("divide", power, total, stored_dims_of(x))]

"""Join, move and cut weights in their stored form, for experts, and for queries beside keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

import torch
from torch import Tensor

from patcomp_models.checkpoints.quantized.weight import PackedWeight, WeightPart
from patcomp_models.errors import LanguageModelError


def stacked(parts: Sequence[WeightPart]) -> WeightPart:
    """Weights of one shape along a new first axis, as the weights of experts are.

    Raises:
        LanguageModelError: they are stored in different forms.
    """
    return _combined(parts, lambda each: torch.stack(list(each)), keeps_order=False)


def joined_weights(parts: Sequence[WeightPart], axis: int) -> WeightPart:
    """Weights along an axis that they have.

    Raises:
        LanguageModelError: they are stored in different forms.
    """
    sizes = [part.shape[axis] for part in parts]

    def cat(each: Sequence[Tensor]) -> Tensor:
        block = math.gcd(*(size // part.shape[axis] for size, part in zip(sizes, each, strict=True)))
        times = [size // block // part.shape[axis] for size, part in zip(sizes, each, strict=True)]
        return torch.cat([_repeated(part, axis, count) for part, count in zip(each, times, strict=True)], axis)

    return _combined(parts, cat, keeps_order=True)


def taken(part: WeightPart, axis: int, order: Tensor) -> WeightPart:
    """The slices of an axis in another order."""
    size = part.shape[axis]
    return _mapped(part, lambda each: (
        each if each.shape[axis] == 1 else _repeated(each, axis, size // each.shape[axis]).index_select(axis, order)
    ))  # fmt: skip


def cut(part: WeightPart, axis: int, start: int, length: int) -> WeightPart:
    """Some slices of an axis."""
    return taken(part, axis, torch.arange(start, start + length))


def transposed_weight(part: WeightPart) -> WeightPart:
    """A weight whose last two axes are exchanged."""
    return _mapped(part, lambda each: each.transpose(-1, -2))


def in_rows(weight: PackedWeight, shape: Sequence[int]) -> PackedWeight:
    """A weight with a row for each group, in the shape of the model's weight; one of another size stays as it is."""
    outputs, inputs = shape[0], math.prod(shape[1:])
    if weight.shape == tuple(shape) or weight.data.numel() != outputs * inputs or inputs % weight.shape[-1]:
        return weight
    return _mapped(weight, lambda each: each.reshape(outputs, -1))


def _repeated(values: Tensor, axis: int, times: int) -> Tensor:
    return values if times == 1 else values.repeat_interleave(times, dim=axis)


@overload
def _mapped(part: PackedWeight, change: Callable[[Tensor], Tensor]) -> PackedWeight: ...
@overload
def _mapped(part: WeightPart, change: Callable[[Tensor], Tensor]) -> WeightPart: ...
def _mapped(part: WeightPart, change: Callable[[Tensor], Tensor]) -> WeightPart:
    if isinstance(part, Tensor):
        return _like(change, part)
    made: dict[str, Any] = {name: _mapped(each, change) for name, each in part.parameters.items()}
    return replace(part, data=_like(change, part.data), **made)


def _like(change: Callable[..., Tensor], *parts: Tensor) -> Tensor:
    """A change of tensors; PyTorch has too few operations for float8, whose bytes are moved."""
    if parts[0].is_floating_point() and parts[0].dtype.itemsize == 1:
        return change(*(part.view(torch.uint8) for part in parts)).view(parts[0].dtype)
    return change(*parts)


def _combined(
    parts: Sequence[WeightPart], change: Callable[[Sequence[Tensor]], Tensor], *, keeps_order: bool
) -> WeightPart:
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if len(tensors) == len(parts):
        return _like(lambda *each: change(each), *tensors)
    if tensors:
        raise LanguageModelError("some of the weights that are one in the model are floats, and some in few bits")
    weights = _alike([part for part in parts if isinstance(part, PackedWeight)])
    first = weights[0]
    orders = [weight.order for weight in weights]
    same_order = all(order is None for order in orders) or (
        keeps_order and all(order is not None and torch.equal(order, first.order) for order in orders)  # type: ignore[arg-type]
    )
    if not same_order:
        raise LanguageModelError(
            "weights that are one in the model have their inputs in different orders (act-order), which one product "
            "cannot take"
        )
    made: dict[str, Any] = {
        name: _combined([weight.parameters[name] for weight in weights], change, keeps_order=False)
        for name in first.parameters
    }
    return replace(first, data=_like(lambda *each: change(each), *(weight.data for weight in weights)), **made)


def _alike(weights: Sequence[PackedWeight]) -> Sequence[PackedWeight]:
    """Weights of one form: what is signed becomes unsigned where others are, and a zero point an offset."""
    if len({(weight.data.dtype, *weight.parameters) for weight in weights}) > 1:
        weights = [_unsigned(weight) for weight in weights]
        if any(weight.offset is not None for weight in weights):
            weights = [_with_offset(weight) for weight in weights]
    first = weights[0]
    for weight in weights:
        tables = [first.table, weight.table]
        same_table = tables == [None, None] or (None not in tables and torch.equal(*tables))  # type: ignore[arg-type]
        if (weight.bits, weight.data.dtype, *weight.parameters) != (
            first.bits,
            first.data.dtype,
            *first.parameters,
        ) or (not same_table):
            raise LanguageModelError("weights that are one in the model are stored in different forms")
    return weights


def _unsigned(weight: PackedWeight) -> PackedWeight:
    if weight.data.dtype != torch.int8 or weight.table is not None or not isinstance(weight.scale, Tensor):
        return weight
    middle = 1 << (weight.bits - 1)
    zeros = torch.zeros(weight.scale.shape) if weight.zero_point is None else weight.zero_point
    data = (weight.data.to(torch.int16) + middle).to(torch.uint8)
    return replace(weight, data=data, zero_point=(zeros.to(torch.int16) + middle).to(torch.uint8))


def _with_offset(weight: PackedWeight) -> PackedWeight:
    if weight.zero_point is None or not isinstance(weight.scale, Tensor):
        return weight
    return replace(weight, zero_point=None, offset=-(weight.zero_point.float() * weight.scale.float()))

"""Normalisation layers that export keeps whole, as composites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from patcomp.authoring import Coreai
from patcomp.ir.value import Value, ValueType
from patcomp.patterns import FurtherResults, condition, example, formula
from patterns_catalog.composites.norms import (
    FOLDED,
    batch_norm,
    centered_and_variance,
    compute_type,
    eps_of_batch,
    group_norm,
    instance_norm,
    layer_norm,
)
from patterns_catalog.sizes import Size, size_of, sizes_of, typed


def affine(
    c: Coreai, weight: Value | None, bias: Value | None, size: Sequence[Size], element: Any
) -> tuple[Value, Value]:
    """The weight and the bias of a layer; a missing weight defaults to ones, a missing bias to zeros."""
    return filled(c, weight, 1.0, size, element), filled(c, bias, 0.0, size, element)


def filled(c: Coreai, given: Value | None, number: float, size: Sequence[Size], element: Any) -> Value:
    """What is given; where nothing is, a number everywhere."""
    return given if given is not None else c.broadcast_to(c.constant(number, element), size)


@condition("{x} has {channels} channels, as far as it is known")
def _has_channels(x: Value, channels: int) -> bool:
    return x.shape[1] in (channels, None)


@condition("no op reads the saved statistics {results}, unless they are empty")
def _are_unread_or_empty(results: list[ValueType], used: list[bool]) -> bool:
    return not any(used[index] and 0 not in results[index].shape for index in (1, 2))


@condition("{values} are vectors")
def _are_vectors(values: list[Value | None]) -> bool:
    return all(value.rank == 1 for value in values if value is not None)


@condition("{one} and {other} are missing")
def _are_missing(one: Value | None, other: Value | None) -> bool:
    return one is None and other is None


def _no_statistics(c: Coreai, results: list[ValueType], used: list[bool]) -> list[Value | None]:
    """The saved statistics of a batch norm outside training: empty vectors, where a program reads them."""
    return [
        c.broadcast_to(c.constant(0, type_.element_type), list(type_.static_shape)) if read else None
        for type_, read in zip(results[1:], used[1:], strict=True)
    ]


def _statistics(
    c: Coreai, x: Value, axes: list[int], eps: float, results: list[ValueType], used: list[bool],
    groups: int | None = None,
) -> list[Value | None]:  # fmt: skip
    """The second and third result of a norm: mean and 1 / sqrt(var + eps) of the normalised values."""
    if not used[1] and not used[2]:
        return [None, None]
    if groups is not None:
        x = c.reshape(x, [size_of(c, x, 0), groups, -1])
    wide = c.cast(x, compute_type(x))
    _, variance = centered_and_variance(c, wide, axes)
    statistics = c.reduce_mean(wide, axes), c.rsqrt(c.broadcasting_add(variance, eps))
    shapes = [[-1 if size is None else size for size in result.shape] for result in results[1:]]
    if groups is not None:  # whose batch alone may be dynamic
        statistics = c.reshape(statistics[0], shapes[0]), c.reshape(statistics[1], shapes[1])
    return [c.cast(value, result.element_type) for value, result in zip(statistics, results[1:], strict=True)]


_STATISTICS = {
    "infinities and zeros": FurtherResults("eager's running mean of infinity is NaN or not, by where it stands")
}


@formula("recover", "aten.native_layer_norm", name="layer_norm", unspecified=_STATISTICS, examples=[
    example("2x3x4xf32", [4], "4xf32", "4xf32", 1e-5), example("2x3x4xf32", [3, 4], None, None, 1e-3),
])  # fmt: skip
def native_layer_norm(
    c: Coreai, input: Value, normalized_shape: list[int], weight: Value | None, bias: Value | None, eps: float,
    results: list[ValueType], used: list[bool],
) -> list[Value | None]:  # fmt: skip
    "(x - mean) / sqrt(var + eps) * weight + bias over the last axes; a missing weight is ones, a missing bias zeros"
    axes = list(range(input.rank - len(normalized_shape), input.rank))
    weight, bias = affine(c, weight, bias, normalized_shape, input.element_type)
    result = layer_norm(input, weight, bias, axes=axes, eps=eps)
    return [typed(c, result, results[0].shape), *_statistics(c, input, axes, eps, results, used)]


@formula("recover", "aten.native_group_norm", name="group_norm", unspecified=_STATISTICS, examples=[
    example("2x6x4x5xf32", "6xf32", "6xf32", 2, 6, 20, 3, 1e-5), example("2x4x5xf32", None, None, 2, 4, 5, 2, 1e-5),
], where=lambda input, C: [  # noqa: N803  (the schema's name)
    ((input.rank > 1) & _has_channels(input, C)).says("group_norm: the second dimension of the input is not {}", C),
], ignored=dict.fromkeys(("N", "HxW"), "the input's shape has them"))  # fmt: skip
def native_group_norm(
    c: Coreai, input: Value, weight: Value | None, bias: Value | None, group: int, C: int, eps: float,  # noqa: N803
    results: list[ValueType], used: list[bool],
) -> list[Value | None]:  # fmt: skip
    "(x - mean) / sqrt(var + eps) * weight + bias, the statistics of each group of channels"
    weight, bias = affine(c, weight, bias, [C], input.element_type)
    result = group_norm(input, weight, bias, num_groups=group, num_channels=C, eps=eps)
    return [typed(c, result, results[0].shape), *_statistics(c, input, [2], eps, results, used, group)]


@formula("recover", "aten._native_batch_norm_legit_no_training", name="batch_norm", unspecified=FOLDED, examples=[
    example("2x3x4x5xf32", "3xf32", "3xf32", "3xf32", "3xf32[0.5,2]", 0.1, 1e-5),
    example("2x3xf32", None, None, "3xf32", "3xf32[0.5,2]", 0.1, 1e-5),
], where=lambda input, weight, bias, running_mean, running_var, results, used: [
    _are_unread_or_empty(results, used).says(
        "batch_norm: the saved statistics are used; export the model in eval mode"
    ),
    (input.rank > 1).says("batch_norm: the input has no channels"),
    _are_vectors([weight, bias, running_mean, running_var]).says(
        "batch_norm: weights and statistics must be vectors"
    ),
], ignored={"momentum": "it only concerns training"})  # fmt: skip
def native_batch_norm(
    c: Coreai, input: Value, weight: Value | None, bias: Value | None, running_mean: Value, running_var: Value,
    eps: float, results: list[ValueType], used: list[bool],
) -> list[Value | None]:  # fmt: skip
    "(x - mean) / sqrt(var + eps) * weight + bias with the running statistics of each channel"
    weight, bias = affine(c, weight, bias, sizes_of(c, running_mean), running_mean.element_type)
    result = batch_norm(input, weight, bias, running_mean, running_var, eps=eps)
    return [result, *_no_statistics(c, results, used)]


_GIVEN = "instance_norm uses running statistics, which the composite does not have"


@formula(
    "recover",
    "aten.instance_norm",
    name="instance_norm",
    examples=[
        example("2x4x5x3xf32", "4xf32", "4xf32", None, None, True, 0.1, 1e-5, False),
        example("2x4x5xf32", None, None, None, None, True, 0.1, 1e-3, False),
    ],
    where=lambda input, running_mean, running_var, use_input_stats: [
        use_input_stats.is_in(True).says(_GIVEN),
        _are_missing(running_mean, running_var).says(_GIVEN),
        (input.rank > 2).says("instance_norm needs at least one dimension after the channels"),
        (input.shape[1] >= 0).says("instance_norm needs a static number of channels"),
    ],
    ignored=dict.fromkeys(("momentum", "cudnn_enabled"), "they concern training, and how PyTorch computes it"),
)
def aten_instance_norm(c: Coreai, input: Value, weight: Value | None, bias: Value | None, eps: float) -> Value:
    "(x - mean) / sqrt(var + eps) * weight + bias, the statistics of each channel of each instance"
    channels = input.static_shape[1]
    weight, bias = affine(c, weight, bias, [channels], input.element_type)
    column = [channels, *([1] * (input.rank - 2))]
    return instance_norm(input, c.reshape(weight, column), c.reshape(bias, column), eps=eps_of_batch(eps))

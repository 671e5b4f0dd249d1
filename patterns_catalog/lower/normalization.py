"""Norms that are no composites."""

from __future__ import annotations

from patcomp.authoring import Coreai
from patcomp.ir.value import Value
from patcomp.patterns import OpView, example, formula, lowering
from patcomp.patterns.conditions import is_given
from patterns_catalog.composites.norms import FOLDED, compute_type, eps_of_batch


@formula(
    "lower", "aten.instance_norm", name="instance_norm by given statistics", unspecified=FOLDED,
    ignored={"momentum": "it concerns training", "cudnn_enabled": "it says how PyTorch computes the norm"},
    where=lambda input, running_mean, running_var, use_input_stats: [
        (~use_input_stats).says(
            "instance norm updates its running statistics; export the model in eval mode"),
        (is_given(running_mean) & is_given(running_var)).says(
            "instance norm without use_input_stats needs statistics"),
        (input.rank > 2).says("an instance norm needs an input of rank 3 or more"),
    ], examples=[example("2x4x5xf32", "4xf32", None, "4xf32", "4xf32[0.5,2]", False, 0.1, 1e-5, False)],
)  # fmt: skip
def instance_norm(
    c: Coreai,
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    eps: float,
) -> Value:  # fmt: skip
    "(x - mean) * rsqrt(var + eps) * weight + bias for each channel"
    wide = c.cast(input, compute_type(input))
    deviation = c.rsqrt(c.broadcasting_add(_per_channel(c, running_var, wide), eps))
    made = c.broadcasting_mul(c.broadcasting_sub(wide, _per_channel(c, running_mean, wide)), deviation)
    return c.cast(_affine(c, made, weight, bias), input.element_type)


@lowering("aten._native_batch_norm_legit.no_stats", unspecified={
    "sizes": "eager does not check that weight and bias fit the channels",
    "large numbers": "the mean of large numbers that are equal is rounded",
}, examples=[
    example("2x3x4x5xf32", "3xf32", "3xf32", True, 0.1, 1e-5), example("4x3xf32", None, None, True, 0.1, 1e-3),
    example("2x3x4xf32", "3xf32", None, True, 0.1, 1e-5),
])  # fmt: skip
def batch_norm_of_batch(op: OpView, c: Coreai) -> list[Value]:
    "(x - mean) * rsqrt(var + eps) * weight + bias for each channel, the batch's mean, and rsqrt(var + eps)"
    op.ignore("momentum", because="there are no running statistics to update")
    op.expect(op.training, "a batch norm outside of training needs running statistics")
    x = op.input
    op.expect(x.rank > 1, "a batch norm needs an input of rank 2 or more")
    ranks = {value.rank for value in (op.weight, op.bias) if value is not None}
    op.expect(ranks <= {1}, "weight and bias of a batch norm must have one dimension")
    wide = c.cast(x, compute_type(x))
    axes = [0, *range(2, x.rank)]
    mean = c.reduce_mean(wide, axes)
    centered = c.broadcasting_sub(wide, mean)
    variance = c.reduce_mean(c.broadcasting_mul(centered, centered), axes)
    deviation = c.rsqrt(c.broadcasting_add(variance, eps_of_batch(op.eps)))
    if op.eps == 0:
        deviation = c.broadcasting_where(c.broadcasting_equal(variance, 0.0), 0.0, deviation)
    made = _affine(c, c.broadcasting_mul(centered, deviation), op.weight, op.bias)
    results = made, c.shrink_dims(mean, axes), c.shrink_dims(deviation, axes)
    return [c.cast(value, result.element_type) for value, result in zip(results, op.results, strict=True)]


def _affine(c: Coreai, x: Value, weight: Value | None, bias: Value | None) -> Value:
    """x * weight + bias for each channel."""
    if weight is not None:
        x = c.broadcasting_mul(x, _per_channel(c, weight, x))
    return x if bias is None else c.broadcasting_add(x, _per_channel(c, bias, x))


def _per_channel(c: Coreai, value: Value, x: Value) -> Value:
    """A value for each channel in the element type of `x`, shaped to broadcast with it."""
    channels = -1 if value.shape[0] is None else value.shape[0]
    return c.reshape(c.cast(value, x.element_type), [channels, *([1] * (x.rank - 2))])

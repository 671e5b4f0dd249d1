"""What PyTorch's norms and its attention compute over the reals: the formulas of PyTorch's documentation.

Their kernels round in a way that no formula says, so these formulas are for worlds of reals alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from patcomp_lab.proof.scalars import meaning_of
from patcomp_lab.proof.symbols import MEANINGS, Symbols, UnreachedError, codes_of
from patcomp_lab.proof.worlds import World

_add, _sub, _mul, _div = (meaning_of(name) for name in ("add", "sub", "mul", "div"))
_mean, _rsqrt = meaning_of("mean"), meaning_of("rsqrt")


def _normal(world: World, x: Any, axes: Sequence[int], eps: float) -> tuple[Any, Any, Any]:
    """`(x - mean) / sqrt(variance + eps)`, the mean, and the inverse of the root."""
    mean = _mean(world, x, list(axes), True)
    apart = _sub(world, x, mean)
    inverse = _rsqrt(world, _add(world, _mean(world, _mul(world, apart, apart), list(axes), True), eps))
    return _mul(world, apart, inverse), mean, inverse


def _scaled(world: World, x: Any, weight: Any, bias: Any) -> Any:
    made = x if weight is None else _mul(world, x, weight)
    return made if bias is None else _add(world, made, bias)


def _layer_norm(world: World, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    made, mean, inverse = _normal(world, x, range(x.dim() - len(shape), x.dim()), eps)
    return _scaled(world, made, weight, bias), mean, inverse


def _group_norm(
    world: World, x: Any, weight: Any, bias: Any, batch: int, channels: int, rest: int, groups: int, eps: float
) -> Any:
    grouped = Symbols(codes_of(x, world).reshape(batch, groups, -1), x.dtype, world)
    made, mean, inverse = _normal(world, grouped, [2], eps)
    made = Symbols(made.codes.reshape(x.shape), x.dtype, world)
    shape = [1, channels, *[1] * (x.dim() - 2)]
    weight, bias = (each if each is None else each.reshape(shape) for each in (weight, bias))
    results = (Symbols(each.codes.reshape(batch, groups), x.dtype, world) for each in (mean, inverse))
    return _scaled(world, made, weight, bias), *results


def _batch_norm(
    world: World, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    shape = [1, -1, *[1] * (x.dim() - 2)]
    mean, variance, weight, bias = (
        each if each is None else each.reshape(shape) for each in (mean, variance, weight, bias)
    )
    # as a symbol, so that statistics are not computed as numbers here and as symbols on the other side
    shifted = _add(world, Symbols(codes_of(variance, world), x.dtype, world), eps)
    made = _mul(world, _sub(world, x, mean), _rsqrt(world, shifted))
    empty = torch.empty(0)
    return _scaled(world, made, weight, bias), empty, empty


def _attention(
    world: World, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """`softmax(scale q k^T + mask) v`; a row of which everything is masked is 0."""
    if dropout_p:
        raise UnreachedError("a dropout")
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(times, -3) for each in (key, value))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = _mul(world, MEANINGS["matmul"](world, query, key.transpose(-1, -2)), factor)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is None:
        weights = MEANINGS["softmax"](world, scores, -1)
    elif attn_mask.dtype == torch.bool:
        masked = torch.where(attn_mask, scores, -math.inf)
        weights = MEANINGS["softmax"](world, masked, -1)
        weights = torch.where(attn_mask.expand(scores.shape).any(-1, keepdim=True), weights, 0.0)
    else:
        masked = _add(world, scores, attn_mask)
        weights = MEANINGS["softmax"](world, masked, -1)
        seen = MEANINGS["ne"](world, MEANINGS["amax"](world, masked, [-1], True), -math.inf)
        weights = torch.where(seen, weights, 0.0)
    return MEANINGS["matmul"](world, weights, value)


FORMULAS: Mapping[str, Callable[..., Any]] = {
    "aten.native_layer_norm": _layer_norm,
    "aten.native_group_norm": _group_norm,
    "aten._native_batch_norm_legit_no_training": _batch_norm,
    "aten.scaled_dot_product_attention": _attention,
}
"""The formula of each op."""

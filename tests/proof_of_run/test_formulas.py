"""The formulas of norms and attention, on symbols of numbers and beside the same formula of PyTorch's ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from patcomp_lab.proof.outcome import symbolic
from patcomp_lab.proof.run.formulas import FORMULAS
from patcomp_lab.proof.symbols import Symbols, UnreachedError, same_codes
from patcomp_lab.proof.worlds import CodeKind, World

ATEN = torch.ops.aten
X = torch.tensor([[1.0, -1.0, 3.0, 1.0], [2.0, 4.0, 0.0, -2.0], [5.0, 3.0, 3.0, 5.0]])
"""Means of pairs, and roots of their variances with an eps, are short numbers."""
IMAGE = X.reshape(1, 6, 2).repeat(2, 1, 1)
WEIGHT, BIAS = torch.tensor([2.0, -1.0, 0.5, 3.0, 1.0, 4.0]), torch.tensor([1.0, 0.0, -2.0, 5.0, 0.5, 7.0])
NORMS: dict[str, tuple[str, Callable[..., Any], tuple[Any, ...]]] = {
    "layer": ("native_layer_norm", ATEN.native_layer_norm, (X.reshape(3, 2, 2), [2], WEIGHT[:2], BIAS[:2], 3.0)),
    "layer, plain": ("native_layer_norm", ATEN.native_layer_norm, (X.reshape(6, 2), [2], None, None, 8.0)),
    "layer of two axes": ("native_layer_norm", ATEN.native_layer_norm, (
        torch.tensor([[[1.0, -1.0], [1.0, -1.0]]]), [2, 2], None, BIAS[:4].reshape(2, 2), 3.0)),
    "group": ("native_group_norm", ATEN.native_group_norm, (
        torch.tensor([1.0, -1.0] * 12).reshape(2, 6, 2), WEIGHT, BIAS, 2, 6, 2, 3, 3.0)),
    "group, plain": ("native_group_norm", ATEN.native_group_norm, (IMAGE, None, None, 2, 6, 2, 6, 3.0)),
    "batch": ("_native_batch_norm_legit_no_training", ATEN._native_batch_norm_legit_no_training, (
        IMAGE, WEIGHT, BIAS, torch.arange(6.0), torch.tensor([1.0, 6.0, 13.0, 1.0, 22.0, 1.0]), 0.1, 3.0)),
    "batch, plain": ("_native_batch_norm_legit_no_training", ATEN._native_batch_norm_legit_no_training, (
        IMAGE, None, None, torch.arange(6.0), torch.ones(6), 0.1, 3.0)),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_numbers(name: str) -> None:
    op, kernel, arguments = NORMS[name]
    world = World(CodeKind.REALS)
    expected = kernel(*(each.double() if isinstance(each, Tensor) else each for each in arguments))
    x = Symbols(world.numbers(arguments[0]), torch.float32, world)
    made = FORMULAS[f"aten.{op}"](world, x, *arguments[1:])
    for number, (wanted, found) in enumerate(zip(expected, made, strict=True)):
        if wanted.numel():
            assert tuple(found.shape)[: wanted.dim()] == tuple(wanted.shape)[: found.dim()], number
            assert torch.equal(world.numbers(wanted).flatten(), found.codes.flatten()), number


def attention(query: Any, key: Any, value: Any, mask: Any, scale: float) -> Any:
    scores = query @ key.mT * scale
    return (scores if mask is None else torch.where(mask, scores, -math.inf)).softmax(-1) @ value


SEEN = torch.tensor([[True, True, False], [False, False, False]])
CAUSAL = torch.ones(2, 3, dtype=torch.bool).tril()


@pytest.mark.parametrize(
    ("mask", "options", "seen", "scale"),
    [
        (None, {}, None, 0.5),
        (None, {"scale": 3.0}, None, 3.0),
        (None, {"is_causal": True}, CAUSAL, 0.5),
        (SEEN, {}, SEEN, 0.5),
        (torch.where(SEEN, 0.0, -math.inf), {}, SEEN, 0.5),
        (None, {"enable_gqa": True}, None, 0.5),
    ],
)
def test_attention(mask: Any, options: dict[str, Any], seen: Any, scale: float) -> None:
    """A row of which everything is masked is 0."""
    world = World(CodeKind.REALS)
    heads = 1 if options.get("enable_gqa") else 2
    query, key, value = (
        symbolic(torch.zeros(shape), str(number), world)
        for number, shape in enumerate([(1, 2, 2, 4), (1, heads, 3, 4), (1, heads, 3, 4)])
    )
    made = FORMULAS["aten.scaled_dot_product_attention"](world, query, key, value, mask, **options)
    wanted = attention(query, *(each.repeat_interleave(2 // heads, 1) for each in (key, value)), seen, scale)
    if seen is SEEN:
        assert same_codes(wanted[..., :1, :], made[..., :1, :], world)
        assert torch.equal(made[..., 1:, :].codes, torch.zeros(1, 2, 1, 4, dtype=torch.int64))
    else:
        assert same_codes(wanted, made, world)


def test_a_dropout_is_not_reached() -> None:
    with pytest.raises(UnreachedError, match="a dropout"):
        FORMULAS["aten.scaled_dot_product_attention"](World(CodeKind.REALS), X, X, X, None, 0.5)

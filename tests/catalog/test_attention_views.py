"""Attention whose scores have batch and heads as one axis, while masks and softmax have them as two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.catalog.attention_models import assert_equal, attentions, convert, export, input_types
from tests.catalog.attention_views import (
    BATCH,
    HEADS,
    KEYS,
    QUERIES,
    WIDTH,
    bloom_with_bias_of_columns,
    joined,
    split,
    tensors,
)
from tests.catalog.recovering import Calling

ROWS = BATCH * HEADS


def bloom(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`baddbmm` with a bias, which is taken apart into a sum, and both products over joined heads."""
    scores = torch.baddbmm(joined(bias), joined(q), joined(k).transpose(1, 2), beta=1.0, alpha=WIDTH**-0.5)
    weights = split(scores).softmax(-1)
    return split(torch.bmm(joined(weights), joined(v)))


def bloom_with_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = torch.baddbmm(joined(bias), joined(q), joined(k).transpose(1, 2), beta=1.0, alpha=WIDTH**-0.5)
    weights = (split(scores) + torch.full((QUERIES, KEYS), -1e4).triu(1)).softmax(-1)
    return split(torch.bmm(joined(weights), joined(v)))


def disentangled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """DeBERTa-v2: the scale is computed and divides the columns, and the query is multiplied twice."""
    scale = torch.sqrt(torch.tensor(float(WIDTH)) * 3)
    query = joined(q)
    positions = torch.bmm(query, joined(v).transpose(-1, -2)) / scale
    scores = torch.bmm(query, joined(k).transpose(-1, -2) / scale) + positions
    weights = split(scores).masked_fill(bias[:, :1] > 2.0, torch.finfo(torch.float32).min).softmax(-1)
    return split(torch.bmm(joined(weights), joined(v)))


def returned_joined(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = torch.bmm(joined(q), joined(k).transpose(1, 2)) * WIDTH**-0.5
    return torch.bmm(joined((split(scores) + bias).softmax(-1)), joined(v))


SPELLINGS: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (bloom, (BATCH, HEADS, QUERIES, KEYS)),
    (bloom_with_mask, (BATCH, HEADS, QUERIES, KEYS)),
    (bloom_with_bias_of_columns, (BATCH, HEADS, 1, KEYS)),
    (disentangled, (BATCH, HEADS, QUERIES, KEYS)),
    (returned_joined, (BATCH, HEADS, QUERIES, KEYS)),
]
"""Functions, and the shapes of their masks."""


@pytest.mark.parametrize("default_table", [False, True])
@pytest.mark.parametrize(("function", "mask"), SPELLINGS)
def test_joined_scores(function: Callable[..., Any], mask: tuple[int, ...], default_table: bool) -> None:
    module = Calling(function)
    program = convert(export(module, tensors(), default_table=default_table))
    assert attentions(program) == 1, program.why_not("attention written out")
    assert input_types(program)[:3] == [f"tensor<2x4x{length}x8xf32>" for length in (QUERIES, KEYS, KEYS)]
    assert input_types(program)[3] == f"tensor<{'x'.join(map(str, mask))}xf32>"
    assert_equal(program, module, tensors(), 1e-4)


# ---- near misses ---------------------------------------------------------------------------------


def split_between_heads_and_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The view before the softmax moves elements between rows."""
    scores = (torch.bmm(joined(q), joined(k).transpose(1, 2)) + joined(bias)).view(BATCH, HEADS, KEYS, QUERIES)
    return torch.bmm(scores.softmax(-1).view(ROWS, QUERIES, KEYS), joined(v))


def bias_of_all_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The bias broadcasts over batch and heads, and so does not split; it stays where it is."""
    scores = torch.bmm(joined(q), joined(k).transpose(1, 2)) + bias[0, :1]
    return torch.bmm(joined(split(scores).softmax(-1).sqrt()), joined(v))


def heads_before_batch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Joined as heads and batch, split as batch and heads: the softmax is the same, the mask would not be."""
    rows = [x.transpose(0, 1).reshape(ROWS, *x.shape[2:]) for x in (q, k, v)]
    scores = split(torch.bmm(rows[0], rows[1].transpose(1, 2))) + bias
    return torch.bmm(joined(scores.softmax(-1)), rows[2])


def columns_divided_by_a_tensor(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    scores = torch.bmm(joined(q), joined(k).transpose(-1, -2) / bias.mean()) + joined(bias)
    return torch.bmm(joined(split(scores).softmax(-1)), joined(v))


def sum_returned(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> Any:
    scores = torch.bmm(joined(q), joined(k).transpose(1, 2)) + joined(bias)
    return torch.bmm(joined(split(scores).softmax(-1)), joined(v)), scores


NEAR_MISSES = [split_between_heads_and_rows, bias_of_all_rows, columns_divided_by_a_tensor, sum_returned]


@pytest.mark.parametrize("function", NEAR_MISSES)
def test_what_is_no_attention_stays(function: Callable[..., Any]) -> None:
    module = Calling(function)
    program = convert(export(module, tensors()))
    assert attentions(program) == 0
    assert_equal(program, module, tensors(), 1e-4)


def test_the_order_of_batch_and_heads_is_kept() -> None:
    module = Calling(heads_before_batch)
    program = convert(export(module, tensors()))
    assert_equal(program, module, tensors(), 1e-4)


@pytest.mark.parametrize("number", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_numbers_computed_from_numbers(dtype: torch.dtype, number: torch.dtype) -> None:
    """Products, roots and casts of numbers round as their element types do; integers are divided as floats."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        scale = torch.sqrt(torch.tensor(3.3, dtype=number) * torch.tensor(7.7, dtype=number))
        columns = x.transpose(-1, -2).reshape(ROWS, WIDTH, KEYS)
        return columns / (scale.to(dtype) if dtype.is_floating_point else scale)

    module, (_, key, *_) = Calling(scaled), tensors()
    key = (key * 10).to(dtype)
    program = convert(export(module, (key,)))
    assert_equal(program, module, (key,), 1e-5 if dtype == torch.float32 else 1e-2)
    assert "aten.sqrt" not in program.stages["normalize"]

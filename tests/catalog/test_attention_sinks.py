"""Attention with sinks, one more column of scores whose weights are dropped, as gpt-oss and its relatives write it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from patcomp import AIProgram, TorchConverter, get_decomp_table
from patcomp.emit.native import Native
from tests.catalog.attention_masks import assert_equal
from tests.catalog.attention_models import attention_graph, input_types
from tests.catalog.recovering import Calling

RULE = "attention written out"
CAUSAL = torch.ones(3, 5, dtype=torch.bool).tril(2)


def _repeat(x: Tensor) -> Tensor:
    batch, heads, length, width = x.shape
    return x[:, :, None].expand(batch, heads, 2, length, width).reshape(batch, heads * 2, length, width)


def _column(sinks: Tensor, query: Tensor) -> Tensor:
    return sinks.reshape(1, -1, 1, 1).expand(query.shape[0], -1, query.shape[-2], -1)


def gpt_oss(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    scores = torch.matmul(query, _repeat(key).transpose(2, 3)) * 0.3
    scores = scores + torch.where(CAUSAL, 0.0, torch.finfo(query.dtype).min).to(query.dtype)
    logits = torch.cat([scores, _column(sinks, query)], dim=-1)
    logits = logits - logits.max(dim=-1, keepdim=True).values
    weights = torch.softmax(logits, dim=-1, dtype=logits.dtype)[..., :-1]
    return torch.matmul(weights.to(query.dtype), _repeat(value))


def privacy_filter(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    """The softmax in float32."""
    logits = torch.cat([query @ _repeat(key).mT, _column(sinks, query)], dim=-1)
    logits = logits - logits.max(dim=-1, keepdim=True).values
    return torch.softmax(logits, dim=-1, dtype=torch.float32)[..., :-1].to(query.dtype) @ _repeat(value)


def flint(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    """Without the largest score subtracted."""
    scores = (query @ _repeat(key).mT) / 8**0.5
    logits = torch.cat([scores, sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)], dim=-1)
    return torch.softmax(logits, dim=-1)[..., :-1] @ _repeat(value)


def rows_without_a_key(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    """All of the weight is the sink's."""
    scores = (query @ _repeat(key).mT).masked_fill(torch.tensor([[0, 1, 0]]).T > 0, -math.inf)
    logits = torch.cat([scores, _column(sinks, query)], dim=-1)
    logits = logits - logits.amax(-1, keepdim=True)
    return torch.softmax(logits, dim=-1)[..., : key.shape[-2]] @ _repeat(value)


def one_batch_of_heads(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    query, key, value = query[0], _repeat(key)[0], _repeat(value)[0]
    logits = torch.cat([query @ key.mT, sinks[:, None, None].expand(-1, query.shape[1], 1)], -1)
    return logits.softmax(-1)[..., :-1] @ value


def tensors(dtype: torch.dtype = torch.float32, batch: int = 2, length: int = 3, keys: int = 5) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((batch, 4, length, 8), (batch, 2, keys, 8), (batch, 2, keys, 8), (4,))
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


def convert(function: Callable[..., Any], inputs: tuple[Tensor, ...], decompose: bool, shapes: Any = None) -> AIProgram:
    exported = torch.export.export(Calling(function), inputs, dynamic_shapes=shapes and (shapes,))
    exported = exported.run_decompositions(get_decomp_table()) if decompose else exported
    return TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("decompose", [False, True], ids=["whole", "decomposed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [gpt_oss, privacy_filter, flint, rows_without_a_key, one_batch_of_heads])
def test_sinks_are_an_input(function: Any, dtype: torch.dtype, decompose: bool, native: Native) -> None:
    inputs = tensors(dtype)
    program = convert(function, inputs, decompose)
    assert program.composites == {"scaled_dot_product_attention": 1}, program.why_not(RULE)
    assert input_types(program)[-1] == f"tensor<4x{input_types(program)[0].rpartition('x')[2]}"
    assert ', "sinks"]' in str(attention_graph(program).properties["composite_decl"])
    assert_equal(program, Calling(function), inputs, native)


@pytest.mark.parametrize("decompose", [False, True], ids=["whole", "decomposed"])
@pytest.mark.parametrize("function", [privacy_filter, flint])
def test_sinks_of_open_sizes(function: Any, decompose: bool, native: Native) -> None:
    batch, length, keys = Dim("batch", min=1, max=16), Dim("length", min=1, max=64), Dim("keys", min=2, max=64)
    query, key = {0: batch, 2: length}, {0: batch, 2: keys}
    program = convert(function, tensors(), decompose, (query, key, key, None))
    assert program.composites == {"scaled_dot_product_attention": 1}, program.why_not(RULE)
    for sizes in ((2, 3, 5), (1, 1, 2), (3, 6, 4)):
        assert_equal(program, Calling(function), tensors(torch.float32, *sizes), native)


# ---- near misses -------------------------------------------------------------------------------------


def sinks_of_rows(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    logits = torch.cat([query @ _repeat(key).mT, query[..., :1]], -1)
    return logits.softmax(-1)[..., :-1] @ _repeat(value)


def sinks_of_batches(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    column = sinks[:2].reshape(2, 1, 1, 1).expand(-1, 4, query.shape[-2], -1)
    logits = torch.cat([query @ _repeat(key).mT, column], -1)
    return logits.softmax(-1)[..., :-1] @ _repeat(value)


def one_sink(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    column = sinks[:1].reshape(1, 1, 1, 1).expand(query.shape[0], 4, query.shape[-2], 1)
    logits = torch.cat([query @ _repeat(key).mT, column], -1)
    return logits.softmax(-1)[..., :-1] @ _repeat(value)


def first_column_dropped(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    logits = torch.cat([query @ _repeat(key).mT, _column(sinks, query)], -1)
    return logits.softmax(-1)[..., 1:] @ _repeat(value)


def two_columns(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    column = sinks.reshape(1, -1, 1, 1).expand(query.shape[0], -1, query.shape[-2], 2)
    logits = torch.cat([query @ _repeat(key).mT, column], -1)
    return logits.softmax(-1)[..., :-2] @ _repeat(value)


def nothing_dropped(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    logits = torch.cat([query @ _repeat(key).mT, _column(sinks, query)], -1)
    return logits.softmax(-1) @ torch.cat([_repeat(value), _repeat(value)[:, :, :1]], -2)


def row_dropped(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    """The last query is dropped, and the sink keeps its weight."""
    logits = torch.cat([query @ _repeat(key).mT, _column(sinks, query)], -1)
    return logits.softmax(-1)[:, :, :-1] @ torch.cat([_repeat(value), _repeat(value)[:, :, :1]], -2)


def largest_of_columns(query: Tensor, key: Tensor, value: Tensor, sinks: Tensor) -> Tensor:
    logits = torch.cat([query @ _repeat(key).mT, _column(sinks, query)], -1)
    return (logits - logits.amax(-2, keepdim=True)).softmax(-1)[..., :-1] @ _repeat(value)


@pytest.mark.parametrize(
    "function",
    [
        sinks_of_rows, sinks_of_batches, one_sink, first_column_dropped, two_columns, nothing_dropped, row_dropped,
        largest_of_columns,
    ],
)  # fmt: skip
def test_other_columns_stay(function: Any) -> None:
    program = convert(function, tensors(), False)
    assert program.composites == {}
    assert_equal(program, Calling(function), tensors())

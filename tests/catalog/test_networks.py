"""Pooling, resizing, convolutions, attention and normalisation in their odd uses.

Every case runs on the reference evaluator and on the real runtime, beside eager PyTorch.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from patcomp.emit.native import Native
from tests.catalog.cases import assert_all_agree, assert_refused, make_case, param, values

NAN, INF = float("nan"), float("inf")
ATTENTION = "scaled_dot_product_attention"
MAX_POOL = "max_pool2d_with_indices"
BATCH_NORM = "_native_batch_norm_legit_no_training"

IMAGES = [
    param("max_pool of negative values at the padding", MAX_POOL, -torch.rand(1, 1, 4, 4) - 1, [3, 3], [2, 2], [1, 1]),
    param("max_pool of NaN", MAX_POOL, values([[[[NAN, 1.0], [2.0, 3.0]]]]), [1, 2], [1, 1]),
    param(
        "max_pool with ceil that starts in the padding", MAX_POOL, "1x1x4x4xf32", [2, 2], [3, 3], [1, 1], [1,
        1], True,
    ),
    param("max_pool with ceil and dilation", MAX_POOL, "1x2x9x8xf32", [3, 2], [2, 3], [1, 1], [2, 1], True),
    param("max_pool of half precision", MAX_POOL, "1x2x6x6xf16", [2, 2], [1, 1], [1, 1], [2, 2]),
    param("max_pool without batch", MAX_POOL, "2x6x5xf32", [3, 3], [1, 2], [1, 0]),
    *(
        param(f"nearest to {size}", "upsample_nearest2d.vec", "1x2x5x4xf32", size, None)
        for size in ([7, 9], [3, 2], [10, 8], [15, 5], [1, 1], [11, 3])
    ),
    *(
        param(f"nearest by {factors}", "upsample_nearest2d.vec", "1x1x5x7xf32", None, factors)
        for factors in ([1.7, 0.8], [2.0, 3.0], [1.25, 1.25], [0.5, 0.6], [2.6, 1.999])
    ),
    param(
        "convolution by strides and dilations", "convolution", "1x4x9x8xf32", "6x4x3x2xf32", None, [2, 3], [2,
        0], [1, 2], False, [0, 0], 1,
    ),
    param(
        "depthwise convolution", "convolution", "1x4x5x5xf32", "8x1x3x3xf32", "8xf32", [1, 1], [1, 1], [1, 1],
        False, [0, 0], 4,
    ),
    param(
        "convolution of half precision", "convolution", "1x3x5x5xf16", "2x3x3x3xf16", "2xf16", [1, 1], [1, 1],
        [1, 1], False, [0, 0], 1,
    ),
    param(
        "transposed convolution", "convolution", "1x4x3x4xf32", "4x5x2x3xf32", "5xf32", [2, 3], [0, 1], [1, 1],
        True, [1, 2], 1,
    ),
    param(
        "transposed convolution in groups", "convolution", "1x6x3x4xf32", "6x2x3x3xf32", "6xf32", [2, 2], [1,
        1], [1, 2], True, [1, 0], 3,
    ),
    param(
        "transposed convolution in 3-d", "convolution", "1x2x2x3x3xf32", "2x3x2x2x2xf32", "3xf32", [2, 2, 1],
        [1, 0, 0], [1, 1, 1], True, [1, 1, 0], 1,
    ),
    param("transposed convolution in 1-d", "convolution", "2x4x5xf32", "4x3x4xf32", None, [3], [2], [1], True, [1], 1),
    param("pixel_shuffle of many batches", "pixel_shuffle", "2x3x8x2x3xf32", 2),
    param("pixel_shuffle by 1", "pixel_shuffle", "1x2x3x3xf32", 1),
]  # fmt: skip

_QKV = ("1x2x3x4xf32", "1x2x5x4xf32", "1x2x5x4xf32")
_EMPTY_ROW = values([[True, False, True, True, False], [False] * 5, [True] * 5], torch.bool)

NETWORKS = [
    param("attention of rank 2", ATTENTION, "3x4xf32", "5x4xf32", "5x4xf32"),
    param("attention that broadcasts", ATTENTION, "2x2x3x4xf32", "1x2x5x4xf32", "1x2x5x4xf32"),
    param("attention with a bool mask that leaves a row empty", ATTENTION, *_QKV, _EMPTY_ROW),
    param(
        "attention with -infinity in a mask", ATTENTION, *_QKV,
        torch.where(_EMPTY_ROW, torch.randn(3, 5, generator=torch.Generator().manual_seed(0)), -INF),
    ),
    param(
        "attention with more queries than keys", ATTENTION, "1x2x6x4xf32", "1x2x3x4xf32", "1x2x3x4xf32",
        is_causal=True,
    ),
    param("attention with more keys than queries", ATTENTION, *_QKV, is_causal=True),
    param("attention with a scale", ATTENTION, *_QKV, scale=0.7),
    param("attention with a negative scale", ATTENTION, *_QKV, scale=-1.0),
    param("grouped queries", ATTENTION, "1x6x3x4xf32", "1x2x5x4xf32", "1x2x5x4xf32", enable_gqa=True),
    param("grouped queries of rank 3", ATTENTION, "6x3x4xf32", "2x5x4xf32", "2x5x4xf32", enable_gqa=True),
    param("attention of rank 3 with a mask", ATTENTION, "2x3x4xf32", "2x5x4xf32", "2x5x7xf32", "2x3x5xf32"),
    param("attention of rank 5", ATTENTION, "2x3x2x3x4xf32", "2x3x2x5x4xf32", "2x3x2x5x4xf32"),
    param(
        "attention of rank 5 with a mask of rank 5", ATTENTION, "2x3x2x3x4xf32", "2x3x2x5x4xf32",
        "2x3x2x5x6xf32", "2x1x2x3x5xf32",
    ),
    param(
        "attention of rank 5 with a mask of rank 4", ATTENTION, "2x3x2x3x4xf32", "2x3x2x5x4xf32",
        "2x3x2x5x4xf32", "3x1x3x5xf32",
    ),
    param("attention with wider values", ATTENTION, "1x2x3x4xf32", "1x2x5x4xf32", "1x2x5x9xf32"),
    param("attention with a mask for each key", ATTENTION, *_QKV, "1x5xf32"),
    param("attention with a mask for each batch", ATTENTION, "2x2x3x4xf32", "2x2x5x4xf32", "2x2x5x4xf32", "2x1x1x5xi1"),
    param("attention of half precision", ATTENTION, "1x2x3x4xf16", "1x2x5x4xf16", "1x2x5x4xf16", "3x5xf16"),
    param("layer_norm over several axes", "native_layer_norm", "2x3x4x5xf32", [4, 5], "4x5xf32", "4x5xf32", 1e-5),
    param("layer_norm without bias", "native_layer_norm", "2x3x4xf32", [4], "4xf32", None, 1e-5),
    param("layer_norm over everything", "native_layer_norm", "3x4xf32", [3, 4], None, None, 1e-5),
    param("layer_norm of large half precision", "native_layer_norm", "2x9xf16[-900,900]", [9], "9xf16", "9xf16", 1e-5),
    param(
        "layer_norm of half precision with float32 weights", "native_layer_norm", "2x9xbf16", [9], "9xf32",
        "9xf32", 1e-5,
    ),
    param("group_norm of rank 2", "native_group_norm", "3x6xf32", "6xf32", None, 3, 6, 1, 2, 1e-5),
    param("group_norm of rank 5", "native_group_norm", "2x4x2x3x2xf32", None, "4xf32", 2, 4, 12, 4, 1e-3),
    param("group_norm of half precision", "native_group_norm", "2x6x4xf16", "6xf16", "6xf16", 2, 6, 4, 3, 1e-5),
    param("batch_norm without affine", BATCH_NORM, "2x3x4x5xf32", None, None, "3xf32", "3xf32[0.5,2]", 0.1, 1e-3),
    param(
        "batch_norm of half precision with float32 statistics", BATCH_NORM, "2x3x4xf16", "3xf32", "3xf32",
        "3xf32", "3xf32[0.5,2]", 0.1, 1e-5,
    ),
    param("batch_norm of rank 5", BATCH_NORM, "2x3x2x2x2xf32", "3xf32", None, "3xf32", "3xf32[0.5,2]", 0.1, 1e-5),
    param("log_softmax of half precision", "_log_softmax", "2x9xf16[-99,99]", 1, False),
]  # fmt: skip


@pytest.mark.parametrize(("op", "args", "kwargs"), [*IMAGES, *NETWORKS])
def test_agrees(op: str, args: tuple[Any, ...], kwargs: dict[str, Any], native: Native) -> None:
    assert_all_agree(make_case(op, args, kwargs), native)


REFUSED = [
    param("attention with dropout", ATTENTION, *_QKV, dropout_p=0.1),
    param(
        "a convolution of integers", "convolution", "1x1x3x3xsi64", "1x1x2x2xsi64", None, [1, 1], [0, 0], [1,
        1], False, [0, 0], 1,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("op", "args", "kwargs"), REFUSED)
def test_is_refused(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert_refused(make_case(op, args, kwargs))

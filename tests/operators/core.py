"""Core ATen: an example call of each overload that PyTorch tags as core, and the few that are refused."""

from __future__ import annotations

import torch

from patcomp.evaluate.eager import overload_of
from patcomp.ir import aten
from patcomp.patterns import Example, example

UNARY = (
    "abs", "alias", "any", "asinh", "atan", "bitwise_not", "ceil", "clone", "cos", "cosh", "elu", "erf", "exp",
    "expm1", "floor", "gelu", "hardtanh", "isinf", "isnan", "leaky_relu", "logical_not", "neg", "nonzero", "prod",
    "mean", "relu", "round", "sigmoid", "sign", "sin", "sinh", "tan", "tanh", "trunc",
)  # fmt: skip
POSITIVE = (
    "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt",
)  # fmt: skip
BINARY = (
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "div", "eq", "fmod", "ge", "gt", "le", "lt", "mul", "ne",
    "remainder", "sub",
)  # fmt: skip
PLAIN_BINARY = (
    "atan2", "logical_and", "logical_or", "logical_xor", "maximum", "minimum",
)  # fmt: skip

_BITS = ("bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor")


def _type(name: str, floats: str) -> str:
    return "2x3xsi32" if name in _BITS else floats


EXAMPLES: dict[str, Example] = {
    **{f"aten.{name}": example(_type(name, "2x3xf32")) for name in UNARY},
    **{f"aten.{name}": example("2x3xf32[0.1,4]") for name in POSITIVE},
    **{f"aten.{name}.Tensor": example(_type(name, "2x3xf32"), _type(name, "2x3xf32[1,4]")) for name in BINARY},
    **{f"aten.{name}.Scalar": example(_type(name, "2x3xf32"), 3) for name in BINARY},
    **{f"aten.{name}": example("2x3xf32", "3xf32") for name in PLAIN_BINARY},
    **{f"aten.{name}": example("2x3xf32[-0.9,0.9]") for name in ("acos", "asin", "atanh")},
    "aten.acosh": example("2x3xf32[1,4]"),
    "aten._adaptive_avg_pool2d": example("1x2x7x5xf32", [3, 2]),
    "aten._adaptive_avg_pool3d": example("1x2x4x5x6xf32", [2, 3, 4]),
    "aten._cdist_forward": example("3x4xf32", "5x4xf32", 2.0, None),
    "aten._fft_c2r": example("3x4xcomplex<f32>", [1], 0, 6),
    "aten._fft_r2c": example("3x6xf32", [1], 0, True),
    "aten._log_softmax": example("2x3xf32", -1, False),
    "aten._native_batch_norm_legit.no_stats": example("2x3x4xf32", "3xf32", "3xf32", True, 0.1, 1e-5),
    "aten._native_batch_norm_legit_no_training": example(
        "2x3x4xf32", "3xf32", "3xf32", "3xf32", "3xf32[0.5,2]", 0.1, 1e-5
    ),
    "aten._pdist_forward": example("4x3xf32", 2.0),
    "aten._softmax": example("2x3xf32", -1, False),
    "aten._to_copy": example("2x3xf32", dtype="f16"),
    "aten.adaptive_avg_pool1d": example("2x3x8xf32", [5]),
    "aten.addmm": example("4xf32", "2x3xf32", "3x4xf32", beta=0.5, alpha=2),
    "aten.amax": example("2x3x4xf32", [0, 2]),
    "aten.amin": example("2x3x4xf32", [-1], True),
    "aten.any.dim": example("2x3xi1", 1),
    "aten.any.dims": example("2x3x4xi1", [0, 2]),
    "aten.arange.start_step": example(1, 9, 3),
    "aten.argmax": example("2x5xsi32[0,3]", 1),
    "aten.argmin": example("2x5xsi32[0,3]", 1),
    "aten.as_strided": example("12xf32", [3, 2], [4, 1], 1),
    "aten.avg_pool1d": example("2x3x8xf32", [3], [2], [1], False, False),
    "aten.avg_pool2d": example("1x2x7x5xf32", [3, 2], [2, 1], [1, 0], False, False),
    "aten.avg_pool3d": example("1x2x4x5x6xf32", [2, 2, 2]),
    "aten.bmm": example("2x3x4xf32", "2x4x5xf32"),
    "aten.cat": example(["2x3xf32", "1x3xf32"], 0),
    "aten.clamp": example("2x3xf32", -0.5, 0.5),
    "aten.clamp.Tensor": example("2x3xf32", "3xf32[-1,0]", "3xf32[0,1]"),
    "aten.col2im": example("1x8x12xf32", [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]),
    "aten.constant_pad_nd": example("2x3xf32", [1, -1, 2, 0], 0.5),
    "aten.convolution": example("1x4x6x5xf32", "6x2x3x3xf32", "6xf32", [2, 1], [1, 1], [1, 1], False, [0, 0], 2),
    "aten.copy": example("2x3xf32", "3xf32"),
    "aten.cumsum": example("2x3xf32", 1),
    "aten.diagonal": example("3x4xf32", 1),
    "aten.div.Scalar_mode": example("2x3xf32", 0.7, rounding_mode="floor"),
    "aten.div.Tensor_mode": example("2x3xsi32", "3xsi32[1,4]", rounding_mode="trunc"),
    "aten.embedding": example("5x3xf32", "2x4xsi64[0,4]", 1),
    "aten.embedding_dense_backward": example("2x4x3xf32", "2x4xsi64[0,4]", 5, 1, False),
    "aten.expand": example("1x3xf32", [2, 3]),
    "aten.fill.Scalar": example("2x3xf32", 0.5),
    "aten.flip": example("2x3xf32", [0, -1]),
    "aten.full": example([2, 3], 0.5),
    "aten.full_like": example("2x3xf32", 0.5),
    "aten.gather": example("2x5xf32", 1, "2x3xsi64[0,4]"),
    "aten.grid_sampler_2d": example("1x2x4x5xf32", "1x3x3x2xf32", 0, 0, False),
    "aten.index.Tensor": example("4x5x2xf32", ["3xsi64[-4,3]", "3xsi64[0,4]"]),
    "aten.index_put": example("4x5xf32", ["3xsi64[0,3]"], "3x5xf32", True),
    "aten.index_select": example("2x5xf32", 1, "3xsi64[0,4]"),
    "aten.masked_scatter": example("2x3xf32", "2x3xi1", "6xf32"),
    "aten.max.dim": example("2x5xsi32[0,3]", 1),
    "aten.min.dim": example("2x5xf32", 1, True),
    "aten.max_pool2d_with_indices": example("1x2x7x5xf32", [3, 2], [2, 1], [1, 0]),
    "aten.max_pool2d_with_indices_backward": example(
        "1x2x2x2xf32", "1x2x4x4xf32", [2, 2], [2, 2], [0, 0], [1, 1], False, "1x2x2x2xsi64[0,15]"
    ),
    "aten.max_pool3d_with_indices": example("1x2x4x5x6xf32", [2, 2, 2]),
    "aten.mean.dim": example("2x3x4xf32", [0, 2], True),
    "aten.mm": example("2x3xf32", "3x4xf32"),
    "aten.native_dropout": example("2x3xf32", 0.5, False),
    "aten.native_group_norm": example("2x4x3xf32", "4xf32", "4xf32", 2, 4, 3, 2, 1e-5),
    "aten.native_group_norm_backward": example(
        "2x4x3xf32", "2x4x3xf32", "2x2xf32", "2x2xf32[0.5,2]", "4xf32", 2, 4, 3, 2, [True, True, True]
    ),
    "aten.native_layer_norm": example("2x3xf32", [3], "3xf32", "3xf32", 1e-5),
    "aten.native_layer_norm_backward": example(
        "2x3xf32", "2x3xf32", [3], "2x1xf32", "2x1xf32[0.5,2]", "3xf32", "3xf32", [True, True, True]
    ),
    "aten.permute": example("2x3x4xf32", [2, 0, -2]),
    "aten.pow.Scalar": example(2.0, "2x3xf32"),
    "aten.pow.Tensor_Scalar": example("2x3xf32[0.1,2]", 1.7),
    "aten.pow.Tensor_Tensor": example("2x3xf32[0.1,2]", "3xf32"),
    "aten.prod.dim_int": example("2x3xf32", 1),
    "aten.reflection_pad1d": example("1x2x5xf32", [2, 1]),
    "aten.reflection_pad2d": example("1x2x4x5xf32", [2, 1, 1, 3]),
    "aten.reflection_pad3d": example("1x2x4x5x3xf32", [2, 1, 1, 3, 0, 2]),
    "aten.repeat": example("2x3xf32", [2, 1, 2]),
    "aten.replication_pad2d": example("1x2x4x5xf32", [2, 1, 1, 3]),
    "aten.replication_pad3d": example("1x2x4x5x3xf32", [2, 1, 1, 3, 0, 2]),
    "aten.scalar_tensor": example(0.1),
    "aten.scatter.src": example("3x5xf32", 1, torch.tensor([[0, 2], [1, 3], [4, 0]]), "3x2xf32"),
    "aten.scatter.value": example("3x5xf32", 1, "3x2xsi64[0,4]", 0.5),
    "aten.scatter_add": example("3x5xf32", 1, "3x4xsi64[0,4]", "3x4xf32"),
    "aten.scatter_reduce.two": example("3x5xf32", 1, "3x4xsi64[0,4]", "3x4xf32", "mean", include_self=False),
    "aten.select.int": example("2x3xf32", 1, -1),
    "aten.select_scatter": example("2x3xf32", "2xf32", 1, -1),
    "aten.slice.Tensor": example("2x9xf32", 1, 1, 8, 3),
    "aten.slice_scatter": example("2x9xf32", "2x3xf32", 1, 1, 8, 3),
    "aten.sort": example("2x5xf32", -1, True),
    "aten.split_with_sizes": example("2x5xf32", [2, 3], 1),
    "aten.squeeze.dim": example("2x1x3xf32", 1),
    "aten.squeeze.dims": example("1x2x1xf32", [0, 1, 2]),
    "aten.sum.dim_IntList": example("2x3x4xf32", [0, 2]),
    "aten.topk": example("2x5xf32", 3, -1),
    "aten.unsqueeze": example("2x3xf32", -1),
    "aten.upsample_bilinear2d.vec": example("1x2x4x5xf32", [7, 9], False, None),
    "aten.upsample_nearest2d.vec": example("1x2x4x5xf32", [7, 9], None),
    "aten.var.correction": example("2x3x4xf32", [0, 2], correction=0),
    "aten.var.dim": example("2x3x4xf32", [1]),
    "aten.view": example("2x6xf32", [3, -1]),
    "aten.where.self": example("2x3xi1", "2x3xf32", "3xf32"),
}
"""A call of each overload that converts, in the notation of rules' examples."""

TRAINING = "a gradient, which inference does not compute"
RANDOM = "its result is random or uninitialised"
NO_TENSOR = "it gives a number about a tensor; with static shapes export has computed it"

REFUSED: dict[str, str] = {
    "aten.atan2.out": "it writes into an argument",
    "aten._native_batch_norm_legit": "it updates running statistics, which are state",
    "aten._local_scalar_dense": "its result is a Python number that shapes and control flow may depend on",
    "aten._adaptive_avg_pool2d_backward": TRAINING,
    "aten._embedding_bag": "of its results only the sums are computed, the others are for gradients",
    "aten.avg_pool2d_backward": TRAINING,
    "aten.convolution_backward": TRAINING,
    "aten.empty.memory_format": RANDOM,
    "aten.empty_strided": RANDOM,
    "aten.rand": RANDOM,
    "aten.randn": RANDOM,
    "aten.randperm": RANDOM,
    "aten.resize_": "it writes into an argument",
    "aten.sym_is_contiguous": NO_TENSOR,
    "aten.sym_numel": NO_TENSOR,
    "aten.sym_size.int": NO_TENSOR,
    "aten.sym_storage_offset": NO_TENSOR,
    "aten.sym_stride.int": NO_TENSOR,
}
"""The overloads without an example, and why: nothing to compare, or not converted."""


def core_overloads() -> list[str]:
    """The names of all overloads that PyTorch tags as core."""
    names = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    overloads = (overload_of(aten.op_name(name)) for name in names)
    return sorted(aten.op_name(op.name()) for op in overloads if torch.Tag.core in op.tags)

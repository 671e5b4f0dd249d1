"""The samples of PyTorch's OpInfo database as programs that can be exported."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import settings
from torch import nn
from torch.utils import _pytree as pytree

settings.register_profile("chosen", settings.default)
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.opinfo.core import OpInfo  # noqa: E402

settings.load_profile("chosen")  # because PyTorch's import loads a profile of its own, with few examples

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
    "uint8": torch.uint8,
    "complex64": torch.complex64,
    "float64": torch.float64,
}
"""The element types that are swept."""

RANDOM = frozenset({
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric",
    "log_normal", "multinomial", "new_empty", "new_empty_strided", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "normal", "pca_lowrank", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "svd_lowrank", "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._efficient_attention_forward", "uniform",
})  # fmt: skip
"""OpInfos whose results are random or uninitialised: there is nothing to compare with."""


def name_of(op: OpInfo) -> str:
    """The name of an OpInfo with its variant, `"softmax (with_dtype)"`."""
    return f"{op.name} ({op.variant_test_name})" if op.variant_test_name else op.name


def operators(dtype: torch.dtype) -> list[OpInfo]:
    """The OpInfos that take an element type and have results that can be compared; jiterator compiles for GPUs."""
    return [
        op
        for op in op_db
        if op.name not in RANDOM and not op.name.startswith("jiterator") and op.supports_dtype(dtype, "cpu")
    ]


class Program(nn.Module):
    """One call of an operator as a module: its tensors are the inputs, all else is fixed."""

    def __init__(self, op: OpInfo, sample: Any):
        super().__init__()
        self.op = op
        leaves, self.structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.tensors = tuple(leaf.detach().clone() for leaf in leaves if isinstance(leaf, torch.Tensor))
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.positions = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        leaves = list(self.leaves)
        for index, tensor in zip(self.positions, tensors, strict=True):
            leaves[index] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        result = self.op.op(first, *args, **kwargs)
        return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


@dataclass(frozen=True)
class Sample:
    """A call with what eager PyTorch gives for it."""

    program: Program
    expected: list[torch.Tensor]
    text: str


def samples(op: OpInfo, dtype: torch.dtype, limit: int | None = None) -> Iterator[Sample]:
    """The first samples of an operator that eager PyTorch runs without a gradient, always the same ones."""
    torch.manual_seed(0)
    count = 0
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
            if limit is not None and count >= limit:
                return
            program = Program(op, sample)
            try:
                expected = program(*(tensor.clone() for tensor in program.tensors))
            except Exception:
                continue  # PyTorch itself does not take it
            count += 1
            yield Sample(program, expected, _text(sample))


def _text(sample: Any) -> str:
    def short(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
        return leaf

    first, args, kwargs = pytree.tree_map(short, (sample.input, sample.args, sample.kwargs))
    parts = [str(first), *map(str, args), *(f"{name}={value}" for name, value in kwargs.items())]
    return ", ".join(parts)[:300]

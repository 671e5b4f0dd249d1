"""Ops of PyTorch with arguments, as the tests of narrowing see them: tensors whose elements are in a range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from patcomp.ir import tensor
from patcomp.ir.aten import op_class
from patcomp.ir.types import ELEMENT_OF_TORCH
from patcomp.ir.value import Value
from patcomp.ir.xdsl import Block
from patcomp.narrowing.ranges import Range, RangedOp, Transfer
from patcomp.narrowing.transfer_functions import transfer_of


def overload(name: str) -> Any:
    packet, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), kind or "default")


def value(like: torch.Tensor, shape: Sequence[int | None] | None = None) -> Value:
    element = ELEMENT_OF_TORCH[str(like.dtype).removeprefix("torch.")]
    return Value(Block(arg_types=[tensor(tuple(like.shape if shape is None else shape), element)]).args[0])


def function_of(name: str) -> Transfer:
    found = transfer_of(op_class(f"aten.{name}"))
    assert found is not None, name
    return found


def ranges_of(name: str, given: dict[str, Any], results: list[Value], known: dict[Value, Range]) -> list[Range]:
    found = function_of(name)(RangedOp(given, results, known.__getitem__))
    return [found] * len(results) if isinstance(found, Range) else list(found)


@dataclass(frozen=True)
class Filled:
    """A tensor whose elements are in a range."""

    shape: tuple[int, ...]
    low: int
    high: int
    dtype: torch.dtype = torch.int64


def index(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


X, Y = Filled((2, 3), -5, 2), Filled((2, 3), -1, 4)
FLOATS = Filled((2, 3), -5, 2, torch.float32)
OPS: list[tuple[str, tuple[Any, ...]]] = [
    ("cat", ([X, Y], 1)),
    ("stack", ([Y, X, Y],)),
    ("copy", (X, Y)),
    ("embedding", (X, index(0, 1, 1))),
    ("constant_pad_nd", (X, [1, 1], 7)),
    ("scatter.value", (X, 0, index(1)[None], -9)),
    ("scatter.src", (X, 0, index(1)[None], Y)),
    ("select_scatter", (X, Filled((3,), -1, 9), 0, 1)),
    ("slice_scatter", (X, Filled((1, 3), -9, 1), 0, 1)),
    ("masked_scatter", (X, torch.tensor([True, False, True]), Y)),
    ("index_put", (X, [index(0)], Filled((1, 3), -9, 9))),
    ("split.Tensor", (X, 2, 1)),
    ("split_with_sizes", (X, [1, 2], 1)),
    ("unbind.int", (X, 1)),
    ("full", ([2], 3)),
    ("full", ([2], -2.0)),
    ("full_like", (X, -2.75)),
    ("scalar_tensor", (True,)),
    ("where.self", (torch.tensor([True, False, True]), X, Y)),
    ("sum", (X,)),
    ("sum.dim_IntList", (X, [1])),
    ("sum.dim_IntList", (X, [-2])),
    ("cumsum", (X, 1)),
    ("cumsum", (Filled((5,), 2, 3), 0)),
    ("mm", (X, Filled((3, 4), -2, 3))),
    ("amax", (X, [0])),
    ("min", (X,)),
    ("max.dim", (X, 1)),
    ("sort", (X, 0)),
    ("topk", (X, 1, 1)),
    ("cummin", (X, 1)),
    ("argmax", (X, 1)),
    ("argmin", (X, None)),
    ("tril_indices", (4, 2)),
    ("triu_indices", (2, 5)),
    ("nonzero", (Filled((3, 5), 0, 1),)),
    ("sym_size.int", (X, -1)),
    ("max_pool2d_with_indices", (Filled((1, 4, 6), 0, 1, torch.float32), [2, 2])),
    ("max_pool3d_with_indices", (Filled((1, 2, 2, 4), 0, 1, torch.float32), [2, 2, 2])),
    *((name, (FLOATS,)) for name in ("floor", "ceil", "round", "trunc", "neg", "abs")),
    ("add.Tensor", (FLOATS, 0.5)),
    ("relu", (FLOATS,)),
]


def mapped(arguments: Any, function: Any) -> Any:
    if isinstance(arguments, list | tuple):
        return type(arguments)(mapped(each, function) for each in arguments)
    return function(arguments) if isinstance(arguments, Filled | torch.Tensor) else arguments

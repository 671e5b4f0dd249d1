"""The traits of PyTorch's operators in the bundled table, on the operators themselves."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from patcomp.ir import aten
from patcomp.ir.traits import Elementwise, Selection, Whole
from tests.helpers.ranged_ops import overload

SIZES = torch.Size([2, 3])
NUMBERS = {"number": 2, "float": 0.5, "int": 2, "bool": True, "str": "floor"}


def required(name: str) -> list[str]:
    """The types of the arguments without a default, which come first; of a clamp also that of its lower bound."""
    declared = overload(name)._schema.arguments
    count = 2 if name.startswith(("clamp", "clip")) else sum(not each.has_default_value() for each in declared)
    return [str(each.type).removeprefix("Optional[").removesuffix("]") for each in declared[:count]]


def called(name: str, arguments: list[Any]) -> Tensor:
    """The first result, of floats or else of integers or bools."""
    for dtype in (torch.float32, torch.int64, torch.bool):
        try:
            given = [x.to(dtype) if isinstance(x, Tensor) else x for x in arguments]
            declared = overload(name)._schema.arguments
            result = overload(name)(**{each.name: x for each, x in zip(declared, given, strict=False)})
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        return result if isinstance(result, Tensor) else result[0]
    raise AssertionError(f"{name} takes no element type")


@pytest.mark.parametrize("first", range(8))
def test_elementwise(first: int) -> None:
    """Another element of an operand changes one element of the result, and the operands broadcast."""
    names = sorted(aten.overloads_with(Elementwise))[first::8]
    for name in (each.removeprefix("aten.") for each in names):
        types = required(name)
        generator = torch.Generator().manual_seed(0)
        tensors = [torch.rand(SIZES, generator=generator) for kind in types if kind == "Tensor"]
        whole = iter(tensors)
        arguments = [next(whole) if kind == "Tensor" else NUMBERS[kind] for kind in types]
        before = called(name, arguments)
        assert before.shape == SIZES, name
        for place, x in enumerate(arguments):
            if isinstance(x, Tensor):
                other = x.clone()
                other[1, 2] = 1 - other[1, 2]
                after = called(name, [*arguments[:place], other, *arguments[place + 1 :]])
                same = (after == before) | (after != after)
                same[1, 2] = True
                assert same.all(), name
                if len(tensors) > 1:
                    row = called(name, [*arguments[:place], x[:1], *arguments[place + 1 :]])
                    assert row.shape == SIZES, name


ARGUMENTS: dict[str, list[Any]] = {
    "as_strided": [[2, 2], [1, 2]], "chunk": [2], "expand": [[2, 2, 3]], "expand_as": [torch.zeros(2, 2, 3)],
    "gather": [0, torch.tensor([[1, 0, 1]])], "index.Tensor": [[torch.tensor([1, 1])]],
    "index_select": [1, torch.tensor([2, 0])], "masked_select": [torch.tensor([True, False, True])],
    "movedim.int": [0, 1], "movedim.intlist": [[0, 1], [1, 0]], "narrow": [1, 1, 2],
    "narrow.Tensor": [1, torch.tensor(1), 2], "permute": [[1, 0]], "repeat": [[2, 1, 2]],
    "repeat_interleave.self_int": [2], "reshape": [[3, 2]], "reshape_as": [torch.zeros(6)], "select.int": [1, 2],
    "split": [[1, 2], 1], "split.Tensor": [1], "split.sizes": [[1, 2], 1], "split_with_sizes": [[1, 2], 1],
    "squeeze.dim": [0], "squeeze.dims": [[0]], "swapaxes": [0, 1], "swapdims": [0, 1], "transpose.int": [0, 1],
    "unflatten.int": [1, [3, 1]], "unfold": [1, 2, 1], "unsqueeze": [1], "view": [[3, 2]],
    "view_as": [torch.zeros(3, 2)], "_unsafe_view": [[6]], "flip": [[1]],
}  # fmt: skip


@pytest.mark.parametrize("first", range(4))
def test_selections(first: int) -> None:
    """The results have only elements of the first operand; those of some ops have all."""
    for name in (each.removeprefix("aten.") for each in sorted(aten.overloads_with(Selection))[first::4]):
        x = torch.arange(6.0).reshape(2, 3) + 1
        if name == "pixel_shuffle":
            x, arguments = torch.arange(16.0).reshape(4, 2, 2), [2]
        elif "_pad" in name:
            axes = int(name[-2])
            x, arguments = torch.arange(4.0**axes).reshape(1, *[4] * axes), [[1, 2] * axes]
        else:
            arguments = ARGUMENTS.get(name, [])
        made = overload(name)(x, *arguments)
        parts = [made] if isinstance(made, Tensor) else made
        found = {number for part in parts for number in part.flatten().tolist()}
        assert found <= set(x.flatten().tolist()), name
        if f"aten.{name}" in aten.overloads_with(Whole):
            assert len(found) == math.prod(x.shape), name

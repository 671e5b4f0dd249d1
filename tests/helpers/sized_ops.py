"""Ops of PyTorch on tensors with dynamic dimensions: the shapes that PyTorch computes, and the extents that we find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from patcomp.ir import aten, coreai
from patcomp.ir.extents import Extent, extents, mark_sizes
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from tests.helpers.programs import program

SIZES: list[dict[str, int]] = [{"a": 3, "b": 5, "c": 7}, {"a": 11, "b": 2, "c": 4}]
"""Sizes by name. An extent is right if it is the real size for all of them."""
ALL = tuple(SIZES[0])
LAYOUT = ("device", "layout", "memory_format", "non_blocking", "pin_memory")
"""Arguments that the dialect does not have."""


@dataclass(frozen=True)
class X:
    """A tensor argument: its dimensions are numbers or names of sizes."""

    dims: tuple[int | str, ...]
    dtype: str = "f32"

    def meta(self, sizes: Mapping[str, int]) -> torch.Tensor:
        dtype = {"f32": torch.float32, "i1": torch.bool, "si64": torch.int64}[self.dtype]
        return torch.empty([sizes.get(dim, dim) for dim in self.dims], dtype=dtype, device="meta")  # type: ignore[call-overload]


@dataclass(frozen=True)
class S:
    """A size argument: the sum of a number and a product of sizes."""

    names: str
    times: int = 1
    plus: int = 0

    def number(self, sizes: Mapping[str, int]) -> int:
        result = self.times
        for name in self.names:
            result *= sizes[name]
        return result + self.plus


def x(*dims: int | str, dtype: str = "f32") -> X:
    return X(dims, dtype)


def replaced(arguments: Any, function: Callable[[Any], Any]) -> Any:
    """The arguments with other objects in the place of tensors and sizes."""
    if isinstance(arguments, list | tuple):
        return [replaced(each, function) for each in arguments]
    return function(arguments) if isinstance(arguments, X | S) else arguments


def overload(name: str) -> Any:
    packet, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), kind or "default")


def real_shapes(name: str, arguments: list[Any], sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The shape of each result as PyTorch computes it."""
    given = replaced(arguments, lambda each: each.meta(sizes) if isinstance(each, X) else each.number(sizes))
    more = {"device": "meta"} if name in ("full", "arange.start_step") else {}
    if name == "var.correction":
        given, more = given[:2], {"correction": given[2], "keepdim": given[3]}
    made = overload(name)(*given, **more)
    return [tuple(each.shape) for each in (made if isinstance(made, tuple | list) else [made])]


def extents_of_results(name: str, arguments: list[Any]) -> list[list[Extent]]:
    """The extents of each result of an op on arguments with dynamic dimensions."""
    tensors: list[X] = []
    replaced(arguments, lambda each: tensors.append(each) if isinstance(each, X) else None)
    tensors = [*dict.fromkeys(tensors), x(*ALL), x(1, *ALL)]  # the last two have all sizes, so that they are shared
    shapes = [real_shapes(name, arguments, sizes) for sizes in SIZES]
    types = [
        tensor([size if size == other else None for size, other in zip(*each, strict=True)], "f32")
        for each in zip(*shapes, strict=True)
    ]
    results: list[Value] = []

    def body(*values: Value) -> list[Value]:
        whole, number = values[-2], tensor((), "si64")
        lengths = {name: aten.build("aten.sym_size.int", number, self=whole, dim=axis) for axis, name in enumerate(ALL)}

        def size(of: S) -> Value:
            made = coreai.constant(np.array(of.times), "si64")
            for name in of.names:
                made = aten.build("aten.mul.Tensor", number, self=made, other=lengths[name])
            constant = coreai.constant(np.array(of.plus), "si64")
            return aten.build("aten.add.Tensor", number, self=constant, other=made, alpha=1) if of.plus else made

        by_tensor = dict(zip(tensors, values, strict=True))
        schema = overload(name)._schema.arguments
        given = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
        given = {name: default for name, default in given.items() if name not in LAYOUT}
        named = replaced(arguments, lambda each: by_tensor[each] if isinstance(each, X) else size(each))
        given |= dict(zip((argument.name for argument in schema), named, strict=False))
        made = aten.build(f"aten.{name}", types, **given)
        results.extend(made)
        return made

    inputs = {
        f"x{place}": "x".join([*("?" if isinstance(dim, str) else str(dim) for dim in each.dims), each.dtype])
        for place, each in enumerate(tensors)
    }
    module = program(inputs, body)
    mark_sizes(module.graph("main"), [[dim if isinstance(dim, str) else "" for dim in each.dims] for each in tensors])
    return [extents(result) for result in results]


def evaluated(extent: Extent, sizes: Mapping[str, int]) -> int | None:
    """The number that an extent stands for; None if it has an unknown without a name."""
    if isinstance(extent, int):
        return extent
    total = 0
    for monomial, factor in extent.terms:
        for name, power in monomial:
            if name not in sizes:
                return None
            factor *= sizes[name] ** power  # type: ignore[index]
        total += factor
    return total

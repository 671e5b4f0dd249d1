"""Inputs of a program as numbers: those that are given, and others of the same kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.eager import random_tensor
from patcomp.evaluate.inputs import call_arguments, named_arguments
from patcomp.interface.graphs import argument_types
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name, is_integer, shape_of, tensor

_DRAWS = 2
"""How many draws of numbers are compared."""


def draws_of(program: Any, imported: IRModule, entry: str, inputs: Any) -> list[dict[str, Tensor]]:
    """The inputs and contents of states of an entry point by name, for each draw.

    Floats are normally distributed. Integers are those that are given, in another order in each draw, and 0 and 1 if
    none are given, as they may be indices. Open sizes are those that are given, or the smallest ones.

    Args:
        program: the converted program.
        imported: the program before the first stage.
        entry: the entry point.
        inputs: the model's arguments, as `AIProgram.verify_against` takes them; None to draw all of them.

    Raises:
        EvaluationError: the inputs are not those of the entry point.
    """
    given: dict[str, Any] = {}
    if inputs is not None:
        given = named_arguments(program.signature(entry), *call_arguments(inputs))
    smallest = program.dims[entry].smallest() if entry in program.dims else {}
    types: Mapping[str, Any] = argument_types(imported.graph(entry))
    return [
        {
            name: _drawn(name, type_, given.get(name), smallest, 100 * draw + index)
            for index, (name, type_) in enumerate(types.items())
        }
        for draw in range(_DRAWS)
    ]


def _drawn(name: str, type_: Any, given: Any, smallest: Mapping[tuple[str, int], int], seed: int) -> Tensor:
    if not isinstance(type_, TensorType):
        raise EvaluationError(f"input {name!r} is of type {type_}, of which no numbers are drawn")
    if given is None:
        sizes = shape_of(type_)
        shape: Sequence[int] = [
            smallest.get((name, axis), 2) if size is None else size for axis, size in enumerate(sizes)
        ]
        limits = (0, 1) if is_integer(element_name(type_.element_type)) else None
        return random_tensor(tensor(tuple(shape), type_.element_type), limits, seed)
    value = torch.as_tensor(given)
    if value.is_floating_point():
        return torch.randn(value.shape, generator=torch.Generator().manual_seed(seed)).to(value.dtype)
    order = torch.randperm(value.numel(), generator=torch.Generator().manual_seed(seed)) if seed >= 100 else None
    return value if order is None else value.reshape(-1)[order].reshape(value.shape)

"""The inputs of a program: a model's arguments by the program's names, in the types that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.calling import arguments_by_name, is_model_call
from patcomp.evaluate.element_types import to_tensor
from patcomp.evaluate.given import array_in_type
from patcomp.ir.types import TensorType
from patcomp.pytorch import pytree


def prepare_input(value: Any, type_: TensorType, name: str, what: str = "input") -> Tensor:
    """An input or state as a tensor of the dtype that the program takes; it shares memory where it can.

    Args, raises:
        As `array_in_type`.
    """
    return to_tensor(array_in_type(value, type_, name, what))


def call_arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A model's arguments, positional and by keyword, that are given as a sequence, by keyword, or as one tensor."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return ((inputs,) if isinstance(inputs, Tensor | np.ndarray) else tuple(inputs)), {}


def named_arguments(signature: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors among a model's arguments by the program's names."""
    if signature.call is not None and is_model_call(signature.call, args, kwargs):
        return arguments_by_name(signature.call, args, kwargs)
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    leaves = signature.call.arguments if signature.call else [spec.name for spec in signature.inputs]
    names = [leaf for leaf in leaves if isinstance(leaf, str)]
    known = {*names, *(spec.name for spec in signature.states)}
    if not args and set(names) <= kwargs.keys() <= known:
        return dict(kwargs)
    if len(tensors) != len(names):
        wanted = ", ".join(str(spec) for spec in (*signature.inputs, *signature.states) if spec.name in names)
        raise EvaluationError(
            f"the number of tensors among the inputs is {len(tensors)}, but the program takes {len(names)} ({wanted}); "
            "give a tuple of the model's arguments"
        )
    return dict(zip(names, tensors, strict=True))

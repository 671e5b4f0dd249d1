"""The inputs of a program: a model's arguments by the program's names, in the types that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.calling import arguments_by_name, is_model_call
from patcomp.evaluate.element_types import TORCH_DTYPES, to_tensor
from patcomp.evaluate.machine import check_value
from patcomp.ir.types import TensorType, element_name
from patcomp.pytorch import pytree


def prepare_input(value: Any, type_: TensorType, name: str, what: str = "input") -> Tensor:
    """An input or state in the dtype that the program takes: 64-bit values become 32-bit when none is lost, and float32
    becomes float16, which a target may compute in, when none overflows.

    Args:
        value: a tensor, array or number.
        type_: what the program takes.
        name, what: for messages.

    Raises:
        EvaluationError: the value has another dtype or shape, or a number does not fit 32 bits.
    """
    tensor = _as_tensor(value, f"{what} {name!r}")
    wanted = TORCH_DTYPES[element_name(type_.element_type)]
    if (tensor.dtype, wanted) in ((torch.float64, torch.float32), (torch.float32, torch.float16)):
        narrow = tensor.to(wanted)
        if bool((narrow.isinf() & ~tensor.isinf()).any()):
            raise EvaluationError(f"{what} {name!r} has values that do not fit {wanted}")
        tensor = narrow
    elif tensor.dtype in (torch.int64, torch.uint64) and wanted in (torch.int32, torch.uint32):
        narrow = tensor.to(wanted)
        if not torch.equal(narrow.to(tensor.dtype), tensor):
            raise EvaluationError(f"{what} {name!r} has values that do not fit {wanted}")
        tensor = narrow
    if tensor.dtype != wanted:
        raise EvaluationError(f"{what} {name!r} must be of dtype {wanted}, got {tensor.dtype}")
    check_value(tensor, type_, f"{what} {name!r}")
    return tensor


def _as_tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor | np.ndarray):
        return to_tensor(value)
    kind = type(value).__name__
    if any(isinstance(leaf, Tensor | np.ndarray) for leaf in pytree.tree_leaves(value)):
        raise EvaluationError(f"{what} must be a tensor, got a {kind} that holds tensors; give the tensor itself")
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise EvaluationError(f"{what} must be a tensor, an array or a number, got a {kind}") from error


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

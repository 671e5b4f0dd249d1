"""The call of a model in terms of the program's names: its arguments to inputs and states, outputs to its result.

`call` is a `patcomp.emit.signature.ModelCall`: names or fixed values as leaves, and PyTorch's trees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils import _pytree as pytree

from patcomp.errors import EvaluationError


def is_model_call(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether arguments are those of the model, by their structure."""
    try:
        leaves = call.argument_tree.flatten_up_to((tuple(args), dict(kwargs)))
    except ValueError:
        return False
    return not any(isinstance(leaf, Mapping) for leaf in leaves)


def arguments_by_name(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs and states among a model's arguments.

    Raises:
        EvaluationError: they have another structure than those of the export, or a value that it fixed is another.
    """
    try:
        leaves = call.argument_tree.flatten_up_to((tuple(args), dict(kwargs)))
    except ValueError as error:
        raise EvaluationError(f"the arguments are not those that the model was exported with: {error}") from error
    named: dict[str, Any] = {}
    for index, (leaf, given) in enumerate(zip(call.arguments, leaves, strict=True)):
        if isinstance(leaf, str):
            named[leaf] = given
        elif type(given) is not type(leaf.value) or given != leaf.value:
            raise EvaluationError(
                f"argument {index} was {leaf.value!r} when the model was exported and cannot be {given!r}; "
                "export the model again with this value"
            )
    return named


def result_of(call: Any, outputs: Mapping[str, Any]) -> Any:
    """The model's own result, with the program's outputs in their places."""
    values = {**outputs, **{name: outputs[name].item() for name in call.numbers}}
    leaves = [values[leaf] if isinstance(leaf, str) else leaf.value for leaf in call.results]
    return pytree.tree_unflatten(leaves, call.result_tree)

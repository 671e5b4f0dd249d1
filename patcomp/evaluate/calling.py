"""Map the arguments of a model to the program's inputs and states, and the program's outputs to the model's result.

`call` is a `patcomp.interface.signature.ModelCall`: names or fixed values as leaves, and PyTorch's trees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from patcomp.errors import EvaluationError
from patcomp.pytorch import pytree


def is_model_call(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether arguments have the structure of the model's arguments."""
    try:
        leaves = call.argument_tree.flatten_up_to((tuple(args), dict(kwargs)))
    except ValueError:
        return False
    return not any(isinstance(leaf, Mapping) for leaf in leaves)


def arguments_by_name(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs and states among a model's arguments, which may also be keywords with the names of inputs.

    Raises:
        EvaluationError: their structure, or a value that the export fixed, differs from the export.
    """
    try:
        leaves = call.argument_tree.flatten_up_to((tuple(args), dict(kwargs)))
    except ValueError as error:
        inputs = {leaf for leaf in call.arguments if isinstance(leaf, str)}
        if kwargs and not args and kwargs.keys() <= inputs:
            return dict(kwargs)
        raise EvaluationError(
            f"the model was exported with the arguments {expected_arguments(call)}, "
            f"and was called with {_shown_call(args, kwargs)}; inputs can also be given by name, in one mapping"
        ) from error
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


class _Named:
    """A name that is printed in place of a tensor."""

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return self._name


def expected_arguments(call: Any) -> str:
    """The arguments of a model as text, with the names of inputs: `(tokens, mask=mask)`."""
    leaves = [_Named(leaf) if isinstance(leaf, str) else leaf.value for leaf in call.arguments]
    return _shown_call(*pytree.tree_unflatten(leaves, call.argument_tree))


def _shown_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    def short(leaf: Any) -> Any:
        return _Named(f"tensor of shape {tuple(leaf.shape)}") if hasattr(leaf, "shape") else leaf

    args, kwargs = pytree.tree_map(short, (tuple(args), dict(kwargs)))
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"


def result_of(call: Any, outputs: Mapping[str, Any]) -> Any:
    """The model's own result, with the program's outputs in their places."""
    values = {**outputs, **{name: outputs[name].item() for name in call.numbers}}
    leaves = [values[leaf] if isinstance(leaf, str) else leaf.value for leaf in call.results]
    return pytree.tree_unflatten(leaves, call.result_tree)

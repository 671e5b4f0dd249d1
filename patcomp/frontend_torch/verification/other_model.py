"""Say how a given model differs from the one that was exported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from patcomp.frontend_torch.interface.names import quoted_names


def how_it_differs(model: Callable[..., Any], constants: Iterable[tuple[str, Tensor]]) -> str:
    """How a model may differ from an exported program that computes something else.

    Args:
        model: the given model.
        constants: the weights of the exported program with their paths in its model.
    """
    if not isinstance(model, torch.nn.Module):
        return "the given function is another one than the exported model"
    own = dict((*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)))
    exported = dict(constants)
    weights = [path for path, weight in exported.items() if path in own and not torch.equal(own[path], weight)]
    if weights:
        return f"the given model has other weights than the exported one: {quoted_names(weights)}"
    mode = "training" if model.training else "evaluation"
    if exported and exported.keys() <= own.keys():
        return (
            f"the given model has the weights of the exported one and is in {mode} mode, so it took another path while "
            "it was exported: it was in another mode, or it has a Python branch (on a value, a counter or "
            "torch.compiler.is_exporting()), of which the exported program has one side. Give it in the mode of its "
            "export, or write the branch with torch.cond"
        )
    return (
        f"the given model is in {mode} mode; it is another one than the exported model, was in another mode, or has a "
        "Python branch that took another path while it was exported"
    )

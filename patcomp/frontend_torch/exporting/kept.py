"""Keep what the user passed in as it was: the model during an export, and the arguments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.pytorch import pytree, tree_map_only

_CONTAINERS = (dict, OrderedDict, list, set)


@contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """Put the attributes of all modules of a model back, the content of their dicts, lists and sets, and `.data`.

    A trace leaves its own tensors in every attribute that a model keeps between calls.
    """
    data = data_of(model)
    before = [(vars(module), _content(vars(module))) for module in model.modules()]
    containers = {
        id(value): (value, _content(value))
        for attributes, _ in before
        for value in attributes.values()
        if type(value) in _CONTAINERS
    }
    try:
        yield
    finally:
        for container, content in (*before, *containers.values()):
            _restore(container, content)
        for tensor, numbers in reassigned(data):
            tensor.data = numbers


def data_of(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """The parameters and buffers of a model, and where their numbers are."""
    return [(tensor, tensor.data) for tensor in (*model.parameters(), *model.buffers())]


def reassigned(data: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Those whose `.data` was assigned since."""
    return [(tensor, before) for tensor, before in data if _place(tensor) != _place(before)]


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape


def _content(container: Any) -> list[tuple[Any, ...]]:
    """The entries of a container, each as a tuple."""
    return list(container.items()) if isinstance(container, dict) else [(entry,) for entry in container]


def _restore(container: Any, content: list[tuple[Any, ...]]) -> None:
    """Give a container its content back; it is left alone if it still has it, because other threads may read it."""
    now = _content(container)
    if len(now) == len(content) and all(
        one is other for each, kept in zip(now, content, strict=True) for one, other in zip(each, kept, strict=True)
    ):
        return
    container.clear()
    if isinstance(container, dict):
        container.update(content)
    elif isinstance(container, list):
        container.extend(entry for (entry,) in content)
    else:
        container.update(entry for (entry,) in content)


def copied(arguments: Any) -> Any:
    """Arguments with copies of their tensors, for a run that may write to them."""
    return tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), arguments)


def registered(arguments: Any) -> None:
    """Register the dataclasses among arguments with PyTorch, unless they are registered already."""
    for leaf in pytree.tree_leaves(arguments):
        if is_dataclass(leaf) and not isinstance(leaf, type):
            torch.export.register_dataclass(type(leaf))
            registered([getattr(leaf, name) for name in leaf.__dataclass_fields__])

"""Modules of a model that others take the place of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import nn


def exchange_modules(model: nn.Module, others: Mapping[nn.Module, nn.Module]) -> None:
    """Put other modules in the places of some modules of a model, wherever the model has them."""
    for parent in [*model.modules()]:
        for name, module in [*parent.named_children()]:
            if module in others:
                setattr(parent, name, others[module])


@contextmanager
def exchanged_modules(model: nn.Module, others: Mapping[nn.Module, nn.Module]) -> Iterator[None]:
    """As `exchange_modules`, for a while."""
    exchange_modules(model, others)
    try:
        yield
    finally:
        exchange_modules(model, {other: module for module, other in others.items()})

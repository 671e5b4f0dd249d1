"""Models of packages that are installed without their requirements, with the weights that the packages ship."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Trained:
    """A model, inputs, and what an app decides by its outputs.

    Attributes:
        model: in float32, of tensors by position.
        inputs: several, each of the same shapes.
        labels: integers or booleans, from all outputs of one input.
        takes_half: whether the model computes in float16.
    """

    model: nn.Module
    inputs: Sequence[tuple[Tensor, ...]]
    labels: Callable[..., Tensor]
    takes_half: bool = True


@dataclass(frozen=True)
class Row:
    """A model of a package.

    Attributes:
        packages: those that are installed, with their versions; the first has the weights.
        build: makes the model, where the packages are found.
        labels: what the labels are, for the table.
    """

    packages: tuple[str, ...]
    build: Callable[[], Trained]
    labels: str


def absent(*names: str) -> None:
    """Let modules that are not installed be imported."""
    for name in names:
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:end]), MagicMock())


def inside(package: str, module: str) -> Any:
    """A module of a package whose own `__init__` is not run."""
    made = ModuleType(package)
    made.__path__ = [str(folder_of(package))]
    sys.modules[package] = made
    return import_module(f"{package}.{module}")


def folder_of(package: str) -> Path:
    if package in sys.modules:
        return Path(sys.modules[package].__path__[0])
    found = find_spec(package)
    assert found is not None
    return Path((found.submodule_search_locations or [])[0])


def weights_in(package: str, file: str) -> Any:
    return torch.load(folder_of(package) / file, map_location="cpu", weights_only=True)


class Called(nn.Module):
    """A model that is called in a way of its own.

    Args:
        model: the model.
        call: runs it on tensors.
    """

    def __init__(self, model: nn.Module, call: Callable[..., Any]):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *tensors: Tensor) -> Any:
        return self.call(self.model, *tensors)

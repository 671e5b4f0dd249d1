"""Conditions on the values of an entry point's inputs, which the model checks when it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ValueChecks:
    """The checks of a model on values: `torch._check(n.item() <= 2)`."""

    texts: tuple[str, ...]
    """The conditions in terms of inputs: `n <= 2`."""
    broken: Callable[[Mapping[str, Any]], str | None]
    """A function of the inputs and states by name that gives the first condition that does not hold, or None."""

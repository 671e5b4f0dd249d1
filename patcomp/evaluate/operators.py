"""How patcomp adds operators to PyTorch, `torch.ops.patcomp`; their schemas are in `library_schemas.txt`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import torch

_LIBRARY = torch.library.Library("patcomp", "FRAGMENT")


def register(function: Callable[..., Any], shapes: Callable[..., Any]) -> None:
    """Register the operator of a function's name.

    Args:
        function: what it computes.
        shapes: from the same arguments, empty tensors like the results.
    """
    name = f"patcomp::{function.__name__}"
    schemas = files("patcomp.ir").joinpath("library_schemas.txt").read_text().splitlines()
    schema = next(line for line in schemas if line.startswith(f"{name}("))
    _LIBRARY.define(schema.removeprefix("patcomp::"))
    _LIBRARY.impl(function.__name__, function, "CompositeExplicitAutograd")
    torch.library.register_fake(name, shapes, lib=_LIBRARY)

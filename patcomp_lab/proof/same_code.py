"""Whether a decomposition runs the code that defines its op. Then a comparison says nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from patcomp.pytorch import OpOverload, base_name, definitions_of, pytree

SAME_CODE = "the same code on both sides"

_DISPATCH = (
    "torch/_ops.py", "torch/_tensor.py", "torch/overrides.py", "torch/library.py", "torch/_library/", "torch/utils/",
    "contextlib.py", __file__,
)  # fmt: skip
"""Files whose functions call any op."""


def shares_kernel(op: OpOverload, args: Sequence[Any], run: Callable[[], Any], of_op: Callable[[], Any]) -> bool:
    """Whether a decomposition calls its op with the same arguments, or a Python function that is the op's kernel.

    Args:
        op: the op.
        args: the arguments of the call.
        run: runs the decomposition of the call.
        of_op: runs the call.
    """
    calls = _Calls()
    with _code_run() as ours, calls:
        run()
    with _code_run() as theirs:
        of_op()
    if any(name == base_name(op) and _are_same(given, args) for name, given in calls.made):
        return True
    return any(not any(file in code.co_filename for file in _DISPATCH) for code in ours & theirs)


def runs_definition(op: OpOverload, run: Callable[[], Any]) -> bool:
    """Whether a decomposition runs PyTorch's decomposition of its op, which symbols of the op run, too."""
    with _code_run() as ours:
        run()
    return not ours.isdisjoint(definitions_of(op))


class _Calls(TorchFunctionMode):
    """Remembers the functions of PyTorch that are called, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, list[Any]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = base_name(func) if isinstance(func, OpOverload) else getattr(func, "__name__", "")
        self.made.append((name, [args, kwargs]))
        return func(*args, **(kwargs or {}))


def _are_same(given: Any, args: Any) -> bool:
    """Whether the arguments of two calls are the same."""
    one, other = ([leaf for leaf in pytree.tree_leaves(each) if leaf is not None] for each in (given, args))
    return len(one) == len(other) and all(map(_is_same, one, other))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        is_like = one.dtype == other.dtype and one.shape == other.shape
        return is_like and torch.allclose(one, other, 0, 0, equal_nan=True)
    return type(one) is type(other) and bool(one == other)


@contextmanager
def _code_run() -> Iterator[set[CodeType]]:
    """The code of the Python functions that run."""
    found: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)

"""Importing this makes PyTorch's decompositions faster."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey
from torch._export import utils
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import decomp_utils, exported_program


def _make_decomposing_faster() -> None:
    """What PyTorch does again for every decomposition, half the time of a small conversion, is done once.

    It lists its composite ops, which are the same as long as no operator is registered. And it declares ten kernels
    of each, with annotations that are made anew each time by `collections.abc`, and remembered by `typing`.
    """
    listed: dict[Any, Any] = {}
    scan = utils._collect_all_valid_cia_ops

    def remembered() -> Any:
        registered = tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
        if registered not in listed:
            listed.clear()
            listed[registered] = scan()
        return listed[registered]

    for module in (utils, decomp_utils, exported_program):
        vars(module)["_collect_all_valid_cia_ops"] = remembered
    vars(torch._ops)["Callable"] = typing.Callable
    vars(exported_program)["_override_composite_implicit_decomp"] = _remembered_overrides


_OVERRIDE = exported_program._override_composite_implicit_decomp
_Kernels = dict[Any, Callable[..., Any]]
_OVERRIDDEN: dict[Any, tuple[_Kernels, Callable[..., Any] | None]] = {}
"""The kernels and the fake kernel that PyTorch's override gives an op, by what the op had before."""


@contextmanager
def _remembered_overrides(decompositions: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """What PyTorch declares for about 500 ops in every decomposition is declared once and put in place again."""
    saved = {op: dict(op.py_kernels) for op in decompositions}
    for op, decomposition in decompositions.items():
        before = (op, *saved[op].items(), op_implementations_dict.get(op))
        if before not in _OVERRIDDEN:
            with _OVERRIDE({op: decomposition}):
                _OVERRIDDEN[before] = dict(op.py_kernels), op_implementations_dict.get(op)
        kernels, fake_kernel = _OVERRIDDEN[before]
        _replace_kernels(op, kernels | {DispatchKey.CompositeImplicitAutograd: decomposition})
        if fake_kernel is not None:
            op_implementations_dict[op] = fake_kernel
    try:
        yield
    finally:
        for op, kernels in saved.items():
            _replace_kernels(op, kernels)
            op_implementations_dict.pop(op, None)


def _replace_kernels(op: Any, kernels: _Kernels) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()


_make_decomposing_faster()

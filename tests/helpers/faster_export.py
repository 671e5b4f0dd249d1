"""Importing this makes PyTorch's decompositions faster."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch._C import DispatchKey
from torch._decomp.decompositions_for_rng import PhiloxStateTracker
from torch._export import utils
from torch._functorch import config
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import decomp_utils, exported_program

_Kernels = dict[Any, Callable[..., Any]]


def _make_decomposing_faster() -> None:
    """What PyTorch does again for every decomposition, half the time of a small conversion, is done once.

    It lists its composite ops, which are the same as long as no operator is registered. And it declares ten kernels
    of each, with annotations that are made anew each time by `collections.abc`, and remembered by `typing`. And it
    makes six empty tensors for random numbers on a GPU that are functions of a state, which nobody asked for.
    """
    listed: dict[Any, Any] = {}
    preservable: dict[Any, bool] = {}
    scan, examine = utils._collect_all_valid_cia_ops, utils._is_preservable_cia_op
    reset = PhiloxStateTracker.reset

    def remembered() -> Any:
        registered = tuple(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
        if registered not in listed:
            listed.clear()
            preservable.clear()
            listed[registered] = scan()
        return listed[registered]

    def is_preservable(op: Any) -> bool:
        if op not in preservable:
            preservable[op] = examine(op)
        return preservable[op]

    for module in (utils, decomp_utils, exported_program):
        vars(module)["_collect_all_valid_cia_ops"] = remembered
    vars(torch._ops)["Callable"] = typing.Callable
    vars(exported_program)["_is_preservable_cia_op"] = is_preservable  # called after `remembered`
    vars(exported_program)["_override_composite_implicit_decomp"] = _remembered_overrides
    PhiloxStateTracker.reset = lambda: reset() if config.functionalize_rng_ops else None  # type: ignore[method-assign]


class _Override(NamedTuple):
    """The kernels and the fake kernel of an op before and after PyTorch's override."""

    before: _Kernels
    fake_before: Callable[..., Any] | None
    after: _Kernels
    fake_after: Callable[..., Any] | None


_OVERRIDE = exported_program._override_composite_implicit_decomp
_OVERRIDDEN: dict[Any, _Override] = {}


@contextmanager
def _remembered_overrides(decompositions: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """What PyTorch declares for about 500 ops in every decomposition is declared once and put in place again."""
    saved = {op: dict(op.py_kernels) for op in decompositions}
    for op, decomposition in decompositions.items():
        known, fake_kernel = _OVERRIDDEN.get(op), op_implementations_dict.get(op)
        if known is None or known.before != saved[op] or known.fake_before is not fake_kernel:
            with _OVERRIDE({op: decomposition}):
                known = _Override(saved[op], fake_kernel, dict(op.py_kernels), op_implementations_dict.get(op))
            _OVERRIDDEN[op] = known
        _replace_kernels(op, known.after | {DispatchKey.CompositeImplicitAutograd: decomposition})
        if known.fake_after is not None:
            op_implementations_dict[op] = known.fake_after
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

"""Importing this makes PyTorch's decompositions faster."""

from __future__ import annotations

import typing
from typing import Any

import torch
from torch._export import utils
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


_make_decomposing_faster()

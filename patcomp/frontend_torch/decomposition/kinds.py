"""Kinds of nodes: two nodes of one kind have the same decomposition, whatever programs they belong to."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from patcomp.frontend_torch.fx.nodes import arguments_text, recorded_results
from patcomp.frontend_torch.fx.sizes import SYMBOLIC
from patcomp.pytorch import FakeTensor, FakeTensorMode, OpOverload, has_default_settings, pytree


class TensorFacts(NamedTuple):
    """All that a decomposition may read of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: torch.device
    requires_grad: bool

    def sample(self, mode: FakeTensorMode) -> FakeTensor:
        """A fake tensor with these facts."""
        dtype, shape, stride, device, requires_grad = self
        meta = torch.empty_strided(shape, stride, dtype=dtype, device="meta", requires_grad=requires_grad)
        return FakeTensor(mode, meta, device)


class Kind(NamedTuple):
    """All that the decomposition of a node reads."""

    target: OpOverload
    arguments: str
    """The arguments as Python code, in which `%0` is the first of the input nodes."""
    inputs: tuple[TensorFacts, ...]
    results: tuple[TensorFacts, ...]
    used: frozenset[int] | None
    """Which of several results are used; None for all."""


def kind_of(node: Node) -> Kind | None:
    """The kind of a node; None if its decomposition may depend on its program or on settings of PyTorch.

    It depends on the program if a size is dynamic, because the program has the symbol of the size and its range. Ops of
    other libraries than ATen may have decompositions that read anything.
    """
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace != "aten" or not has_default_settings():
        return None
    inputs = _all_facts([source.meta.get("val") for source in node.all_input_nodes])
    results = _all_facts(recorded_results(node))
    if inputs is None or results is None:
        return None
    if any(isinstance(leaf, SYMBOLIC) for leaf in pytree.tree_leaves((node.args, node.kwargs))):
        return None
    return Kind(target, arguments_text(node), inputs, results, used_results(node))


def _all_facts(values: Sequence[Any]) -> tuple[TensorFacts, ...] | None:
    """All facts that a decomposition can read of some tensors; None if a value is no plain tensor (a subclass, for
    example)."""
    found = [facts for facts in map(_facts, values) if facts is not None]
    return tuple(found) if len(found) == len(values) else None


def _facts(value: Any) -> TensorFacts | None:
    """All facts that a decomposition can read of a tensor; None if the value has others, as a subclass may."""
    if type(value) is not FakeTensor or value.layout is not torch.strided or value.constant is not None:
        return None
    shape, stride = tuple(value.shape), value.stride()
    if not all(type(size) is int for size in (*shape, *stride, value.storage_offset())):
        return None
    if value.storage_offset():
        return None
    if value.is_conj() or value.is_neg() or value.is_inference():
        return None
    return TensorFacts(value.dtype, shape, stride, value.device, value.requires_grad)


def used_results(node: Node) -> frozenset[int] | None:
    """Which of a node's several results are used; None for all."""
    if not node.users or any(user.target is not operator.getitem for user in node.users):
        return None
    return frozenset(user.args[1] for user in node.users if user.users)  # type: ignore[misc]

"""Views of weights and buffers as another element type: packed weights are stored as bytes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Node

from patcomp.frontend_torch.fx.dtypes import has_values
from patcomp.frontend_torch.fx.nodes import operator_name
from patcomp.frontend_torch.fx.sizes import SYMBOLIC
from patcomp.ir.aten import find_op_class
from patcomp.ir.traits import View, Whole
from patcomp.pytorch import OpOverload, pytree


def stored_view(node: Node, stored: Callable[[Node], torch.Tensor | None]) -> torch.Tensor | None:
    """The elements of a stored tensor that a view as another element type shows; None if something is computed in
    between.

    Args:
        node: a call of `view` with an element type.
        stored: the tensor of a placeholder; None if it is an argument.
    """
    if node.op == "placeholder":
        value = stored(node)
        return value.detach() if value is not None and has_values(value) else None
    op = find_op_class(operator_name(node)) if isinstance(node.target, OpOverload) else None
    if op is None or not (op.has_trait(View) or op.has_trait(Whole) or op.name == "aten.view.dtype"):
        return None
    assert isinstance(node.target, OpOverload)
    source, *others = node.args
    if any(isinstance(leaf, (Node, *SYMBOLIC)) for leaf in pytree.tree_leaves([others, node.kwargs])):
        return None
    assert isinstance(source, Node)
    viewed = stored_view(source, stored)
    return None if viewed is None else node.target(viewed, *others, **node.kwargs)


def check_widths(node: Node) -> None:
    """Check that a view of computed numbers does not split or join 64-bit elements. (Narrowing makes them 32-bit.)

    Raises:
        TypeError: it has.
    """
    before, after = node.args[0].meta["val"].dtype, node.meta["val"].dtype  # type: ignore[union-attr]
    if before.itemsize != after.itemsize and 8 in (before.itemsize, after.itemsize):
        raise TypeError(
            f"a view of computed {before} as {after} is not supported, because it splits 64-bit numbers; view a weight "
            "or buffer, or use 32 bits"
        )

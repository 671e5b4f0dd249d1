"""Views: which operators return one for certain, and how a write to it changes the tensor that it views."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from patcomp.frontend_torch.fx.nodes import given_arguments, operator_name
from patcomp.frontend_torch.fx.sizes import known_shape
from patcomp.ir.aten import overloads_with
from patcomp.ir.aten_facts import facts_of, ops_where
from patcomp.ir.traits import View
from patcomp.pytorch import OpOverload, base_name, can_decompose, schema_of_overload, statically_known_true

Call = tuple[OpOverload, tuple[Any, ...]]
"""An operator and its arguments."""


@cache
def certain_views() -> frozenset[str]:
    """The names of the ATen ops whose result always shares the memory of their first argument."""
    certain = {name for name in overloads_with(View) if not facts_of(name).memory and not facts_of(name).layout}
    return frozenset(certain | ops_where("memory", "shared"))


def is_new(node: Node) -> bool:
    """Whether the results of a node certainly share memory with none of its arguments.

    A schema is reliable only for an operator with a kernel of its own: `dropout` and `type_as` may return their input.
    """
    op = node.target
    if not isinstance(op, OpOverload) or op.namespace != "aten":
        return False
    if base_name(op) in ("to", "type_as"):
        return bool(node.meta["val"].dtype != node.all_input_nodes[0].meta["val"].dtype)
    if any(argument.alias_info for argument in schema_of_overload(op).arguments):
        return False
    memory = facts_of(operator_name(node)).memory
    return memory == "new" if can_decompose(op) else memory != "undeclared"


def is_view(node: Node) -> bool:
    """Whether the result of a node, or each of its results, is certainly a view of its first argument."""
    if not isinstance(node.target, OpOverload) or node.target.namespace != "aten":
        return False
    if node.target is torch.ops.aten.narrow.Tensor:
        return False  # the start may be written before the view is built again
    return operator_name(node) in certain_views() or is_dropout_off(node)


def is_dropout_off(node: Node) -> bool:
    """Whether a node is a dropout outside of training, which returns its argument itself."""
    return facts_of(operator_name(node)).memory == "unless_train" and given_arguments(node)["train"] is False


def changed_base(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call | Node | None:
    """What a base becomes when a view of it is written: a call, or `part` if the view shows the base as it is.

    Args:
        view: the node of the view, with the recorded types.
        given: the arguments of the view in the new graph.
        index: which of the view's results is written; None if it has only one.
        base: the node of the base in the new graph.
        part: the node of the new content of the view.

    Returns:
        None if this is not known.
    """
    written = facts_of(operator_name(view)).written
    if written == "same":
        return part
    return CHANGED[written](view, given, index, base, part) if written else None


def _select(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call:
    return torch.ops.aten.select_scatter.default, (base, part, given["dim"], given["index"])


def _slice(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call:
    bounds = (given.get("dim", 0), given.get("start"), given.get("end"), given.get("step", 1))
    return torch.ops.aten.slice_scatter.default, (base, part, *bounds)


def _narrow(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call | None:
    start, length = (
        value.meta["val"] if isinstance(value, Node) else value for value in (given["start"], given["length"])
    )
    if not statically_known_true(start >= 0):
        return None
    end = start + length
    if not isinstance(end, int):
        end = base.graph.call_function(operator.add, (given["start"], given["length"]))
        end.meta["val"] = start + length
    return torch.ops.aten.slice_scatter.default, (base, part, given["dim"], given["start"], end)


def _transpose(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call:
    first, second = (value for name, value in given.items() if name != "self")
    return torch.ops.aten.transpose.int, (part, first, second)


def _last_two(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call:
    return torch.ops.aten.transpose.int, (part, -2, -1)


def _t(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call:
    return torch.ops.aten.t.default, (part,)


def _permute(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call:
    dims = given.get("dims", list(reversed(range(base.meta["val"].dim()))))
    order = [dim % len(dims) for dim in dims]
    return torch.ops.aten.permute.default, (part, [order.index(axis) for axis in range(len(order))])


def _unsqueeze(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call:
    return torch.ops.aten.squeeze.dim, (part, given["dim"])


def _view(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call | None:
    if view.meta["val"].dtype != base.meta["val"].dtype:
        return None
    return torch.ops.aten.view.default, (part, known_shape(base.meta["val"]))


def _diagonal(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call:
    dims = (given.get("offset", 0), given.get("dim1", 0), given.get("dim2", 1))
    return torch.ops.aten.diagonal_scatter.default, (base, part, *dims)


def _unbind(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call:
    return torch.ops.aten.select_scatter.default, (base, part, given.get("dim", 0), index)


def _split(view: Node, given: Mapping[str, Any], index: int | None, base: Node, part: Node) -> Call | None:
    assert index is not None
    dim = given.get("dim", 0)
    lengths = [known_shape(result)[dim] for result in view.meta["val"][: index + 1]]
    if not all(isinstance(length, int) for length in lengths):
        return None
    end = sum(lengths)
    return torch.ops.aten.slice_scatter.default, (base, part, dim, end - lengths[-1], end)


CHANGED: Mapping[str, Callable[..., Call | None]] = {
    "diagonal": _diagonal,
    "last_two": _last_two,
    "narrow": _narrow,
    "permute": _permute,
    "select": _select,
    "slice": _slice,
    "split": _split,
    "t": _t,
    "transpose": _transpose,
    "unbind": _unbind,
    "unsqueeze": _unsqueeze,
    "view": _view,
}
"""How a write to a view changes its base, by `OpFacts.written`: functions with the arguments of `changed_base`."""

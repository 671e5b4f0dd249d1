"""Tell whether an operator (a sort or maximum, for example) has chosen between values that differ by rounding only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.fx import Node

from patcomp.frontend_torch.fx.nodes import list_lengths, operator_name, producer_of
from patcomp.ir.aten_facts import facts_of
from patcomp.pytorch import OpOverload, base_name, schema_of_overload

_JUMPS: dict[str, Callable[[Tensor], Tensor]] = {
    "floor": lambda x: x - x.round(),
    "ceil": lambda x: x - x.round(),
    "trunc": lambda x: x - x.round(),
    "_to_copy": lambda x: x - x.round(),
    "to": lambda x: x - x.round(),
    "round": lambda x: x - x.floor() - 0.5,
    "sign": lambda x: x,
}
"""How far a number is from the next one where the operator's result jumps."""


def distance(
    node: Node, expected: Tensor, given: Tensor, value_of: Callable[[Any], Any]
) -> tuple[float, Tensor] | None:
    """How far apart the values are between which an operator chose differently.

    Args:
        node: the node of the choice, or of one result of it.
        expected, given: two different results of the node.
        value_of: the value of an argument of a node.

    Returns:
        The largest distance, and the tensor that the operator chose from; None if the operator does not choose.
    """
    producer = producer_of(node)
    if not isinstance(producer.target, OpOverload):
        return None
    op, operand, facts = base_name(producer.target), value_of(producer.args[0]), facts_of(operator_name(producer))
    if not isinstance(operand, Tensor) or not operand.is_floating_point():
        return None
    wide = operand.detach().double()
    if facts.truth and facts.float == "decision" and len(producer.args) == 2:  # a comparison
        distances = (wide - value_of(producer.args[1])).abs().broadcast_to(expected.shape)
    elif facts.places and "dim" in list_lengths(producer.target) and not expected.is_floating_point():
        distances = _between(wide, _dimension(producer, value_of), expected.long(), given.long())
    elif op in _JUMPS:
        distances = _JUMPS[op](wide).abs()
    else:
        return None
    return float(distances[expected != given].max()), operand


def _dimension(node: Node, value_of: Callable[[Any], Any]) -> int | None:
    """The dimension along which an operator chooses; None for the flat tensor."""
    names = [argument.name for argument in schema_of_overload(node.target).arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    defaults = {argument.name: argument.default_value for argument in schema_of_overload(node.target).arguments}
    dimension: int | None = value_of(given.get("dim", defaults.get("dim")))
    return dimension


def _between(x: Tensor, dimension: int | None, expected: Tensor, given: Tensor) -> Tensor:
    """The distances of the values at two tensors of indices."""
    if dimension is None:
        chosen, other = (x.reshape(-1)[indices] for indices in (expected, given))
        return (chosen - other).abs()
    if x.dim() != expected.dim():  # the dimension is reduced
        expected, given = expected.unsqueeze(dimension), given.unsqueeze(dimension)
        return (x.gather(dimension, expected) - x.gather(dimension, given)).abs().squeeze(dimension)
    return (x.gather(dimension, expected) - x.gather(dimension, given)).abs()

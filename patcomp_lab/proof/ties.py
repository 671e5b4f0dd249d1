"""Numbers that are equal in programs whose results are places of numbers, and which places PyTorch then specifies.

Of equal numbers, `argmax`, `argmin`, `max` and `min` are documented to give the first one. `sort`, `topk`, `median`,
`kthvalue`, `mode`, `cummax` and `cummin` may give any of them: their places are right if they hold the same numbers. No
place of an order may occur twice, besides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from patcomp.ir.aten_facts import operators_where
from patcomp.ir.types import TensorType, is_integer
from patcomp.patterns import Rule
from patcomp.patterns.aspects import TIES, is_left_open
from patcomp_lab.proof.calls import DecomposedCall
from patcomp_lab.proof.op_calls import OpDrawing, operator_schema
from patcomp_lab.proof.pairs import RulePair

_POOLS: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("", (1.0,)), ("", (1.0, 2.0)), ("", (2.0, -3.0, 2.0)), ("infinities and zeros", (0.0, -0.0)),
    ("infinities and zeros", (math.inf, 1.0, -math.inf)), ("NaN", (math.nan, 1.0, math.nan, 2.0)),
)  # fmt: skip
"""The numbers of each draw, and the aspect in which a rule may leave the results open."""


def _names(pair: RulePair) -> list[str]:
    """The names of the ops of a source, without dialect and overload; without ops that only have constants."""
    if isinstance(pair, DecomposedCall):
        return [pair.drawing.op.split(".")[1]]
    module: Any = getattr(pair, "source", None)
    ops = module.graph("main").regions[0].block.ops if module is not None else ()
    plain = [op.name.split(".")[1] for op in ops]
    return [name for name in plain if name not in ("constant", "output")]


def numbers_of(rule: Rule) -> Iterator[Sequence[float]]:
    """The numbers of each draw that a rule does not leave open."""
    if not is_left_open(rule.unspecified, TIES):
        yield from (numbers for aspect, numbers in _POOLS if not is_left_open(rule.unspecified, aspect))


def decides(pair: RulePair) -> bool:
    """Whether a source finds places: it has integers that are no inputs."""
    if isinstance(pair, DecomposedCall):
        return any(is_integer(type_.element_type) for type_ in pair.call.types)
    module: Any = getattr(pair, "source", None) or pair.module  # type: ignore[attr-defined]
    results = [value for op in module.graph("main").regions[0].block.ops for value in op.results]
    types = [value.type for value in results if value.owner.name != "coreai.constant"]
    return any(isinstance(type_, TensorType) and is_integer(type_.element_type) for type_ in types)


def specifies_places(pair: RulePair) -> bool:
    """Whether PyTorch specifies each integer result of the source also for equal and for infinite numbers."""
    names = _names(pair)
    return bool(names) and all(name in operators_where("places", "first") for name in names)


def are_places_of_equal_numbers(
    pair: RulePair, expected: Tensor, actual: Tensor, inputs: Mapping[str, Any]
) -> bool | None:
    """Whether two results have the places of the same numbers; None if the source does not give places of an axis."""
    drawing, names = pair.drawing, _names(pair)
    if (
        not isinstance(drawing, OpDrawing)
        or len(names) != 1
        or names[0] not in operators_where("places", "any", "distinct")
        or expected.dtype == torch.bool
    ):
        return None
    schema, (x, *_) = operator_schema(drawing.op), inputs.values()
    if "dim" not in schema.names or x.dim() == 0 or expected.shape != actual.shape:
        return None
    given = {argument.name: argument.default for argument in schema.arguments} | dict(drawing.example)
    if given.get("stable"):
        return False
    dim = given["dim"] % x.dim() if isinstance(given["dim"], int) else x.dim() - 1
    if not bool(((actual >= 0) & (actual < x.shape[dim])).all()):
        return False
    one, other = (
        places.long() if places.dim() == x.dim() else places.long().unsqueeze(dim) for places in (expected, actual)
    )
    held = [torch.take_along_dim(x, places, dim) for places in (one, other)]
    same = torch.equal(held[0].nan_to_num(nan=-1.5), held[1].nan_to_num(nan=-1.5))
    if names[0] in operators_where("places", "distinct"):
        ordered = other.sort(dim).values
        same &= not bool((ordered.diff(dim=dim) == 0).any())
    return same

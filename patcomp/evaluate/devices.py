"""A simulated device: the evaluator, with what public facts say that a device computes otherwise.

Each behaviour names its fact in `patcomp/devices/known`, and claims no more: everything else is computed as usual, so
that a program which passes here may still be wrong on a device. NaN stands for numbers that no report gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from patcomp.devices import Fact, known_facts
from patcomp.devices.constructs import BROADCASTING, PRODUCTS, half
from patcomp.evaluate.machine import Machine
from patcomp.evaluate.partial_sums import rounded_product
from patcomp.evaluate.registry import EvaluatedOp, Implementation, axis_of
from patcomp.ir.locations import Origin, in_brackets, origins
from patcomp.ir.module import IRModule, graph_name
from patcomp.ir.xdsl import Operation

_SHOWN = 3
"""The places of a fact that are printed."""

_LARGEST = 65504.0
"""The largest float16."""
_WIDTH_LIMIT = 4094.0
"""The largest float16 divided by 16, by which a slice along the width multiplies."""

Behaviour = Callable[[EvaluatedOp, Sequence[Any], Tensor], Tensor]
"""What the device gives for an op, from its operands and its right result."""


def _away_from_zero(op: EvaluatedOp, operands: Sequence[Any], result: Tensor) -> Tensor:
    x = operands[0]
    if not x.is_floating_point():
        return result
    is_half = (x - x.trunc()).abs() == 0.5
    return torch.where(is_half, x.trunc() + x.sign(), result)


def _zero_for_infinity(op: EvaluatedOp, operands: Sequence[Any], result: Tensor) -> Tensor:
    return result.masked_fill(operands[0].isposinf(), 0.0)


def _unknown_for_masked(op: EvaluatedOp, operands: Sequence[Any], result: Tensor) -> Tensor:
    x = operands[0]
    masked = x.isneginf().any(axis_of(op, operands[1], x.dim()), keepdim=True)
    return result.masked_fill(masked.expand_as(result), torch.nan)


def _infinite_beyond_width(op: EvaluatedOp, operands: Sequence[Any], result: Tensor) -> Tensor:
    return torch.where(result.abs() > _WIDTH_LIMIT, result.sign() * torch.inf, result)


def _infinite_sum(op: EvaluatedOp, operands: Sequence[Any], result: Tensor) -> Tensor:
    count = operands[0].numel() // max(result.numel(), 1)
    return result.masked_fill(result.float() * count > _LARGEST, torch.inf)


def _rounded_sums(op: EvaluatedOp, operands: Sequence[Any], result: Tensor) -> Tensor:
    return rounded_product(op, *operands) if result.dtype == torch.float16 else result


def _half_inside_norm(op: EvaluatedOp, operands: Sequence[Any], result: Tensor) -> Tensor:
    graph = op.operation.parent_op()
    if result.dtype != torch.float32 or graph is None or not _is_half_norm(op, graph):
        return result
    return torch.where(result.abs() > _LARGEST, result.sign() * torch.inf, result)


def _is_half_norm(op: EvaluatedOp, graph: Operation) -> bool:
    """Whether a graph is an `rms_norm` of float16."""
    if graph.name != "coreai.graph" or "composite_decl" not in graph.properties:
        return False
    if op.machine.module.composite_names()[graph_name(graph)] != "rms_norm":
        return False
    return "xf16>" in str(graph.regions[0].block.args[0].type)


def _is_about(fact: Fact, op: Operation, module: IRModule) -> bool:
    """Whether an op has the construct of a fact. That of a masked softmax need not be a constant here: its values
    show it."""
    if op.name == "coreai.softmax":
        return half.holds(op, module)
    return op.name not in fact.ops or fact.fits(op, module)


BEHAVIOURS: dict[str, tuple[tuple[str, Behaviour], ...]] = {
    "coreai.round": (("halves away from zero", _away_from_zero),),
    "coreai.log": (("logarithm of an overflow", _zero_for_infinity),),
    "coreai.softmax": (("softmax of -inf", _unknown_for_masked),),
    "coreai.slice": (("slices along the width", _infinite_beyond_width),),
    "coreai.reduce_mean": (("mean of squares", _infinite_sum),),
    f"{BROADCASTING}mul": (("float32 inside norms", _half_inside_norm),),
    **dict.fromkeys(PRODUCTS, (("sums of products", _rounded_sums),)),
}
"""The facts that change an op, by the op's name, and what the device then gives."""


def simulated_facts() -> frozenset[str]:
    """The names of the facts that a simulated device behaves by."""
    return frozenset(name for behaviours in BEHAVIOURS.values() for name, _ in behaviours)


@dataclass(frozen=True)
class DeviceEffect:
    """What a device computes otherwise at a place of a model."""

    fact: str
    """The name of the fact."""
    says: str
    sources: tuple[str, ...]
    op: str
    changed: int
    """How many elements differ."""
    elements: int
    largest: float
    """The largest absolute difference of finite numbers."""
    module: str = ""
    node: str = ""
    source: str = ""
    """The place in the model."""

    def __str__(self) -> str:
        place = in_brackets(self.node, self.module, self.source)
        size = f", by at most {self.largest:.3g} where both are finite" if self.largest else ""
        return f"{self.op}{place}: {self.changed} of {self.elements} elements differ{size}"


def told_effects(effects: Sequence[DeviceEffect]) -> list[str]:
    """Each fact that changed numbers, with its sources, the number of places, and those where most elements differ."""
    by_fact: dict[str, list[DeviceEffect]] = {}
    for effect in effects:
        by_fact.setdefault(effect.fact, []).append(effect)
    texts = []
    for found in by_fact.values():
        shown = sorted(found, key=lambda each: -each.changed / each.elements)[:_SHOWN]
        count = f" ({len(found)} places, {len(shown)} shown)" if len(found) > _SHOWN else ""
        head = f"{found[0].says}{count}; {', '.join(found[0].sources)}"
        texts.append("\n".join([head, *(f"      {each}" for each in shown)]))
    return texts


@dataclass(eq=False)
class SimulatedDevice(Machine):
    """Evaluates a program as a device with its known behaviours does. `effects` then has what it changed."""

    unit: str = field(kw_only=True)
    _facts: dict[str, Fact] = field(default_factory=lambda: {fact.name: fact for fact in known_facts()})
    _changed: dict[tuple[Operation, str], list[float]] = field(default_factory=dict)

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        results = super().run_op(op, implementation, operands)
        for name, behaviour in BEHAVIOURS.get(op.operation.name, ()):
            fact, right = self._facts[name], results[0]
            if self.unit not in fact.units or not _is_about(fact, op.operation, self.module):
                continue
            given = behaviour(op, operands, right)
            differs = (given != right) & ~(given.isnan() & right.isnan())
            if differs.any():
                distance = (given.double() - right.double()).abs()[differs]
                known = distance[distance.isfinite()]
                changed = self._changed.setdefault((op.operation, name), [0, 0, 0.0])
                changed[0] += int(differs.sum())
                changed[1] += right.numel()
                changed[2] = max(changed[2], float(known.max()) if known.numel() else 0.0)
                results = [given, *results[1:]]
        return results

    @property
    def effects(self) -> tuple[DeviceEffect, ...]:
        """What the device has computed otherwise, in the order of the program."""
        return tuple(map(self._effect, self._changed))

    def _effect(self, key: tuple[Operation, str]) -> DeviceEffect:
        op, name = key
        fact, (changed, elements, largest) = self._facts[name], self._changed[key]
        place = next(iter(origins(op.location)), Origin(""))
        return DeviceEffect(
            name, fact.says, fact.source, op.name, int(changed), int(elements), largest,
            place.module_path, place.node, place.source,
        )  # fmt: skip

"""Find a minimal set of ops to keep in float32 in a program of half precision, so that its outputs are finite."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.comparison import overflows_beside
from patcomp.evaluate.element_types import TORCH_DTYPES
from patcomp.evaluate.machine import Machine, evaluate
from patcomp.evaluate.overflow import overflows_of_half, told
from patcomp.evaluate.registry import EvaluatedOp, Implementation
from patcomp.evaluate.twin import IN_FLOAT32, Wider, run_wide
from patcomp.ir.kept import kept_ops
from patcomp.ir.locations import origins
from patcomp.ir.module import IRModule
from patcomp.ir.types import TensorType, element_name
from patcomp.ir.xdsl import Attribute, Operation


def needs_float32(module: IRModule, inputs: Mapping[str, Tensor], entrypoint: str) -> tuple[str, ...]:
    """The FX nodes whose ops must compute in float32, so that outputs and states are finite where they are in float32.

    Among the ops that overflow, the first ones that are enough are found by bisection. Then those that are not needed
    are left out, until none can be left out any more. A trial runs the program on the evaluator, as it would be with
    these ops in float32.

    Args:
        module: the program before its composites are outlined.
        inputs: tensors by name, of the types that the program takes; also the contents of states.
        entrypoint: the name of the graph.

    Raises:
        EvaluationError: the outputs are not finite either if all these ops stay in float32.
    """
    copy = module.clone()  # which has decoded constants of its own, because they may be wider

    def run(nodes: Sequence[str]) -> Mapping[str, Tensor]:
        return evaluate(copy, inputs, entry=entrypoint, machine=MixedMachine(copy, kept=set(kept_ops(copy, nodes))))

    plain = run(())
    wide = run_wide(module, inputs, {}, entrypoint, lambda op, results: None) or plain

    def is_finite(made: Mapping[str, Tensor]) -> bool:
        floats = [(name, value.to(plain[name].dtype)) for name, value in made.items() if value.is_floating_point()]
        return not any(overflows_beside(value, wide[name]) for name, value in floats)

    def is_enough(nodes: Sequence[str]) -> bool:
        return is_finite(run(nodes))

    if is_finite(plain):
        return ()
    overflows = overflows_of_half(copy, inputs, {}, entrypoint)
    places = (place for each in overflows for place in origins(each.place.location)[:1])
    candidates = list(dict.fromkeys(place.node for place in places if place.node))
    if not is_enough(candidates):
        first = told(overflows[0], copy) if overflows else None
        raise EvaluationError(
            "outputs are NaN or infinite also if every op that overflows stays in float32: an output or a state of "
            f"half precision cannot hold its own numbers{f'; {first}' if first else ''}"
        )
    return tuple(_fewest(candidates, is_enough))


def _fewest(candidates: list[str], is_enough: Callable[[Sequence[str]], bool]) -> list[str]:
    """A sufficient subset of the candidates; without any one of them it would not be enough."""
    low, high = 0, len(candidates)  # the first `high` are enough, and the first `low` are not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(candidates[:middle]) else (middle, high)
    kept, size = candidates[:high], high // 2
    while size:
        before = len(kept)
        for start in reversed(range(0, len(kept), size)):
            without = kept[:start] + kept[start + size :]
            if is_enough(without):
                kept = without
        size = size // 2 if size > 1 else int(len(kept) < before)
    return kept


@dataclass(eq=False, kw_only=True)
class MixedMachine(Machine):
    """Computes some ops in float32, as a program in which they stay in float32 does."""

    kept: Container[Operation]
    """The ops; of a call, the whole body."""
    _depth: int = 0
    """How many of the calls around the op are kept."""

    def run_op(self, op: EvaluatedOp, implementation: Implementation, operands: Sequence[Any]) -> list[Any]:
        if op.operation not in self.kept or self._depth:
            types = [value.type for value in op.operation.operands]
            given = operands if self._depth else [_narrowed(*each) for each in zip(operands, types, strict=True)]
            return super().run_op(op, implementation, given)
        self._depth += 1
        try:
            with Wider(IN_FLOAT32) as wider:
                return super().run_op(op, implementation, [wider.widened(each) for each in operands])
        finally:
            self._depth -= 1

    def mismatch(self, value: Any, type_: Attribute) -> str:
        return ""


def _narrowed(value: Any, type_: Attribute) -> Any:
    """A value of a kept op in the type in which others read it."""
    if not isinstance(value, Tensor) or value.dtype != torch.float32 or not isinstance(type_, TensorType):
        return value
    return value.to(TORCH_DTYPES[element_name(type_.element_type)])

"""Run a graph with one other weight each time: what comes before the weight's first reader runs once for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from patcomp.evaluate.machine import Handle, Machine, Step
from patcomp.evaluate.registry import EvaluatedOp
from patcomp.ir.constants import weight_key
from patcomp.ir.module import IRModule, callee
from patcomp.ir.xdsl import Operation, SSAValue, ops_inside


class Resumed:
    """The results of a graph in programs that differ in one weight each.

    The program runs up to the first reader of a weight, where it stays; the rest runs with the other weight. Weights
    that are asked for in the order of their readers take half a run each, and only the values between are kept.

    Args:
        module: the program.
        graph: a graph of it.
        operands: the operands of the graph in order, new ones at every call, because a run writes to states.
    """

    def __init__(self, module: IRModule, graph: Operation, operands: Callable[[], Sequence[Any]]):
        self.block, self.operands, self.machine = graph.regions[0].block, operands, Machine(module)
        self.steps = self.machine.steps(self.block)
        self.first = _first_readers(module, self.steps)
        self._start()

    def _start(self) -> None:
        self.place = 0
        self.frame: dict[SSAValue, Any] = dict(zip(self.block.args, self.operands(), strict=True))

    def results(self, changed: IRModule, key: str) -> list[Any] | None:
        """The results in a program.

        Args:
            changed: the same ops with another weight.
            key: of the weight.

        Returns:
            None if the graph does not read the weight.
        """
        if key not in self.first:
            return None
        if self.first[key] < self.place:
            self._start()
        with torch.no_grad():
            _run(self.machine, self.steps[self.place : self.first[key]], self.frame)
            self.place = self.first[key]
            machine, frame = Machine(changed), _copied(self.frame)
            for value in frame:
                if weight_key(value) == key:
                    frame[value] = machine.constant(value.owner.properties["value"])  # type: ignore[union-attr]
            return _run(machine, self.steps[self.place :], frame)


def _run(machine: Machine, steps: Sequence[Step], frame: dict[SSAValue, Any]) -> list[Any]:
    """Run some steps of a block on the values before them; the operands of the terminator, if it is among them."""
    for step in steps:
        given = [frame[operand] for operand in step.op.operands]
        if step.op.next_op is None:
            return given
        results = machine.run_op(EvaluatedOp(step.op, machine, frame), step.run, given)
        frame.update(zip(step.op.results, results, strict=True))
        for dead in step.last_uses:
            del frame[dead]
    return []


def _copied(frame: dict[SSAValue, Any]) -> dict[SSAValue, Any]:
    """The same values, with states of their own; a state has one handle in all of them."""
    handles: dict[int, Handle] = {}

    def own(value: Any) -> Any:
        return handles.setdefault(id(value), Handle(value.name, value.tensor)) if isinstance(value, Handle) else value

    return {name: own(value) for name, value in frame.items()}


def _first_readers(module: IRModule, steps: Sequence[Step]) -> dict[str, int]:
    """For each weight, the number of the first step to read it, directly, in a region or in a called graph."""
    found: dict[str, int] = {}
    read: dict[str, set[str]] = {}

    def keys(op: Operation) -> Iterator[str]:
        for inner in (op, *ops_inside(op)):
            yield from (key for operand in inner.operands if (key := weight_key(operand)) is not None)
            if inner.name == "coreai.invoke":
                name = callee(inner)
                if name not in read:
                    read[name] = set()  # a graph that calls itself is refused elsewhere
                    read[name] = set(keys(module.graph(name)))
                yield from read[name]

    for place, step in enumerate(steps):
        for key in keys(step.op):
            found.setdefault(key, place)
    return found

"""Round weights so that the outputs of their products stay, as measured on example inputs.

The program and the rounded program run on the examples at the same time, op by op. Where both reach the first product
by a weight, the inputs of all examples are there, in both programs: the weight is fitted and rounded by them, and the
rounded program goes on with what is stored. So each weight sees what the rounding of all weights before it has done,
and only the inputs of one product are kept at a time.

A weight has one set of channels, and so only weights whose readers all sum over the same axis are rounded in this way.
The program with weights that are rounded to the nearest runs beside the two: what the examples spoil is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from patcomp.compression.compress import floats, stored_as
from patcomp.compression.gptq import fitted_weights
from patcomp.compression.scheme import Layout, Scheme, Stored
from patcomp.compression.weights import WEIGHT_PRODUCTS, Weight, weights_of
from patcomp.evaluate.lockstep import (
    BlockValues,
    Lockstep,
    MatrixChoices,
    moments_of,
    second_moments,
    weight_operand,
    weight_tensor,
    windows,
)
from patcomp.evaluate.machine import Handle, Step
from patcomp.evaluate.registry import EvaluatedOp, integers
from patcomp.evaluate.two_roundings import worse
from patcomp.ir.axes import axes_before
from patcomp.ir.constants import constant_integers, is_constant, weight_key
from patcomp.ir.module import IRModule, callee, names_of
from patcomp.ir.traits import Reshape
from patcomp.ir.types import shape_of
from patcomp.ir.xdsl import Operation, SSAValue
from patcomp.program.bodies import Bodies, outermost, products_in_bodies

_Of = TypeVar("_Of")
_Chosen = Sequence[Tensor] | None
"""Which matrices of a stack a value has, in each frame; None for all."""
_Moments = tuple[list[np.ndarray], list[np.ndarray]]
"""As `second_moments` gives them."""
_PROGRAMS = 3
"""The program, the one that examples round, and the one that is rounded to the nearest."""
_WINDOWS = ("coreai.conv2d", "coreai.conv3d")
_WAITING = (("matmul",), ("gather_mm",))
"""Kinds of weights that are rounded at their product."""


@dataclass(frozen=True)
class Calibration:
    """What examples say about the rounding of weights.

    Attributes:
        stored: the stored forms of the weights that were rounded in the run, by key.
        by_examples: the keys of those that the examples rounded; none if an output was better without.
        spoiled: what the examples made worse, in a sentence for each output.
    """

    stored: Mapping[str, Stored]
    by_examples: Collection[str] = ()
    spoiled: Sequence[str] = ()


def calibrated(
    module: IRModule,
    entry: str,
    scheme_of: Callable[[Weight], Scheme | None],
    examples: Sequence[Callable[[], Sequence[Any]]],
) -> Calibration:
    """The stored forms of the weights that products of a graph read, as far as a scheme goes by inputs.

    Args:
        module: the program.
        entry: the graph.
        scheme_of: the scheme of a weight; None leaves it alone.
        examples: each gives the operands of the graph for one example, new ones at every call, because a run writes to
            states.
    """
    walk, graph = _Walk(module, scheme_of), module.graph(entry)
    given = [example() for _ in range(_PROGRAMS) for example in examples]
    results = walk.run_graph(graph, given)
    spoiled = []
    for kind, attributes, values in (("output", "res_attrs", results), ("state", "arg_attrs", given)):
        for index, name in enumerate(names_of(graph, attributes)):
            contents = [each[index].tensor if isinstance(each[index], Handle) else each[index] for each in values]
            tensors = [each for each in contents if isinstance(each, Tensor)]  # not tokens; inputs stay
            if why := worse(*_thirds(tensors)):
                spoiled.append(f"{kind} {name or index}: {why}")
    if spoiled:
        kept = {key: stored for key, stored in walk.stored.items() if key not in walk.by_examples}
        return Calibration(kept, spoiled=spoiled)
    return Calibration(walk.stored, walk.by_examples)


def _thirds(frames: Sequence[_Of]) -> tuple[Sequence[_Of], Sequence[_Of], Sequence[_Of]]:
    """Split frames by program: the program itself, the program rounded by examples, the program rounded to nearest."""
    count = len(frames) // _PROGRAMS
    return frames[:count], frames[count : 2 * count], frames[2 * count :]


class _Walk(Lockstep):
    """The frames of three programs, one after the other (`_thirds`)."""

    def __init__(self, module: IRModule, scheme_of: Callable[[Weight], Scheme | None]):
        super().__init__(module)
        self.scheme_of = scheme_of
        self.weights = {weight.key: weight for weight in weights_of(module)}
        self.stored: dict[str, Stored] = {}
        self.nearest: dict[str, Stored] = {}
        """The other stored form of weights that several products read."""
        self.by_examples: list[str] = []
        self.named: dict[SSAValue, tuple[Weight, _Chosen]] = {}
        """The weights that wait for their product, by the values that are views of them or of chosen matrices."""
        self.bodies = products_in_bodies(self.weights.values())

    def run(self, step: Step, operands: Sequence[list[Any]], frames: Sequence[BlockValues]) -> list[list[Any]]:
        op = step.op
        if is_constant(op):
            results = super().run(step, operands, frames)
            exact, *changed = _thirds(results)
            return [*exact, *self._constants(op, [*changed[0], *changed[1]])]
        if axes_before(op) is not None or _keeps_matrices(op):
            self._name(op.results[0], op.operands[0])
        elif op.name == "coreai.invoke":
            for argument, operand in zip(self.module.graph(callee(op)).regions[0].block.args, op.operands, strict=True):
                self._name(argument, operand)
        elif op.name == "coreai.gather_nd":
            self._name(op.results[0], op.operands[0], [given[1].long().reshape(-1) for given in operands])
        elif op.name in WEIGHT_PRODUCTS:
            for index, operand in enumerate(op.operands[:2]):
                if operand in self.named:
                    self._round(*self.named[operand], index, operands)
        elif op.name in _WINDOWS and op.operands[1] in self.named:
            self._round_convolution(self.named[op.operands[1]][0], operands)
        elif op in self.bodies:
            return self._run_bodies(step, operands, frames)
        return super().run(step, operands, frames)

    def _name(self, value: SSAValue, of: SSAValue, chosen: _Chosen = None) -> None:
        """Note that a value is a view of another value, or of chosen matrices of the other value."""
        self.named.pop(value, None)  # a graph that is called again reads other weights
        if of in self.named:
            weight, before = self.named[of]
            self.named[value] = weight, chosen or before

    def _constants(self, op: Operation, results: list[list[Any]]) -> list[list[Any]]:
        """The results of a constant in all programs. A weight that is rounded at its product keeps its floats until
        then."""
        weight = self.weights.get(weight_key(op.results[0]) or "")
        if weight is None or self.scheme_of(weight) is None:
            return results
        if self._waits(weight):
            self.named[op.results[0]] = weight, None
            return results
        if weight.key not in self.stored:
            self.stored[weight.key] = self._plain(weight)
        (like,), *_ = results
        made = weight_tensor(self.stored[weight.key].floats(), like)
        return [[made] for _ in results]

    def _waits(self, weight: Weight) -> bool:
        """Whether a weight is rounded at its product, and not number by number."""
        inside = [(outer, each.op) for each in weight.readers if (outer := outermost(each.op)) is not each.op]
        if not weight.has_one_layout or any(op not in self.bodies.get(outer, ()) for outer, op in inside):
            return False
        return weight.kinds in _WAITING or _is_read_in_order(weight)

    def _run_bodies(self, step: Step, operands: Sequence[list[Any]], frames: Sequence[BlockValues]) -> list[list[Any]]:
        """Run a branch or a loop. Its weights are rounded by what it multiplies the weights by, in all iterations; then
        it runs again with them."""
        products, count = self.bodies[step.op], len(frames) // _PROGRAMS

        def run(program: int, stored: Callable[[Weight], Stored | None]) -> list[tuple[list[Any], Bodies]]:
            made = []
            for number in range(program * count, (program + 1) * count):
                machine = Bodies(self.module, products, stored)
                op = EvaluatedOp(step.op, machine, frames[number])
                made.append((machine.run_op(op, step.run, operands[number]), machine))
            return made

        def known(weight: Weight) -> Stored | None:
            return self.stored.get(weight.key)

        exact, found = run(0, lambda weight: None), run(1, known)
        for weight in {weight.key: weight for weight, _ in products.values() if self.scheme_of(weight)}.values():
            pairs = [
                pair for (_, own), (_, made) in zip(exact, found, strict=True)
                for pair in zip(own.inputs.get(weight.key, ()), made.inputs.get(weight.key, ()), strict=False)
            ]  # fmt: skip
            if pairs:  # else no example takes the branch
                moments = moments_of(*map(list, zip(*pairs, strict=True)))
                self._store(weight, weight.layout, weight.shape, partial(_these, moments))
        rounded = {weight.key for weight, _ in products.values() if self.scheme_of(weight)}
        plain = run(2, lambda weight: self._plain(weight) if weight.key in rounded else None)
        return [results for results, _ in (*exact, *run(1, known), *plain)]

    def _scheme(self, weight: Weight) -> Scheme:
        scheme = self.scheme_of(weight)
        assert scheme is not None
        return scheme

    def _plain(self, weight: Weight) -> Stored:
        """The stored form of a weight that is rounded to the nearest."""
        if weight.key in self.nearest:
            return self.nearest[weight.key]
        made = stored_as(self._scheme(weight), weight, floats(weight, self.module.blobs))
        if len(weight.readers) > 1:
            self.nearest[weight.key] = made
        return made

    def _store(self, weight: Weight, layout: Layout, shape: Sequence[int], seen: Callable[[int], _Moments]) -> None:
        """Make the stored form of a weight at its first product.

        Args:
            weight: the weight.
            layout, shape: its axes, as the product reads it.
            seen: gives the moments of the inputs of so many matrices, as `second_moments` does.
        """
        if weight.key in self.stored:
            return
        if not self._scheme(weight).goes_by_inputs:
            self.stored[weight.key] = self._plain(weight)
            return
        self.by_examples.append(weight.key)
        values = floats(weight, self.module.blobs)
        matrices = layout.matrices(values.reshape(shape))
        moments, crossed = seen(len(matrices))
        better = [fitted_weights(*each) for each in zip(matrices, moments, crossed, strict=True)]
        made = layout.weight(np.stack(better), shape).reshape(values.shape)
        self.stored[weight.key] = stored_as(self._scheme(weight), weight, made, moments)

    def _round(self, weight: Weight, chosen: _Chosen, index: int, operands: Sequence[list[Any]]) -> None:
        """Give the rounded programs the stored forms of a weight, which are made for its first product."""
        exact, found, plain = _thirds(operands)
        choices = None if chosen is None else MatrixChoices(*_thirds(chosen)[:2])
        self._store(
            weight, weight.layout, weight.shape, lambda count: second_moments(exact, found, index, count, choices)
        )
        own = (None, None, None) if chosen is None else _thirds(chosen)
        for stored, given, read in ((self.stored[weight.key], found, own[1]), (self._plain(weight), plain, own[2])):
            _use(weight.layout.matrices(stored.floats()), index, given, read)

    def _round_convolution(self, weight: Weight, operands: Sequence[list[Any]]) -> None:
        """The same for a convolution, whose inputs are its windows."""
        exact, found, plain = _thirds(operands)
        (_, read, *options), *_ = operands
        stride, dilation, _ = map(integers, options)
        shape = read.shape  # of one dimension, a weight gets another axis

        def seen(count: int) -> _Moments:
            own, made = ([windows(each[0].float(), shape[2:], stride, dilation) for each in given]
                         for given in (exact, found))  # fmt: skip
            return moments_of(own, made)

        self._store(weight, Layout((0,), 1), (len(read), shape[1:].numel()), seen)
        for stored, given in ((self.stored[weight.key], found), (self._plain(weight), plain)):
            rounded = weight_tensor(stored.floats(), read).reshape(shape)
            for each in given:
                each[1] = rounded


def _use(matrices: np.ndarray, index: int, operands: Sequence[list[Any]], chosen: Sequence[Tensor] | None) -> None:
    """Let a rounded program multiply by what is stored, in all examples."""
    for number, given in enumerate(operands):
        read = matrices if chosen is None else matrices[chosen[number].numpy()]
        given[index] = weight_operand(read, given[index], index)


def _these(moments: _Moments, count: int) -> _Moments:
    """Moments that are known before it is asked for how many matrices."""
    return moments


def _keeps_matrices(op: Operation) -> bool:
    """Whether an op changes the shape of a stack of matrices alone."""
    if not op.has_trait(Reshape):
        return False
    before, after = (shape_of(value.type)[-2:] for value in (op.operands[0], op.results[0]))
    return before == after


def _is_read_in_order(weight: Weight) -> bool:
    """Whether only convolutions of one group read a weight, and nothing moves its elements before; transposed
    convolutions read it in another way."""
    uses = [use for constant in weight.constants for use in constant.results[0].uses]
    while uses:
        use = uses.pop()
        if use.operation.has_trait(Reshape):
            uses.extend(use.operation.results[0].uses)
        elif use.operation.name not in _WINDOWS or constant_integers(use.operation.operands[4]) != (1,):
            return False
    return True

"""Round weights so that the outputs of their products stay, as measured on example inputs.

The program and the rounded program run on the examples at the same time, op by op. Where both reach the first product
by a weight, the inputs of all examples are there, in both programs: the weight is fitted and rounded by them, and the
rounded program goes on with what is stored. So each weight sees what the rounding of all weights before it has done,
and only the inputs of one product are kept at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from patcomp.compression.compress import floats, stored_as
from patcomp.compression.gptq import fitted
from patcomp.compression.scheme import Scheme, Stored
from patcomp.compression.weights import PRODUCTS, Weight, weights_of
from patcomp.evaluate.lockstep import (
    Choices,
    Frame,
    Lockstep,
    moments_of,
    second_moments,
    weight_operand,
    weight_tensor,
    windows,
)
from patcomp.evaluate.machine import Step
from patcomp.evaluate.registry import integers
from patcomp.ir.axes import axes_before
from patcomp.ir.constants import is_constant, weight_key
from patcomp.ir.module import IRModule, callee
from patcomp.ir.traits import Reshape
from patcomp.ir.types import shape_of
from patcomp.ir.xdsl import Operation, SSAValue

_WINDOWS = ("coreai.conv2d", "coreai.conv3d")
_WAITING = (("matmul",), ("gather_mm",))
"""Kinds of weights that are rounded at their product."""


def calibrated(
    module: IRModule,
    entry: str,
    scheme_of: Callable[[Weight], Scheme | None],
    examples: Sequence[Callable[[], Sequence[Any]]],
) -> Mapping[str, Stored]:
    """The stored forms of the weights that products of a graph read, by their keys, as far as a scheme goes by inputs.

    Args:
        module: the program.
        entry: the graph.
        scheme_of: the scheme of a weight; None leaves it alone.
        examples: each gives the operands of the graph for one example, new ones at every call, because a run writes to
            states.
    """
    walk = _Walk(module, scheme_of)
    walk.run_graph(module.graph(entry), [example() for _ in range(2) for example in examples])
    return {key: walk.stored[key] for key in walk.by_examples}


class _Walk(Lockstep):
    """The first half of the frames are the program's, and the second half the rounded program's."""

    def __init__(self, module: IRModule, scheme_of: Callable[[Weight], Scheme | None]):
        super().__init__(module)
        self.scheme_of = scheme_of
        self.weights = {weight.key: weight for weight in weights_of(module)}
        self.stored: dict[str, Stored] = {}
        self.by_examples: list[str] = []
        self.named: dict[SSAValue, Weight] = {}
        """The weights that wait for their product, by the values that are views of them."""
        self.choices: dict[SSAValue, Choices] = {}
        """Of values that are views of chosen matrices, which they are."""

    def run(self, step: Step, operands: Sequence[list[Any]], frames: Sequence[Frame]) -> list[list[Any]]:
        op, half = step.op, len(operands) // 2
        if is_constant(op):
            results = super().run(step, operands, frames)
            return [*results[:half], *self._constants(op, results[half:])]
        if op.operands and (axes_before(op) is not None or _keeps_matrices(op)):
            self._name(op.results[0], op.operands[0])
        elif op.name == "coreai.invoke":
            for argument, operand in zip(self.module.graph(callee(op)).regions[0].block.args, op.operands, strict=True):
                self._name(argument, operand)
        elif op.name == "coreai.gather_nd":
            self._name(op.results[0], op.operands[0])
            if op.results[0] in self.named:
                chosen = [given[1].long().reshape(-1) for given in operands]
                self.choices[op.results[0]] = Choices(chosen[:half], chosen[half:])
        elif op.name in PRODUCTS:
            for index, operand in enumerate(op.operands[:2]):
                if operand in self.named:
                    self._round(self.named[operand], index, operands, self.choices.get(operand))
        elif op.name in _WINDOWS and op.operands[1] in self.named:
            self._round_convolution(op, self.named[op.operands[1]], operands)
        return super().run(step, operands, frames)

    def _name(self, value: SSAValue, of: SSAValue) -> None:
        self.named.pop(value, None)  # a graph that is called again reads other weights
        self.choices.pop(value, None)
        if of in self.named:
            self.named[value] = self.named[of]
        if of in self.choices:
            self.choices[value] = self.choices[of]

    def _constants(self, op: Operation, results: list[list[Any]]) -> list[list[Any]]:
        """The results of a constant in the rounded program; those of a weight that waits are still the floats."""
        weight = self.weights.get(weight_key(op.results[0]) or "")
        scheme = None if weight is None else self.scheme_of(weight)
        if weight is None or scheme is None:
            return results
        if weight.kinds in _WAITING and not any(_is_inside_control_flow(reader) for reader in weight.readers):
            self.named[op.results[0]] = weight
            return results
        if weight.kinds == ("conv",) and (views := _windowed(weight)):
            self.named.update(dict.fromkeys(views, weight))
            return results
        if weight.key not in self.stored:
            self.stored[weight.key] = stored_as(scheme, weight, floats(weight, self.module.blobs))
        made = weight_tensor(self.stored[weight.key].floats(), results[0][0])
        return [[made] for _ in results]

    def _round(self, weight: Weight, index: int, operands: Sequence[list[Any]], choices: Choices | None) -> None:
        """Give the rounded program the stored form of a weight, which is made for its first product."""
        half = len(operands) // 2
        scheme = self.scheme_of(weight)
        assert scheme is not None
        if weight.key not in self.stored:
            if scheme.goes_by_inputs:
                self.by_examples.append(weight.key)
            exact = floats(weight, self.module.blobs).astype(np.float32, copy=False)
            matrices = weight.layout.matrices(exact)
            moments, crossed = second_moments(operands[:half], operands[half:], index, len(matrices), choices)
            better = [fitted(*each) for each in zip(matrices, moments, crossed, strict=True)]
            self.stored[weight.key] = stored_as(
                scheme, weight, weight.layout.weight(np.stack(better), exact.shape), moments
            )
        self._use(weight, index, operands, choices)

    def _round_convolution(self, op: Operation, weight: Weight, operands: Sequence[list[Any]]) -> None:
        """The same for a convolution, whose inputs are its windows; a grouped one goes number by number."""
        half = len(operands) // 2
        stride, dilation, groups = (integers(values) for values in operands[0][2:5])
        scheme = self.scheme_of(weight)
        assert scheme is not None
        shape = operands[0][1].shape  # of one dimension, a weight gets another axis
        by_inputs = scheme.goes_by_inputs and groups == [1]
        if weight.key not in self.stored and not by_inputs:
            self.stored[weight.key] = stored_as(scheme, weight, floats(weight, self.module.blobs))
        elif weight.key not in self.stored:
            self.by_examples.append(weight.key)
            exact = floats(weight, self.module.blobs).astype(np.float32, copy=False)
            seen = [windows(given[0].float(), shape[2:], stride, dilation) for given in operands]
            moments, crossed = moments_of(seen[:half], seen[half:])
            better = fitted(exact.reshape(len(exact), -1), moments[0], crossed[0])
            self.stored[weight.key] = stored_as(scheme, weight, better.reshape(exact.shape), moments)
        made = weight_tensor(self.stored[weight.key].floats(), operands[0][1])
        for given in operands[half:]:
            given[1] = made.reshape(shape)

    def _use(self, weight: Weight, index: int, operands: Sequence[list[Any]], choices: Choices | None) -> None:
        """Let the rounded program multiply by what is stored."""
        half = len(operands) // 2
        rounded = weight.layout.matrices(self.stored[weight.key].floats())
        for number, given in enumerate(operands[half:]):
            read = rounded if choices is None else rounded[choices.changed[number].numpy()]
            given[index] = weight_operand(read, given[index], index)


def _keeps_matrices(op: Operation) -> bool:
    """Whether an op changes the shape of a stack of matrices alone."""
    if not op.has_trait(Reshape):
        return False
    before, after = (shape_of(value.type)[-2:] for value in (op.operands[0], op.results[0]))
    return before == after and None not in before


def _windowed(weight: Weight) -> list[SSAValue]:
    """The values by which convolutions read a weight, if nothing else does, and nothing moves its elements; transposed
    convolutions read it in another way."""
    found: list[SSAValue] = []
    for constant in weight.constants:
        value = constant.results[0]
        for use in value.uses:
            is_view = use.operation.has_trait(Reshape)
            read = use.operation.results[0] if is_view else value
            readers = list(read.uses) if is_view else [use]
            if not all(each.operation.name in _WINDOWS and each.index == 1 for each in readers):
                return []
            if any(_is_inside_control_flow(each.operation) for each in readers):
                return []
            found.append(read)
    return found


def _is_inside_control_flow(op: Operation) -> bool:
    parent = op.parent_op()
    return parent is None or parent.name != "coreai.graph"

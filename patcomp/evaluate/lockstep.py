"""Run a graph on several examples at once, op by op, so that each op is seen with the operands of all of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp.errors import EvaluationError
from patcomp.evaluate.machine import Machine, Step
from patcomp.evaluate.registry import EvaluatedOp
from patcomp.ir.module import IRModule, callee
from patcomp.ir.xdsl import Block, Operation, SSAValue

BlockValues = dict[SSAValue, Any]
"""The values of one example."""


class Lockstep:
    """Runs graphs of a module; bodies of branches and loops are run one example after the other.

    Args:
        module: the program.
    """

    def __init__(self, module: IRModule):
        self.module = module
        self.machine = Machine(module)

    def run_graph(self, graph: Operation, operands: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """The results for each example.

        Args:
            graph: a graph of the module.
            operands: the operands in order (tensors, handles, tokens) of each example.
        """
        with torch.no_grad():
            return self._run_block(graph.regions[0].block, operands)

    def _run_block(self, block: Block, operands: Sequence[Sequence[Any]]) -> list[list[Any]]:
        frames: list[BlockValues] = [dict(zip(block.args, given, strict=True)) for given in operands]
        for step in self.machine.steps(block):
            given = [[frame[operand] for operand in step.op.operands] for frame in frames]
            if step.op is block.last_op:
                return given
            for frame, results in zip(frames, self.run(step, given, frames), strict=True):
                frame.update(zip(step.op.results, results, strict=True))
                for dead in step.last_uses:
                    del frame[dead]
        raise EvaluationError("a block has no terminator")

    def run(self, step: Step, operands: Sequence[list[Any]], frames: Sequence[BlockValues]) -> list[list[Any]]:
        """The results of an op for each example.

        Args:
            step: the op.
            operands: its operands in each example, which may be replaced.
            frames: what regions of the op may read.
        """
        if step.op.name == "coreai.invoke":
            return self.run_graph(self.module.graph(callee(step.op)), operands)
        return [
            self.machine.run_op(EvaluatedOp(step.op, self.machine, frame), step.run, given)
            for frame, given in zip(frames, operands, strict=True)
        ]


@dataclass(frozen=True)
class MatrixChoices:
    """Which matrices of a stack a product takes, in each example of a program and of a changed one; each in order."""

    exact: Sequence[Tensor]
    changed: Sequence[Tensor]


def second_moments(
    exact: Sequence[Sequence[Tensor]],
    changed: Sequence[Sequence[Tensor]],
    index: int,
    count: int,
    choices: MatrixChoices | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """How the inputs of a weight's matrices go together, in examples of a program and of a changed one.

    Args:
        exact, changed: the operands of a product by a weight, in each example.
        index: which operand is the weight, 0 or 1.
        count: the number of its matrices.
        choices: if the product reads chosen matrices. Inputs for which the programs choose differently do not count.

    Returns:
        For each matrix two arrays of shape (inputs, inputs): the mean products of the changed program's inputs with
        themselves, and with the program's own, which are the columns.
    """
    if choices is None:
        return moments_of(
            *(
                [matrices_read(given[1 - index], given[index], index, count) for given in each]
                for each in (exact, changed)
            )
        )
    size = exact[0][index].shape[-2 if index == 1 else -1]
    moments, crossed = torch.zeros(2, count, size, size, dtype=torch.float64)
    rows = torch.zeros(count, 1, 1, dtype=torch.float64)
    for number, (own, made) in enumerate(zip(exact, changed, strict=True)):
        read = len(choices.exact[number])
        wanted, found = (matrices_read(given[1 - index], given[index], index, read) for given in (own, made))
        first, second = choices.exact[number], choices.changed[number]
        for matrix in first[first == second].unique().tolist():
            here = (first == matrix) & (second == matrix)
            ours, theirs = (each[here].reshape(-1, size) for each in (found, wanted))
            moments[matrix] += (ours.mT @ ours).double()
            crossed[matrix] += (ours.mT @ theirs).double()
            rows[matrix] += len(ours)
    rows.clamp_(min=1)
    return list((moments / rows).numpy()), list((crossed / rows).numpy())


def moments_of(exact: Sequence[Tensor], changed: Sequence[Tensor]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """As `second_moments`, from the inputs of each example, (matrices, rows, inputs)."""
    count, _, size = exact[0].shape
    moments, crossed = torch.zeros(2, count, size, size, dtype=torch.float64)
    for wanted, found in zip(exact, changed, strict=True):
        moments += (found.mT @ found).double()
        crossed += (found.mT @ wanted).double()
    rows = max(sum(each.shape[1] for each in exact), 1)
    return list((moments / rows).numpy()), list((crossed / rows).numpy())


def windows(values: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """What a convolution multiplies its weight by: (1, windows, channels * kernel).

    Args:
        values: (batch, channels, sizes...).
        kernel, stride, dilation: for each of the sizes.
    """
    counts = [
        (size - far * (width - 1) - 1) // step + 1
        for size, width, step, far in zip(values.shape[2:], kernel, stride, dilation, strict=True)
    ]
    parts = []
    for place in itertools.product(*map(range, kernel)):
        cut = tuple(
            slice(at * far, at * far + step * (count - 1) + 1, step)
            for at, far, step, count in zip(place, dilation, stride, counts, strict=True)
        )
        parts.append(values[(slice(None), slice(None), *cut)].flatten(2))
    found = torch.stack(parts, 2).flatten(1, 2)  # (batch, channels * kernel, windows)
    return found.mT.reshape(1, -1, found.shape[1])


def weight_tensor(values: np.ndarray, like: Tensor) -> Tensor:
    """Values as a tensor of the type of another one."""
    return torch.from_numpy(values).to(like.dtype)


def weight_operand(matrices: np.ndarray, like: Tensor, index: int) -> Tensor:
    """Matrices of shape (matrices, outputs, inputs), in order, as the operand of a product that another tensor is."""
    made = weight_tensor(matrices, like).reshape(*like.shape[:-2], *matrices.shape[-2:])
    return made.mT if index == 1 else made


def matrices_read(values: Tensor, weight: Tensor, index: int, count: int) -> Tensor:
    """The inputs of the matrices of a weight, (matrices, rows, inputs), from the other operand of its product.

    Args:
        values: the other operand.
        weight: the weight as the product reads it.
        index: which operand of the product it is.
        count: the number of matrices.
    """
    rows = values.float() if index == 1 else values.mT.float()
    stack = torch.broadcast_shapes(rows.shape[:-2], weight.shape[:-2])
    own = (*[1] * (len(stack) - weight.dim() + 2), *weight.shape[:-2])
    rows = rows.expand(*stack, *rows.shape[-2:])
    order = sorted(range(len(stack)), key=lambda axis: own[axis] == 1)  # the axes of the weight's matrices come first
    return rows.permute(*order, -2, -1).reshape(count, -1, rows.shape[-1])

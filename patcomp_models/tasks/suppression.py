"""Non-maximum suppression that gives a fixed number of boxes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.export import ExportedProgram

from patcomp.errors import PatcompError, reason_of


@dataclass(frozen=True)
class Suppression:
    """Non-maximum suppression: of boxes of one class that overlap, the one with the best score stays.

    Attributes:
        scores: boxes with at most this score are left out.
        overlap: boxes whose intersection over union with a better one is larger are left out.
        boxes: how many the program gives; the best ones, and behind them boxes of the score 0.
    """

    scores: float = 0.25
    overlap: float = 0.7
    boxes: int = 300

    def __post_init__(self) -> None:
        for name in ("scores", "overlap"):
            if not 0 <= getattr(self, name) <= 1:
                raise PatcompError(f"Suppression.{name} must be between 0 and 1, got {getattr(self, name)}")
        if self.boxes < 1:
            raise PatcompError(f"Suppression.boxes must be at least 1, got {self.boxes}")


def best_apart(
    corners: Tensor, scores: Tensor, groups: Tensor, others: Sequence[Tensor], overlap: float, count: int,
    reach: tuple[Tensor, Tensor | float],
) -> list[Tensor]:  # fmt: skip
    """The best `count` boxes that overlap no better one of their group, the best ones first, and zeros behind them.

    Args:
        corners: (boxes, 4), where the number of boxes may be known in a run only.
        scores: (boxes).
        groups: (boxes), integers; boxes of other groups do not suppress each other.
        others: further tensors with a row for each box.
        overlap: boxes whose intersection over union with a better one is larger are left out.
        count: how many there are in the result.
        reach: the least coordinate of all boxes, and how far apart neighbouring groups are moved.

    Returns:
        Scores (count), corners (count, 4) and the rows of `others`.
    """
    low, stride = reach
    apart = torch.cat([corners + groups[:, None] * stride, low + _BESIDE.to(low)])
    scores, *rows = (torch.cat([each, each.new_zeros(2, *each.shape[1:])]) for each in (scores, corners, *others))
    kept = torch.ops.torchvision.nms(apart, scores, overlap)
    return [_filled(each[kept], count) for each in (scores, *rows)]


def _filled(values: Tensor, count: int) -> Tensor:
    return torch.cat([values[:count], values.new_zeros(count, *values.shape[1:])])[:count]


_BESIDE = torch.tensor([[-2.0, -2.0, -1.0, -1.0], [-4.0, -4.0, -3.0, -3.0]])
"""Two boxes beside all others, with the score 0, stay: torchvision says to `torch.export` that at least two do."""


def forget_the_least_count(program: ExportedProgram) -> None:
    """Erase the assertion of torchvision that at least two boxes stay.

    It holds, by `_BESIDE`. To check it, each run of the program would compute the whole model in PyTorch.
    """
    graph = program.graph
    for kept in (node for node in graph.nodes if node.target == torch.ops.torchvision.nms.default):
        for size in [user for user in kept.users if user.target == torch.ops.aten.sym_size.int]:
            for least in [user for user in size.users if user.target is operator.ge and user.args[1] == 2]:
                for assertion in [each for each in least.users if each.target == torch.ops.aten._assert_scalar.default]:
                    graph.erase_node(assertion)
                graph.erase_node(least)
    program.graph_module.recompile()


def import_torchvision() -> None:
    """Define `nms`."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError) as error:
        raise PatcompError(f"a suppression needs torchvision, which cannot be used: {reason_of(error)}") from error

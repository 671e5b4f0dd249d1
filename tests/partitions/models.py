"""Small models of which parts convert, and the custom ops that do not."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.library.custom_op("partitions::flipped", mutates_args=())
def flipped(x: Tensor) -> Tensor:
    return x.flip(-1) * 2


@flipped.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("partitions::bump", mutates_args=("x",))
def bump(x: Tensor, by: int) -> None:
    x.add_(by)


@torch.library.custom_op("partitions::strides", mutates_args=())
def strides(x: Tensor) -> Tensor:
    return torch.tensor(x.stride())


@strides.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(x.dim(), dtype=torch.int64)


class TwoCustomOps(nn.Module):
    """Two custom ops, one of which writes in place, between layers with a common weight; and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(24, 24), nn.Linear(24, 24)
        self.last.weight = self.first.weight
        self.norm = nn.LayerNorm(24)
        self.register_buffer("seen", torch.zeros(24))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.ops.partitions.flipped(self.norm(self.first(x)))
        before = self.seen.clone()
        self.seen.mul_(0.5).add_(self.first(y).sum(0))
        z = self.last(y + self.seen).softmax(-1)
        torch.ops.partitions.bump(z, 3)
        return z, before


class Branch(nn.Module):
    """Two branches that data decide; one of them has a custom op."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y = torch.cond(y.sum() > 0, torch.ops.partitions.flipped, torch.neg, (y,))
        y = torch.cond(y.mean() > 0, torch.cos, torch.sin, (y,))
        return self.last(y).relu()


class Mixture(nn.Module):
    """A mixture of experts, with a loop in Python over the experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, rank = torch.where(chosen == number)
            out = out.index_add(0, token, expert(x[token]) * weights[token, rank, None])
        return out


class Detector(nn.Module):
    """Boxes of a grid, of which non-maximum suppression keeps some, and the classes of those that are kept."""

    def __init__(self, least: float = 0.0) -> None:
        super().__init__()
        self.least = least
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1))
        self.boxes, self.scores, self.classes = nn.Conv2d(16, 4, 1), nn.Conv2d(16, 1, 1), nn.Linear(16, 10)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(image)
        sizes = self.boxes(features)[0].flatten(1).T
        scores = self.scores(features)[0].flatten().sigmoid()
        grid = torch.arange(64, dtype=torch.float32)
        center = torch.stack([grid % 8, grid // 8], 1) * 4
        boxes = torch.cat([center - sizes[:, :2].exp() * 2, center + sizes[:, 2:].exp() * 2], 1)
        kept = torch.ops.torchvision.nms(boxes, scores, 0.3)
        kept = kept[scores[kept] > self.least]
        return boxes[kept], self.classes(features[0].flatten(1).T[kept]).softmax(-1)

"""Models that take sizes from 1 x 2 to 16 x 64, with branches, loops and state."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import Dim

N, M = Dim("n", min=1, max=16), Dim("m", min=2, max=64)


class Branches(nn.Module):
    """A branch of sizes that come out alike, and one in a composite."""

    def forward(self, x: torch.Tensor) -> Any:
        once = torch.cond(x.sum() > 0, lambda x: torch.cat([x, x], 1), lambda x: torch.cat([x - 1, x * 3], 1), (x,))
        return nn.functional.layer_norm(once, (4,)), once.shape[1]


class Loops(nn.Module):
    """A loop that carries a tensor of dynamic size."""

    def forward(self, x: torch.Tensor) -> Any:
        def body(count: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return count + 1, value.flip(1) * 1.5

        def less(count: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return count < 3

        from torch._higher_order_ops import while_loop

        count, value = while_loop(less, body, (torch.tensor(0), x))
        return value.view(-1, 4), count


class Selects(nn.Module):
    """A size that values tell: it stays open."""

    def forward(self, x: torch.Tensor) -> Any:
        found = x[x > 0]
        return found * 2, x.reshape(x.shape[0], -1).sum(0)


class Updates(nn.Module):
    """A mutated input of dynamic size."""

    def forward(self, x: torch.Tensor) -> Any:
        x.mul_(2)
        return x + torch.arange(x.shape[1])[:, None]


MODELS = {"branches": Branches, "loops": Loops, "selects": Selects, "updates": Updates}

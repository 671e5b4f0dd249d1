"""Where a model's choice of experts hangs on rounding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from patcomp.pytorch import TorchDispatchMode

_STEPS = 4
"""How many steps of a float type, relative to the largest score, two scores are apart that rounding may exchange."""


class CloseChoices(TorchDispatchMode):
    """While a model is called: after which tokens an expert was chosen before another one with nearly the same score.

    The logits of such a token are those of other weights if the other expert is chosen.

    Args:
        tokens: how many there are.
        dtype: in which the model computes.
    """

    def __init__(self, tokens: int, dtype: torch.dtype):
        super().__init__()
        self.is_close = torch.zeros(tokens, dtype=torch.bool)
        self._least = _STEPS * torch.finfo(dtype).eps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.topk.default:
            self._look(*args[:2])
        return result

    def _look(self, scores: Tensor, chosen: int) -> None:
        """Compare the lowest chosen score with the highest other score."""
        if scores.ndim == 2 and len(scores) == len(self.is_close) and 0 < chosen < scores.shape[1]:
            best = scores.float().topk(chosen + 1).values
            apart = best[:, chosen - 1] - best[:, chosen]
            # experts of other groups than the chosen ones may have minus infinity
            self.is_close |= apart <= self._least * best[:, :chosen].abs().amax(1)

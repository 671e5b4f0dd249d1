"""The loop of DiffusionGemma: canvases of random tokens, which become a text from both sides.

The random numbers are drawn with PyTorch's functions in the order of transformers' `generate`, so that the tokens are
those that it writes after `torch.manual_seed(seed)`. Tensors are of the CPU; logits are float32.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor
from torch.distributions import Categorical

from patcomp_models.errors import BundleError


class CanvasModel(Protocol):
    """A model that reads a text, and denoises canvases of tokens behind it."""

    length: int
    """How many tokens a canvas has."""
    words: int
    """How many tokens the vocabulary has."""
    stops: Sequence[int]
    """The tokens that end a text."""
    padding: int | None
    """The token behind the end of a text; None leaves the canvas as it is."""

    def read(self, tokens: Tensor) -> None:
        """Read further tokens, (1, q), of the text."""

    def denoised(self, canvas: Tensor, before: Tensor | None) -> Tensor:
        """The logits of a canvas, (1, length, vocabulary).

        Args:
            canvas: (1, length).
            before: the logits of the step before; None in the first step.
        """


@dataclass(frozen=True)
class CanvasLoop:
    """The loop of DiffusionGemma (`generate` of transformers): one canvas after the other.

    Attributes:
        max_denoising_steps: calls of the denoiser for a canvas, at most.
        entropy_bound: a step keeps the tokens of lowest entropy, as long as the entropies of those before add up to no
            more (Ben-Hamu et al. 2025, arXiv:2505.24857); the other places get new random tokens.
        t_min: the temperature towards which the steps go.
        t_max: the temperature of the first step.
        stability_threshold: how many steps the most probable tokens must have been the same, to stop early.
        confidence_threshold: below which the mean of the entropies must be, to stop early.
    """

    max_denoising_steps: int = 48
    entropy_bound: float = 0.1
    t_min: float = 0.4
    t_max: float = 0.8
    stability_threshold: int = 1
    confidence_threshold: float = 0.005

    def check(self) -> None:
        """Check the settings, as transformers does.

        Raises:
            BundleError: a number is out of its range.
        """
        if self.max_denoising_steps < 1 or self.stability_threshold < 0 or not 0 <= self.t_min < self.t_max:
            raise BundleError(
                f"max_denoising_steps is {self.max_denoising_steps}, stability_threshold {self.stability_threshold}, "
                f"t_min {self.t_min} and t_max {self.t_max}; they must be at least 1, 0 and 0, and t_max above t_min"
            )
        if self.entropy_bound <= 0 or self.confidence_threshold <= 0:
            raise BundleError("entropy_bound and confidence_threshold must be above 0")

    def written(self, model: CanvasModel, prompt: Tensor, new: int, draw: Generator) -> Tensor:
        """The prompt and whole canvases with at least `new` tokens, or up to the canvas in which the text ends, (1, n).

        Raises:
            BundleError: a setting is out of its range.
        """
        self.check()
        text, unread = prompt, prompt
        for _ in range(-(-new // model.length)):
            model.read(unread)
            unread = self._canvas(model, draw)
            is_end = torch.isin(unread, torch.tensor(model.stops, dtype=unread.dtype))
            if model.padding is not None:
                is_behind = is_end.cumsum(-1) - is_end.long() > 0
                unread = unread.masked_fill(is_behind, model.padding)
            text = torch.cat([text, unread], 1)
            if is_end.any():
                break
        return text

    def _canvas(self, model: CanvasModel, draw: Generator) -> Tensor:
        """The tokens of the next canvas, (1, length)."""
        shape = 1, model.length
        canvas, logits = torch.randint(0, model.words, shape, generator=draw), None
        before = deque([torch.full(shape, -1)] * self.stability_threshold, self.stability_threshold)
        for step in range(self.max_denoising_steps, 0, -1):
            share = torch.tensor(step, dtype=torch.int32) / self.max_denoising_steps
            logits = model.denoised(canvas, logits) / (self.t_min + (self.t_max - self.t_min) * share)
            drawn = torch.multinomial(logits[0].softmax(-1), 1, generator=draw).T
            best = logits.argmax(-1)
            entropy = Categorical(logits=logits).entropy()
            ordered, places = entropy.sort(-1)
            is_kept = ordered.cumsum(-1) - ordered <= self.entropy_bound
            is_kept = torch.zeros_like(is_kept).scatter(-1, places, is_kept)
            noise = torch.randint(0, model.words, shape, generator=draw)
            canvas = torch.where(is_kept, drawn, noise)
            is_stable = all(torch.equal(each, best) for each in before)
            before.append(best)
            if is_stable and entropy.mean() < self.confidence_threshold:
                break
        return best

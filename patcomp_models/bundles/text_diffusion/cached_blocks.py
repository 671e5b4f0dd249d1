"""The loop of models that fill in blocks behind a cache of the text before: SDAR.

The random numbers are drawn with PyTorch's functions in the order of the published code, so that the tokens are those
that this code writes after `torch.manual_seed(seed)`. Tensors are of the CPU; logits are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Generator, Tensor

from patcomp_models.bundles.text_diffusion.unmasking import of_mass
from patcomp_models.errors import BundleError


class CachedModel(Protocol):
    """A model that keeps the text before a block."""

    mask: int
    stops: Sequence[int]
    """The tokens that end a text."""

    def block_logits(self, block: Tensor, start: int) -> Tensor:
        """The logits of a block, (1, b, vocabulary).

        Args:
            block: tokens, (1, b), which see each other and the blocks before.
            start: the position of the first one. The last call with it says what later blocks see.
        """


@dataclass(frozen=True)
class CachedBlockLoop:
    """The loop of SDAR (`block_diffusion_generate` of github.com/JetAstra/SDAR, Cheng et al. 2025, arXiv:2510.06303).

    Attributes:
        block_length: tokens of a block; those of the prompt are in blocks, too.
        denoising_steps: calls for a block, at most.
        temperature: of the tokens, above 0.
        top_k: draw from the most probable tokens, as many; 0 from all.
        top_p: draw from the most probable tokens, whose probabilities add up to it.
        remasking_strategy: which places keep their tokens: the most probable ones, as many in each step
            (`low_confidence_static`), or all above the threshold if they are more (`low_confidence_dynamic`), or the
            first ones (`sequential`).
        confidence_threshold: of the probability.
    """

    block_length: int = 4
    denoising_steps: int = 4
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    remasking_strategy: Literal["low_confidence_dynamic", "low_confidence_static", "sequential"] = (
        "low_confidence_dynamic"
    )
    confidence_threshold: float = 0.85

    def written(self, model: CachedModel, prompt: Tensor, new: int, draw: Generator) -> Tensor:
        """The prompt and whole blocks with at least `new` tokens, or up to the block in which the text ends, (1, n).

        Raises:
            BundleError: a number is out of its range, or the model leaves a place masked.
        """
        size, steps = self.block_length, self.denoising_steps
        if not 1 <= steps <= size or self.temperature <= 0 or self.top_k < 0:
            raise BundleError(
                f"block_length is {size}, denoising_steps {steps}, temperature {self.temperature} and top_k "
                f"{self.top_k}; steps are 1 to block_length, the temperature is above 0 (top_k=1 takes the most "
                "probable token), and top_k at least 0"
            )
        given = prompt.shape[1]
        text = torch.nn.functional.pad(prompt, (0, -(-(given + new) // size) * size - given), value=model.mask)
        for start in range(0, text.shape[1], size):
            block = text[:, start : start + size]
            if start + size > given:
                block = self._filled(model, block, start, draw)
                text = torch.cat([text[:, :start], block, text[:, start + size :]], 1)
            model.block_logits(block, start)  # what later blocks see
            if torch.isin(text[:, given : start + size], torch.tensor(model.stops, dtype=text.dtype)).any():
                return text[:, : start + size]
        return text

    def _filled(self, model: CachedModel, block: Tensor, start: int, draw: Generator) -> Tensor:
        """A block without masks, (1, size)."""
        base, over = divmod(self.block_length, self.denoising_steps)
        for step in range(self.denoising_steps):
            is_masked = block == model.mask
            if not is_masked.any():
                break
            shares = self._shares(model.block_logits(block, start)[0])
            drawn = torch.multinomial(shares, 1, generator=draw)
            certainty = torch.where(is_masked, shares.gather(-1, drawn).T, -torch.inf)
            count = base + (step < over)
            is_chosen = torch.zeros_like(is_masked)
            is_high = certainty > self.confidence_threshold
            if self.remasking_strategy == "sequential":
                first = int(is_masked[0].nonzero()[0, 0])
                is_chosen[0, first : first + count] = True
            elif self.remasking_strategy == "low_confidence_dynamic" and is_high.sum() >= count:
                is_chosen = is_high
            else:
                is_chosen[0, certainty[0].topk(count).indices] = True
            block = torch.where(is_chosen, drawn.T, block)
        if (block == model.mask).any():
            raise BundleError("the model writes its mask token, which the published code cannot go on from")
        return block

    def _shares(self, logits: Tensor) -> Tensor:
        """The probabilities of tokens, (size, vocabulary)."""
        logits = logits / self.temperature
        if self.top_k > 0:
            least = logits.topk(self.top_k).values[..., -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        if self.top_p < 1:
            logits = of_mass(logits, self.top_p, -torch.inf)
        return logits.softmax(-1)

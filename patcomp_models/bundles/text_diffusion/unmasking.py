"""The loops of hosts around a denoiser that fills in mask tokens.

Each loop draws its random numbers with PyTorch's functions in the order of the published code, so that the tokens are
those that this code writes after `torch.manual_seed(seed)`. Tensors are of the CPU; logits are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Generator, Tensor

from patcomp_models.errors import BundleError


class MaskedTextModel(Protocol):
    """A model that fills in mask tokens."""

    mask: int

    def logits(self, text: Tensor) -> Tensor:
        """Those that foresee the token of each place, (1, n, vocabulary), of a text, (1, n)."""


@dataclass(frozen=True)
class BlockLoop:
    """The loop of LLaDA (`generate` of github.com/ML-GSAI/LLaDA, Nie et al. 2025, arXiv:2502.09992).

    Attributes:
        steps: calls for all blocks; by default one for each new token.
        block_length: new tokens of a block; by default all.
        temperature: of the Gumbel noise; 0 takes the most probable tokens.
        cfg_scale: how much the logits depart from those without the prompt, which take a second call.
        remasking: which places stay masked: those of the lowest probability, or any.
    """

    steps: int | None = None
    block_length: int | None = None
    temperature: float = 0.0
    cfg_scale: float = 0.0
    remasking: Literal["low_confidence", "random"] = "low_confidence"

    def written(self, model: MaskedTextModel, prompt: Tensor, new: int, draw: Generator) -> Tensor:
        """The prompt and the new tokens, (1, n).

        Raises:
            BundleError: the new tokens are not whole blocks, or a block has fewer tokens than steps.
        """
        block = self.block_length or new
        blocks = new // block if 0 < block <= new else 0
        if blocks * block != new:
            raise BundleError(f"{new} new tokens are no whole number of blocks of {block}; choose another block_length")
        steps = self.steps or new
        if steps % blocks or not 0 < steps <= new:
            raise BundleError(
                f"steps is {steps}, and must be a multiple of {blocks}, the number of blocks, and at most {new}, the "
                "number of new tokens"
            )
        each = steps // blocks
        text = torch.nn.functional.pad(prompt, (0, new), value=model.mask)
        is_given = text != model.mask
        for start in range(prompt.shape[1], text.shape[1], block):
            for step in range(each):
                is_masked = text == model.mask
                logits = self._guided(model, text, is_given)
                found = self._noisy(logits, draw).argmax(-1)
                if self.remasking == "random":
                    certainty = torch.rand(found.shape, generator=draw)
                else:
                    certainty = logits.double().softmax(-1).gather(-1, found[..., None])[..., 0]
                certainty[:, start + block :] = -torch.inf
                certainty = torch.where(is_masked, certainty, -torch.inf)
                count = block // each + (step < block % each)
                chosen = certainty[0].topk(count).indices
                text[0, chosen] = torch.where(is_masked, found, text)[0, chosen]
        return text

    def _guided(self, model: MaskedTextModel, text: Tensor, is_given: Tensor) -> Tensor:
        logits = model.logits(text)
        if self.cfg_scale <= 0:
            return logits
        without = model.logits(torch.where(is_given, model.mask, text))
        return without + (self.cfg_scale + 1) * (logits - without)

    def _noisy(self, logits: Tensor, draw: Generator) -> Tensor:
        """Logits with Gumbel noise, in float64."""
        if self.temperature == 0:
            return logits
        wide = logits.double()
        noise = torch.rand(wide.shape, dtype=torch.float64, generator=draw)
        return wide.exp() / (-noise.log()) ** self.temperature


@dataclass(frozen=True)
class ScheduleLoop:
    """The loop of Dream (`diffusion_generate` of github.com/DreamLM/Dream, Ye et al. 2025, arXiv:2508.15487).

    Attributes:
        steps: calls of the denoiser.
        eps: the time at which the schedule ends; it begins at 1.
        alg: which masked places get tokens: any (`origin`), or the most certain by their probability
            (`maskgit_plus`), by its distance to the second (`topk_margin`), or by the entropy (`entropy`).
        alg_temp: above 0, the places are drawn by their certainty.
        temperature: of the tokens; 0 takes the most probable ones.
        top_p: draw from the most probable tokens, whose probabilities add up to it.
        top_k: draw from the most probable tokens, as many.
    """

    steps: int = 512
    eps: float = 1e-3
    alg: Literal["origin", "maskgit_plus", "topk_margin", "entropy"] = "origin"
    alg_temp: float | None = None
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None

    def written(self, model: MaskedTextModel, prompt: Tensor, new: int, draw: Generator) -> Tensor:
        """The prompt and the new tokens, (1, n).

        Raises:
            BundleError: a number is out of its range.
        """
        if self.steps < 1 or not 0 < self.eps < 1 or (self.top_k is not None and self.top_k < 1):
            raise BundleError(
                f"steps is {self.steps}, eps {self.eps} and top_k {self.top_k}; steps and top_k must be at least 1, "
                "and eps between 0 and 1"
            )
        text = torch.nn.functional.pad(prompt, (0, new), value=model.mask)
        times = torch.linspace(1, self.eps, self.steps + 1)
        for step in range(self.steps):
            is_masked = text == model.mask
            if not is_masked.any():
                break
            logits = model.logits(text)[is_masked]
            is_last = step == self.steps - 1
            share = torch.tensor(1.0) if is_last else 1 - times[step + 1] / times[step]
            if self.alg == "origin":
                chosen = torch.rand(len(logits), generator=draw) < share
                found = torch.full((len(logits),), model.mask)
                found[chosen] = self._drawn(logits[chosen], draw)[1]
                text[is_masked] = found
                continue
            certainty, found = self._drawn(logits, draw)
            waiting = is_masked.sum() / 1
            count = int(waiting * share)
            if count:
                text = self._placed(text, is_masked, certainty, found, count, draw)
        return text

    def _placed(
        self, text: Tensor, is_masked: Tensor, certainty: Tensor, found: Tensor, count: int, draw: Generator
    ) -> Tensor:
        """A text with `count` of the tokens that were found."""
        all_certainties = torch.full(text.shape, -torch.inf)
        all_certainties[is_masked] = certainty
        if self.alg_temp is None or self.alg_temp == 0:
            chosen = all_certainties[0].topk(count).indices
        else:
            shares = (all_certainties / self.alg_temp).softmax(-1)
            chosen = torch.multinomial(shares, count, generator=draw)[0]
        is_chosen = torch.zeros_like(is_masked)
        is_chosen[0, chosen] = True
        return torch.where(is_chosen, text.masked_scatter(is_masked, found), text)

    def _drawn(self, logits: Tensor, draw: Generator) -> tuple[Tensor, Tensor]:
        """Tokens by their logits, (m, vocabulary), and how certain each is, (m,)."""
        if self.temperature > 0:
            logits = logits / self.temperature
        if self.top_p is not None and self.top_p < 1:
            logits = of_mass(logits, self.top_p, torch.finfo(logits.dtype).min)
        if self.top_k is not None:
            least = logits.topk(min(self.top_k, logits.shape[-1])).values[..., -1:]
            logits = logits.masked_fill(logits < least, torch.finfo(logits.dtype).min)
        shares = logits.softmax(-1)
        certainty, found = shares.max(-1)
        if self.temperature > 0 and len(shares):
            # as torch.distributions.Categorical draws, which takes no generator
            found = torch.multinomial(shares / shares.sum(-1, keepdim=True), 1, True, generator=draw)[:, 0]
            certainty = shares.gather(-1, found[:, None])[:, 0]
        if self.alg == "topk_margin":
            best = shares.sort(-1, descending=True).values
            certainty = best[:, 0] - best[:, 1]
        if self.alg == "entropy":
            certainty = (shares * (shares + 1e-10).log()).sum(-1)
        return certainty, found


def of_mass(logits: Tensor, mass: float, hidden: float) -> Tensor:
    """Logits with `hidden` for the tokens behind the first ones whose probabilities add up to more than `mass`."""
    ordered, places = logits.sort(descending=True)
    is_left = ordered.softmax(-1).cumsum(-1) > mass
    is_left[..., 1:] = is_left[..., :-1].clone()
    is_left[..., 0] = False
    return logits.masked_fill(torch.zeros_like(is_left).scatter(-1, places, is_left), hidden)

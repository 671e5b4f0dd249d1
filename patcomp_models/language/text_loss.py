"""What a language model makes of a text: its loss, and the token that it finds most probable after each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

LENGTH = 512
"""The most tokens that are read in one call, from empty states."""
PARTS = 16
"""The most parts of a text that are read; they are spread over all of it."""
_Given = TypeVar("_Given")


def parts_of(tokens: Sequence[int], most: int) -> list[Sequence[int]]:
    """Parts of a text, at most `PARTS` of at most `most` tokens, spread over all of it."""
    return [tokens[start : start + most] for start in spread_parts(range(0, max(len(tokens) - most, 0) + 1, most))]


def spread_parts(given: Sequence[_Given]) -> Sequence[_Given]:
    """At most `PARTS` of them, spread over all."""
    return given[:: max(1, -(-len(given) // PARTS))]


def loss_of_tokens(logits: np.ndarray, tokens: Sequence[int]) -> float:
    """The mean of minus the logarithm of the probability of each token but the first, in nats.

    Args:
        logits: (tokens, vocabulary).
        tokens: the token ids.
    """
    return float(_losses(logits, tokens).mean())


def _losses(logits: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    scores = np.asarray(logits, np.float64)[:-1]
    largest = scores.max(axis=1)
    totals = largest + np.log(np.exp(scores - largest[:, None]).sum(axis=1))
    return np.asarray(totals - scores[np.arange(len(scores)), tokens[1:]])


@dataclass(frozen=True)
class Reading:
    """What a model makes of a text.

    Attributes:
        loss: the mean of minus the logarithm of the probability of each token, in nats.
        best: the most probable token at each place.
    """

    loss: float
    best: np.ndarray

    @classmethod
    def of(cls, logits: np.ndarray, tokens: Sequence[int], left_out: int = -1) -> Reading:
        """What logits say of the tokens that follow, but for those of one id.

        Args:
            logits: (tokens, vocabulary).
            tokens: the token ids.
            left_out: the id of tokens that are not told by those before them.
        """
        told = np.asarray(tokens[1:]) != left_out
        best = np.asarray(logits)[:-1].argmax(axis=1)
        return cls(float(_losses(logits, tokens)[told].mean()), best[told])

    @classmethod
    def joined(cls, readings: Sequence[Reading]) -> Reading:
        """The reading of several parts."""
        best = np.concatenate([each.best for each in readings])
        return cls(sum(each.loss * len(each.best) for each in readings) / len(best), best)

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf  # float64 ends there

    def agreement(self, other: Reading) -> float:
        """The share of places with the same most probable token."""
        return float((self.best == other.best).mean())

"""What a language model makes of a text: its loss, and the token that it finds most probable after each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from patcomp import AIProgram
from patcomp.interface.graphs import argument_types
from patcomp.ir.types import ML_DTYPES, HandleType, TensorType, element_name, shape_of
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import LOGITS, MAIN, PER_LAYER, POSITIONS, PREFILL, TOKENS

LENGTH = 512
"""The most tokens that are read in one call, from empty states."""
PARTS = 16
"""The most parts of a text that are read; they are spread over all of it."""

_ENTRYPOINTS = (MAIN, PREFILL)


@dataclass(frozen=True)
class Text:
    """Parts of a text, and the function of a program that reads them.

    Attributes:
        entrypoint: the function.
        parts: the token ids of each part.
    """

    entrypoint: str
    parts: Sequence[Sequence[int]]

    @classmethod
    def of(cls, program: AIProgram, tokens: Sequence[int], limit: int) -> Text:
        """Parts of a text that a program can read.

        Args:
            program: a language model with functions of open sizes, or with `prefill`.
            tokens: the token ids of the text.
            limit: the most tokens of the bundle.

        Raises:
            LanguageModelError: the text is too short, or no function of the program takes ids of several tokens.
        """
        for entrypoint in (name for name in _ENTRYPOINTS if name in program.entrypoints):
            type_ = argument_types(program.module.graph(entrypoint)).get(TOKENS)
            length = None if type_ is None else shape_of(type_)[1]
            if type_ is None or length == 1:
                continue
            if PER_LAYER in argument_types(program.module.graph(entrypoint)):
                raise LanguageModelError(
                    "a text is read by a function of tokens alone, and this one takes per-layer embeddings, too; "
                    "convert the model without embeddings='outside' (--embeddings outside)"
                )
            most = length or min(LENGTH, limit)
            if len(tokens) < (length or 2):
                raise LanguageModelError(f"the text has {len(tokens)} tokens, and it takes {length or 2} at least")
            return cls(entrypoint, parts_of(tokens, most))
        raise LanguageModelError(
            "a text is read by a function that takes the ids of several tokens, and this program has none; texts go "
            "with bundles for target='gpu' without vision"
        )

    def examples(self, program: AIProgram) -> list[dict[str, Any]]:
        """The inputs and empty states of the function for each part."""
        types = argument_types(program.module.graph(self.entrypoint))
        states = {name: type_ for name, type_ in types.items() if isinstance(type_, HandleType)}
        made = []
        for part in self.parts:
            example = {name: _empty(type_, len(part) + 1) for name, type_ in states.items()}
            example[TOKENS] = np.array([part], np.int32)
            example[POSITIONS] = np.arange(len(part), dtype=np.int32)[None]
            made.append(example)
        return made

    def read_by(self, program: AIProgram) -> Reading:
        """What a program makes of the text, on the evaluator."""
        lost, best = 0.0, []
        for part, example in zip(self.parts, self.examples(program), strict=True):
            outputs: Mapping[str, Any] = program.run(example, entrypoint=self.entrypoint)
            logits = np.asarray(outputs[LOGITS].float(), np.float64)[0]
            lost += loss_of_tokens(logits, part) * (len(part) - 1)
            best.append(logits[:-1].argmax(axis=1))
        found = np.concatenate(best)
        return Reading(lost / len(found), found)


def parts_of(tokens: Sequence[int], most: int) -> list[Sequence[int]]:
    """Parts of a text, at most `PARTS` of at most `most` tokens, spread over all of it."""
    starts = range(0, max(len(tokens) - most, 0) + 1, most)
    step = -(-len(starts) // PARTS)
    return [tokens[start : start + most] for start in starts[::step]]


def loss_of_tokens(logits: np.ndarray, tokens: Sequence[int]) -> float:
    """The mean of minus the logarithm of the probability of each token but the first, in nats.

    Args:
        logits: (tokens, vocabulary).
        tokens: the token ids.
    """
    scores = np.asarray(logits, np.float64)[:-1]
    largest = scores.max(axis=1)
    totals = largest + np.log(np.exp(scores - largest[:, None]).sum(axis=1))
    return float((totals - scores[np.arange(len(scores)), tokens[1:]]).mean())


@dataclass(frozen=True)
class Reading:
    """What a model makes of a text.

    Attributes:
        loss: the mean of minus the logarithm of the probability of each token, in nats.
        best: the most probable token at each place.
    """

    loss: float
    best: np.ndarray

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf  # float64 ends there

    def agreement(self, other: Reading) -> float:
        """The share of places with the same most probable token."""
        return float((self.best == other.best).mean())


def _empty(type_: HandleType, capacity: int) -> np.ndarray:
    """A state before the first token; one that grows has room for some tokens."""
    tensor = type_.tensor_type
    assert isinstance(tensor, TensorType)
    name = element_name(tensor.element_type)
    dtype = np.dtype("int8") if name == "si8" else ML_DTYPES.get(name) or np.dtype(f"float{name[1:]}")
    return np.zeros([capacity if size is None else size for size in shape_of(tensor)], dtype)

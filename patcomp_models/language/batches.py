"""Several texts in one call: a decoder whose caches have a row for each text, and generation with it.

The texts end together: shorter ones have any tokens in front (left padding), and `first_tokens` says where each begins.
A token of a text sees none in front of its first one, and counts its position from there. The tokens in front see each
other, so that nothing in the cache is NaN; no token of the text reads them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import masking_utils

from patcomp.evaluate.given import as_array
from patcomp.ir.pages import release
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.checking import Comparison
from patcomp_models.language.choices import CloseChoices
from patcomp_models.language.contract import CAPACITY, FIRST_TOKENS, LOGITS, MAIN, POSITIONS, TOKENS
from patcomp_models.language.decoder import Decoder, NewTokens
from patcomp_models.language.generation import AssetCall, grown, up_to_stop
from patcomp_models.language.memory import weight_memory
from patcomp_models.language.open_lengths import open_lengths
from patcomp_models.language.rotary import first_length

_MASKS = "create_causal_mask", "create_sliding_window_causal_mask"
"""The functions by which models of transformers make masks that left padding changes in a known way."""
_CHUNKED = "create_chunked_causal_mask"


class BatchDecoder(Decoder):
    """A causal language model for several texts.

        logits = decoder(input_ids, position_ids, first_tokens, *states)

    `input_ids` is (texts, q), `first_tokens` (texts), and each cache is (layers, texts, heads, capacity, head size).

    Args:
        model: as of `Decoder`.
        count: the number of texts.
        form: further arguments of `Decoder`.

    Raises:
        LanguageModelError: the model keeps something else than keys and values of all tokens, or its masks or
            positions are of a kind that left padding changes in another way.
    """

    further = (FIRST_TOKENS,)

    def __init__(self, model: Any, count: int, **form: Any):
        super().__init__(model, **form)
        modules = [vars(sys.modules[type(part).__module__]) for part in model.modules()]
        reasons = [
            "keeps windows of convolutions, recurrences, rings or indices, which read the tokens in front of a text"
            if any(plan.fixed or plan.window or plan.index or plan.keys is None for plan in self.states.layers) else "",
            "takes no position_ids" if not self.takes_positions else "",
            "makes its masks in code of its own" if not any(_MASKS[0] in each for each in modules) else "",
            f"makes masks by {_CHUNKED}" if any(_CHUNKED in each for each in modules) else "",
            "has another rotary embedding for long texts" if first_length(model) is not None else "",
        ]  # fmt: skip
        if found := [each for each in reasons if each]:
            raise LanguageModelError(
                f"batch= (--batch) takes models whose caches hold keys and values of all tokens; {type(model).__name__}"
                f" {found[0]}"
            )
        self.count = count
        self.states = replace(self.states, states=tuple(replace(each, texts=count) for each in self.states.states))

    def example(self, new: int) -> Tensor:
        return super().example(new).repeat(self.count, 1)

    def further_examples(self, new: int) -> tuple[Tensor, ...]:
        return (torch.zeros(self.count, dtype=torch.int64),)

    def further_shapes(self, new: dict[int, Any]) -> list[dict[int, Any]]:
        return [{}]

    def _logits(self, call: NewTokens) -> Tensor:
        first = call.further[0][:, None]
        queries, keys = call.places, torch.arange(call.total)[None]
        seen = (keys >= first)[:, None, None] | (queries < first)[:, None, :, None]
        causal = (keys <= queries[0][:, None])[None, None]
        forms = {name: partial(_masked, getattr(masking_utils, name), seen, causal) for name in _MASKS}
        places = (queries - first).clamp(min=0)
        with open_lengths(self.model, call.cache, {**self.rotary, **forms}):
            return self.called(replace(call, places=places), input_ids=call.new)


def _masked(own: Any, seen: Tensor, causal: Tensor, *arguments: Any, **options: Any) -> Tensor:
    """A mask of transformers in which tokens see none in front of their text.

    Args:
        own: makes the mask; None stands for the causal one.
        seen: (texts, 1, q, n), what left padding leaves.
        causal: (1, 1, q, n).
        arguments, options: of `own`.
    """
    made = own(*arguments, **options)
    made = causal if made is None else made
    if made.dtype == torch.bool:
        return made & seen  # type: ignore[no-any-return]
    return torch.where(seen, made, torch.finfo(made.dtype).min)


class BatchSession:
    """Several texts that a model has read, and its states.

    Args:
        call: runs a function.
        empty: the states before the first token, by name.
        first: where each text begins.
        limit: the most tokens.
    """

    def __init__(self, call: AssetCall, empty: Mapping[str, np.ndarray], first: Sequence[int], limit: int):
        self._call, self._first, self._limit = call, np.array(first, np.int32), limit
        self._done, self._capacity = 0, 0
        self._states: dict[str, Any] = dict(empty)

    def read(self, tokens: np.ndarray, function: str = MAIN) -> np.ndarray:
        """Read tokens, (texts, q), behind those before: their logits, (texts, q, vocabulary)."""
        self._done += tokens.shape[1]
        if self._capacity < self._done:
            while self._capacity < self._done:
                self._capacity = min(max(2 * self._capacity, CAPACITY), self._limit)
            self._states = {name: grown(state, self._capacity) for name, state in self._states.items()}
        inputs = {
            TOKENS: tokens.astype(np.int32), POSITIONS: np.arange(self._done, dtype=np.int32)[None],
            FIRST_TOKENS: self._first,
        }  # fmt: skip
        return np.asarray(self._call(function, inputs, self._states)[LOGITS], np.float32)


def padded(prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, list[int]]:
    """Texts that end together, (texts, tokens), and where each begins."""
    longest = max(map(len, prompts))
    first = [longest - len(prompt) for prompt in prompts]
    rows = [[0] * start + [*prompt] for start, prompt in zip(first, prompts, strict=True)]
    return np.array(rows, np.int32), first


def generate_together(
    call: AssetCall, empty: Mapping[str, np.ndarray], texts: Sequence[Sequence[int]], new_tokens: int, limit: int,
    stops: Sequence[int], count: int,
) -> list[list[int]]:  # fmt: skip
    """The most probable next tokens of each text, up to one of `stops`.

    Args:
        call: runs a function.
        empty: the states before the first token, by name.
        texts: any number; the last of them fills what is left of a call.
        new_tokens: how many to generate at most.
        limit: the most tokens of a text.
        stops: the tokens that end a text.
        count: how many texts a call takes.

    Raises:
        LanguageModelError: a text is empty or too long.
    """
    longest = max(map(len, texts), default=0)
    if not all(texts) or longest + new_tokens > limit:
        raise LanguageModelError(
            f"prompts of up to {longest} tokens and {new_tokens} new ones; the bundle takes 1 to {limit} in all"
        )
    found: list[list[int]] = []
    for start in range(0, len(texts), count):
        part = texts[start : start + count]
        waiting, first = padded([*part, *[part[-1]] * (count - len(part))])
        session = BatchSession(call, empty, first, limit)
        made = np.zeros((count, 0), np.int32)
        while made.shape[1] < new_tokens and not all(set(row) & {*stops} for row in made.tolist()):
            waiting = session.read(waiting)[:, -1].argmax(-1)[:, None].astype(np.int32)
            made = np.concatenate([made, waiting], 1)
        found += [up_to_stop(row, new_tokens, stops) for row in made[: len(part)].tolist()]
    return found


class BatchComparison(Comparison):
    """A decoder of several texts of different lengths, beside the model on each text alone."""

    @cached_property
    def _texts(self) -> list[list[int]]:
        assert isinstance(self.decoder, BatchDecoder)
        length = len(self.tokens)
        turned = [self.tokens[each % length :] + self.tokens[: each % length] for each in range(self.decoder.count)]
        return [text[: length - 2 * each % (length - 1)] for each, text in enumerate(turned)]

    @cached_property
    def expected(self) -> tuple[Tensor, Tensor]:
        model: Any = self.decoder.model
        logits, close = [], []
        for text in self._texts:
            with torch.no_grad(), CloseChoices(len(text), self.dtype) as choices:
                logits.append(model(input_ids=torch.tensor([text]), use_cache=False).logits[0].float())
            close.append(choices.is_close)
        release(weight_memory(model))
        return torch.cat(logits), torch.cat(close)

    def made(self, call: AssetCall) -> Tensor:
        tokens, first = padded(self._texts)
        empty = {state.name: as_array(state.zeros(0)) for state in self.decoder.states.states}
        session = BatchSession(call, empty, first, self.limit)
        logits = np.concatenate([session.read(tokens[:, start:end], name) for name, start, end in self.calls], 1)
        return torch.from_numpy(np.concatenate([row[start:] for row, start in zip(logits, first, strict=True)]))

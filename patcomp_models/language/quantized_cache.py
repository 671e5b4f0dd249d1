"""Caches of int8: the scales of keys and values, measured on a text, and what the rounding does to the loss.

The states of keys and values hold whole numbers; a layer's keys have one scale, and so have its values. Apple's
coreai-models writes such states since its pull request 218 (https://github.com/apple/coreai-models/pull/218).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from patcomp.emit.asset import as_array
from patcomp.evaluate.element_types import to_tensor
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.checking import TOLERANCE, Comparison, largest_of
from patcomp_models.language.contract import HIDDEN, LOGITS, POSITIONS, TOKENS
from patcomp_models.language.decoder import Decoder
from patcomp_models.language.states import cached_layers, kept_beside
from patcomp_models.language.text_loss import LENGTH, loss_of_tokens, parts_of

Scales = list[tuple[float, float] | None]
"""For each layer, what a step of its keys and of its values means; None for a layer without keys and values."""

_LEAST = 0.01
"""The largest magnitude of keys or values is taken as so much at least: float16 holds the scale and its inverse."""
_MOST_RISE = 0.5
"""How many nats the loss may rise."""


def cache_scales(model: Any, tokens: Sequence[int], context: int) -> tuple[Scales, list[int]]:
    """The scales of the caches of a model, and the part of the text that they were not measured on.

    Args:
        model: of transformers.
        tokens: the token ids of a text. Its last part is left out; the largest keys and values of the others are 127.
        context: the most tokens of the bundle.

    Raises:
        LanguageModelError: the text is too short, or the model keeps no keys and values, or further ones of an index.
    """
    if len(tokens) < 4:
        raise LanguageModelError(f"the text of calibrate= has {len(tokens)} tokens, and int8 caches take 4 at least")
    parts = parts_of(tokens, min(LENGTH, context, len(tokens) // 2))
    largest: dict[int, list[float]] = {}
    count = 0
    for part in parts[:-1]:
        layers = cached_layers(model, input_ids=torch.tensor([part]))
        count = len(layers)
        for number, layer in enumerate(layers):
            if kept_beside(layer):
                raise LanguageModelError(
                    f"{type(model).__name__} keeps keys of an index in its cache, which have no form of int8 here; "
                    "leave cache= (--cache) out"
                )
            keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
            if keys is None or values is None or not keys.numel():
                continue
            before = largest.get(number, [_LEAST, _LEAST])
            largest[number] = [
                max(old, float(new.abs().max())) for old, new in zip(before, (keys, values), strict=True)
            ]
    if not largest:
        raise LanguageModelError(
            f"{type(model).__name__} keeps no keys and values, so it has no caches of int8; leave cache= (--cache) out"
        )
    found = [largest.get(number) for number in range(count)]
    return [None if each is None else (each[0] / 127, each[1] / 127) for each in found], list(parts[-1])


def note_on_loss(decoder: Decoder, part: Sequence[int]) -> str:
    """What int8 caches do to the loss of a model on a part of a text, as a note.

    Args:
        decoder: with int8 caches.
        part: tokens that the scales were not measured on.

    Raises:
        LanguageModelError: the loss rises too much.
    """
    tokens = torch.tensor([part])
    states = decoder.states.zeros(len(part) + 1)
    with torch.no_grad():
        made = decoder(tokens, torch.arange(len(part))[None], *states)
        own = decoder.model(input_ids=tokens, use_cache=False).logits
    before, after = (loss_of_tokens(as_array((each[0] if isinstance(each, tuple) else each)[0].float()), part)
                     for each in (own, made))  # fmt: skip
    said = f"int8 caches change the loss on {len(part) - 1} tokens of calibrate= from {before:.4g} to {after:.4g} nats"
    if not after - before <= _MOST_RISE:
        raise LanguageModelError(
            f"{said}, which is a rise of more than {_MOST_RISE}; leave cache= (--cache) out, or give calibrate= a "
            "longer text that is like what the model will read"
        )
    return said


class QuantizedCacheComparison(Comparison):
    """Functions with int8 caches beside the same calls in eager PyTorch: a call of the model without a cache rounds
    nothing. A number that is halfway between two steps may be rounded either way, so the program may be as far from
    eager's int8 caches as these are from the model."""

    @cached_property
    def tolerance(self) -> float:  # type: ignore[override]
        with torch.no_grad():
            own = self.decoder.model(input_ids=torch.tensor([self.tokens]), use_cache=False).logits[0].float()
        step = float((self.wanted - own).abs().max()) / largest_of(self.wanted, self.dtype)
        return max(TOLERANCE[self.dtype], step)

    @cached_property
    def expected(self) -> tuple[Tensor, Tensor]:
        def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
            held = {each: to_tensor(state).clone() for each, state in states.items()}
            tokens, positions = (torch.from_numpy(inputs[each]).long() for each in (TOKENS, POSITIONS))
            with torch.no_grad():
                made = self.decoder(tokens, positions, *held.values())
            states.update((each, as_array(state)) for each, state in held.items())
            logits, hidden = made if isinstance(made, tuple) else (made, None)
            outputs = {LOGITS: as_array(logits.float())}
            return outputs if hidden is None else {**outputs, HIDDEN: as_array(hidden)}

        logits = self.made(call)
        return logits, torch.zeros(len(logits), dtype=torch.bool)

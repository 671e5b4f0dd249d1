"""A causal language model of transformers as the runtime of Apple's Swift package calls it.

    logits = decoder(input_ids, position_ids, *states)

`input_ids` are the q new tokens, `position_ids` the positions of all n tokens, those of earlier calls too, so that the
offset n - q is a difference of sizes. A model whose layers all keep a window reads the offset in the positions instead,
so that a caller may give those of the new tokens alone. The states are those of `states_of`; the call writes to them.
The keys and values of all layers are one tensor each, of the shape (layers, 1, key/value heads, capacity, head size).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.cache_utils import DummyLayer

from patcomp_models.checkpoints.loading import attention_of
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import TOKENS
from patcomp_models.language.conventions import convention_of, first_position
from patcomp_models.language.layers import (
    FixedLayer,
    FixedStackedLayer,
    IndexedLayer,
    Ring,
    RingLayer,
    StackedCacheLayer,
)
from patcomp_models.language.open_lengths import open_lengths
from patcomp_models.language.rotary import rotary_forms
from patcomp_models.language.states import LayerStates, States, states_of


@dataclass(frozen=True)
class NewTokens:
    """What a decoder is called with, for the model."""

    new: Tensor
    """The first input: the new tokens, (1, q), or their embeddings."""
    places: Tensor
    """The positions of the new tokens, (1, q)."""
    further: tuple[Tensor, ...]
    """The further inputs."""
    offset: Any
    """The number of tokens of earlier calls."""
    total: Any
    """The number of all tokens."""
    cache: Any
    given: dict[str, Tensor]
    """The states by name."""


class Decoder(nn.Module):
    """A causal language model with its cache as arguments.

    Args:
        model: an `AutoModelForCausalLM`.
        hidden: whether a call also returns what the head takes.
        dtype: of the cache and of most weights; by default that of the first weight.
        context, scales: as for `states_of`.

    Raises:
        LanguageModelError: as `states_of`; or the hidden state is asked for, and the model has no head.
    """

    takes = TOKENS
    """The name of the first input."""
    further: tuple[str, ...] = ()
    """The names of further inputs, (1, q, width) each, which come behind the positions."""

    def __init__(
        self, model: Any, *, hidden: bool = False, dtype: torch.dtype | None = None, context: int | None = None,
        scales: Sequence[tuple[float, float] | None] | None = None,
    ):  # fmt: skip
        super().__init__()
        self.model: Any = model
        self.dtype: torch.dtype = dtype or model.dtype
        self.states: States = states_of(model, self.dtype, context, scales, self.first_inputs())
        self.hidden = hidden
        if hidden and model.get_output_embeddings() is None:
            raise LanguageModelError(f"{type(model).__name__} has no head whose input could be the output `hidden`")
        self._convention = convention_of(model)
        self.rotary = rotary_forms(model)
        takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self.takes_positions = takes_positions and first_position(model) == 0
        self.is_written_out = attention_of(model) == "eager"
        """Whether products of queries and keys are exported as such."""

    def first_inputs(self) -> dict[str, Tensor] | None:
        """The arguments of a first call of the model, if it cannot be called with tokens."""
        return None

    def example(self, new: int) -> Tensor:
        """A first input for some new tokens."""
        return torch.arange(new)[None] % self.model.config.vocab_size

    def further_examples(self, new: int) -> tuple[Tensor, ...]:
        """Further inputs for some new tokens."""
        return ()

    def further_shapes(self, new: dict[int, Any]) -> list[dict[int, Any]]:
        """The open sizes of the further inputs.

        Args:
            new: those of an input with a row for each new token.
        """
        return [new] * len(self.further)

    def fed(self, tokens: np.ndarray) -> dict[str, Any]:
        """What a caller gives beside tokens, (1, q), and their positions, by name."""
        return {}

    def forward(self, input_ids: Tensor, position_ids: Tensor, *others: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The logits of the new tokens, and the hidden states that the head takes, if they are asked for.

        Args:
            input_ids: (1, q), the new tokens.
            position_ids: (1, n), the positions of all tokens; where each layer has a window, those of the new tokens
                are enough.
            others: the further inputs, and the states in the order of `self.states`; the call writes to the states.

        Returns:
            (1, q, vocabulary); float16 if the model computes in half precision. The hidden states are (1, q, width)
            of the model's type.

        Raises:
            LanguageModelError: a layer leaves a state as it was, or keeps something of another shape.
        """
        further, states = others[: len(self.further)], others[len(self.further) :]
        new, total = input_ids.shape[1], position_ids.shape[1]
        offset: Any = total - new
        torch._check(offset >= 0)
        places = position_ids.narrow(1, offset, new)
        if self.states.has_windows_only:
            offset = places[0, 0]
            total = offset + new
        for state, tensor in zip(self.states.states, states, strict=True):
            if state.grows:
                torch._check(total <= tensor.shape[3])
        given = dict(zip(self.states.names, states, strict=True))
        windows = sorted({plan.window for plan in self.states.layers if plan.window})
        rings = {window: Ring.of(window, offset, new) for window in windows}
        layers = [self._layer(plan, given, offset, total, rings) for plan in self.states.layers]
        for layer in layers:
            layer.is_copied = self.is_written_out
        cache = self._convention.cache(layers)
        with open_lengths(self.model, cache, self.rotary), self._watched() as seen:
            logits = self._logits(NewTokens(input_ids, places, further, offset, total, cache, given))
        for number, layer in enumerate(layers):
            if isinstance(layer, StackedCacheLayer) and not layer.is_written:
                raise LanguageModelError(
                    f"{type(self.model).__name__} puts no keys and values of layer {number} into its cache, though it "
                    "did in a first call, so they cannot be states of a bundle"
                )
        self._write_fixed(given, layers)
        # some models compute the last product in float32, and the engines take float16
        logits = logits.half() if self.dtype in (torch.float16, torch.bfloat16) else logits
        return (logits, seen[-1].to(self.dtype)) if self.hidden else logits

    def _logits(self, call: NewTokens) -> Tensor:
        """The model's own logits of new tokens, with a cache over the given states."""
        return self.called(call, input_ids=call.new)

    def called(self, call: NewTokens, **arguments: Any) -> Tensor:
        """The logits of a call of the model that continues the calls before."""
        arguments |= self._convention.arguments(call.cache)
        if self.takes_positions:
            arguments["position_ids"] = call.places
        result = self.model(**arguments)
        self._convention.take(result, call.cache)
        logits: Tensor = result.logits
        return logits

    @contextmanager
    def _watched(self) -> Iterator[list[Tensor]]:
        """Keep what the head takes."""
        seen: list[Tensor] = []
        if not self.hidden:
            yield seen
            return
        watch = self.model.get_output_embeddings().register_forward_pre_hook(
            lambda head, arguments: seen.append(arguments[0])
        )
        try:
            yield seen
        finally:
            watch.remove()

    def _layer(
        self, plan: LayerStates, given: dict[str, Tensor], offset: Any, total: Any, rings: dict[int, Ring]
    ) -> Any:
        """A layer of the cache over its rows of the states."""
        fixed = {at: given[place.state][place.row].clone() for at, place in plan.fixed.items()}
        if plan.keys is None or plan.values is None:
            return FixedLayer(fixed, plan.count) if plan.count else DummyLayer()
        stacked = given[plan.keys.state], given[plan.values.state], plan.keys.row, offset, total
        widths = plan.keys.width, plan.values.width
        if plan.index:
            kept = {name: (given[place.state], place.row) for name, place in plan.index.items()}
            return IndexedLayer(kept, plan.axes, *stacked, widths)
        if plan.window:
            return RingLayer(rings[plan.window], *stacked, widths)
        return FixedStackedLayer(fixed, plan.count, *stacked, widths, plan.scales) if plan.count else (
            StackedCacheLayer(*stacked, widths, plan.scales)
        )  # fmt: skip

    def _write_fixed(self, given: dict[str, Tensor], layers: list[Any]) -> None:
        """Write each fixed state once, with what the layers leave in their rows."""
        rows: dict[str, dict[int, Tensor]] = {}
        for plan, layer in zip(self.states.layers, layers, strict=True):
            for at, place in plan.fixed.items():
                rows.setdefault(place.state, {})[place.row] = layer.held(*at)
        for name, held in rows.items():
            given[name].copy_(torch.stack([held[row] for row in sorted(held)]))

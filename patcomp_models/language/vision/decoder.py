"""The other two functions of a vision-language bundle: the table of embeddings, and the decoder of embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import EMBEDDED, KEY_CACHE, VALUE_CACHE
from patcomp_models.language.conventions import CACHE
from patcomp_models.language.decoder import Decoder, NewTokens
from patcomp_models.language.multi_token import HeadDecoder
from patcomp_models.language.states import States
from patcomp_models.language.vision.marks import Marks, as_digits, from_digits, skipped_before
from patcomp_models.language.vision.tower import LanguageCall, Tower


class EmbeddingTable(nn.Module):
    """From tokens, (1, q), to embeddings, (1, q, width): what rides behind them of text, then zeros."""

    def __init__(self, tower: Tower):
        super().__init__()
        self.tower = tower

    def forward(self, input_ids: Tensor) -> Tensor:
        tower = self.tower
        made = torch.cat(tower.embedded(input_ids), -1).to(tower.carried)
        return nn.functional.pad(made, (0, tower.hidden + tower.extra - made.shape[-1]))


class EmbeddingDecoder(Decoder):
    """The language model of a vision-language model, with its cache as arguments.

        logits = decoder(inputs_embeds, position_ids, *states)

    `inputs_embeds` are the rows of an `EmbeddingTable`, those of image tokens replaced by the features of a `Tower`. If
    an image takes fewer positions than tokens, the caches have one row more, which counts for each token how many
    positions less than tokens the images up to it have.
    """

    takes = EMBEDDED

    def __init__(self, tower: Tower, *, hidden: bool = False):
        super().__init__(tower.language, hidden=hidden)
        self.tower, self.states = tower, _counting(self.states, tower)

    def example(self, new: int) -> Tensor:
        return _example(self.tower, new)

    def _logits(self, call: NewTokens) -> Tensor:
        kind = self.model.dtype
        arguments, stacked = _read(self.tower, call, kind)
        with _stacked([each.to(kind) for each in stacked], self.tower), self.tower.adapted():
            return self.model(**arguments, **{CACHE: call.cache}, use_cache=True).logits


class EmbeddedHead(HeadDecoder):
    """The head of a vision-language model that foresees tokens, with its cache as arguments.

        logits, hidden = decoder(inputs_embeds, position_ids, hidden, *states)

    Positions and the further row of the caches are as of `EmbeddingDecoder`.

    Args:
        head: from `load_head`.
        tower: of the model.
    """

    takes = EMBEDDED

    def __init__(self, head: Any, tower: Tower):
        super().__init__(head, tower.model.dtype)
        self.tower, self.states = tower, _counting(self.states, tower)

    def example(self, new: int) -> Tensor:
        return _example(self.tower, new)

    def _logits(self, call: NewTokens) -> Tensor:
        arguments, _ = _read(self.tower, call, self.dtype)
        arguments["inputs_embeds"] = self.joined(arguments["inputs_embeds"], *call.further)
        logits: Tensor = self.model(**arguments, **{CACHE: call.cache}, use_cache=True).logits
        return logits


def _counting(states: States, tower: Tower) -> States:
    """States with a further row in the caches, if it counts positions."""
    if not tower.has_saved_positions:
        return states
    if any(layer.axes for layer in states.layers):
        raise LanguageModelError(
            f"{type(tower.model).__name__} keeps positions for an index, and a bundle knows those of a text alone, "
            "where an image takes fewer positions than tokens"
        )
    made = (
        replace(state, rows=state.rows + 1) if state.name in (KEY_CACHE, VALUE_CACHE) else state
        for state in states.states
    )
    return replace(states, states=tuple(made))


def _example(tower: Tower, new: int) -> Tensor:
    return torch.zeros(1, new, tower.hidden + tower.extra, dtype=tower.carried)


def _read(tower: Tower, call: NewTokens, kind: torch.dtype) -> tuple[dict[str, Any], list[Tensor]]:
    """The arguments of the model for rows of embeddings, and the features that ride behind them."""
    sizes = [tower.hidden, tower.by_token] + [tower.hidden] * tower.stacked + [tower.mark_columns] * tower.is_marked
    embeddings, by_token, *stacked = call.new.split(sizes, -1)
    marks = Marks.of(stacked.pop()) if tower.is_marked else None
    before = None
    if tower.has_saved_positions:
        assert marks is not None
        before = _counted(tower.counted(marks), call.given[KEY_CACHE], call.offset, call.total)
    embeddings = embeddings.to(kind)
    read = by_token.to(kind) if tower.by_token else None
    arguments = tower.arguments(LanguageCall(embeddings, call.places, call.offset, call.cache, marks, before, read))
    return {**arguments, "inputs_embeds": embeddings}, stacked


def _counted(skipped: Tensor, keys: Tensor, offset: Any, total: Any) -> Tensor:
    """How many positions less than tokens the images before each new token have; the last row of the keys counts them,
    in the first two elements of a token."""
    row = keys.narrow(0, keys.shape[0] - 1, 1)
    before, after = skipped_before(skipped, from_digits(row.narrow(3, 0, total)[0, 0, 0, :, :2]), offset)
    place = row.narrow(3, offset, skipped.shape[1])
    digits = nn.functional.pad(as_digits(after[0]), (0, row.shape[4] - 2))
    place.copy_(digits[None, None, None].expand(place.shape).to(row.dtype))
    return before


@contextmanager
def _stacked(features: list[Tensor], tower: Tower) -> Iterator[None]:
    """The language model adds features to the inputs of some layers, while it is called.

    The model's own function picks the tokens of images, of which there is an unknown number. Here the features of text
    are zeros.
    """
    inner = tower.model.get_decoder()
    with ExitStack() as hooks:
        for place, added in zip(tower.stacked_before, features, strict=True):
            hooks.enter_context(_added([*inner.layers, inner.norm][place], added))
        yield


@contextmanager
def _added(module: nn.Module, features: Tensor) -> Iterator[None]:
    """Features are added to the first argument of a module for a while."""
    handle = module.register_forward_pre_hook(lambda _, given: (given[0] + features, *given[1:]))
    try:
        yield
    finally:
        handle.remove()

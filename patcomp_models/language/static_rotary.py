"""Rotary embeddings of the Neural Engine's form: tables of all positions, in place of the model's own modules."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from patcomp_models.errors import LanguageModelError


class RotaryTables(nn.Module):
    """The composite `rope_cached_cos_sin_gather`: the model's own rotary embedding of each position, computed once.
    Angles do not fit half precision."""

    def __init__(self, rotary: nn.Module, context: int, dtype: torch.dtype, options: Mapping[str, str]):
        super().__init__()
        with torch.no_grad():
            cosines, sines = rotary(torch.zeros(1), torch.arange(context)[None], **options)
        if cosines.shape[:2] != (1, context):
            raise LanguageModelError(
                f"{type(rotary).__name__} gives {list(cosines.shape)} for {context} positions, and the Neural Engine's "
                "form has a row of a table for each"
            )
        self.cosines, self.sines = nn.Buffer(cosines[0].to(dtype)), nn.Buffer(sines[0].to(dtype))

    def forward(self, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.cosines[position_ids], self.sines[position_ids]


_ONE = "all_layers"


class _Rotary(nn.Module):
    """The module that the model calls for its rotary embedding, which may have a kind for each type of layers."""

    def __init__(self, rotary: Any, context: int, dtype: torch.dtype):
        super().__init__()
        self.config = getattr(rotary, "config", None)  # some models read it
        kinds = getattr(rotary, "layer_types", None)
        options = {_ONE: {}} if kinds is None else {kind: {"layer_type": kind} for kind in sorted(kinds)}
        self.tables = nn.ModuleDict({
            kind: RotaryTables(rotary, context, dtype, given) for kind, given in options.items()
        })  # fmt: skip

    def forward(self, hidden: Tensor, position_ids: Tensor, layer_type: str = _ONE) -> tuple[Tensor, Tensor]:
        # Qwen3.5 gives positions for time, height and width, which are the same for a text
        places = position_ids if position_ids.ndim == 2 else position_ids[0]
        made: tuple[Tensor, Tensor] = self.tables[layer_type](places)
        return made


@contextmanager
def rotary_tables(model: nn.Module, context: int, dtype: torch.dtype) -> Iterator[None]:
    """The model with tables in place of its rotary embeddings, which come back; a model may have none.

    Raises:
        LanguageModelError: an embedding gives something else than a row for each position.
    """
    places = [
        (parent, name, part)
        for parent in model.modules()
        for name, part in parent.named_children()
        if type(part).__name__.endswith("RotaryEmbedding")
        and "position_ids" in inspect.signature(part.forward).parameters
    ]
    tables = [_Rotary(part, context, dtype) for _, _, part in places]
    for (parent, name, _), table in zip(places, tables, strict=True):
        setattr(parent, name, table)
    try:
        yield
    finally:
        for parent, name, part in places:
            setattr(parent, name, part)

"""Replace functions of transformers for a fixed number of tokens by functions for any number, while a model is
called."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

from torch import nn

from patcomp_models.language import compressed, experts
from patcomp_models.language.conventions import AskedCache
from patcomp_models.language.masks import ATTENTION, gpt, gpt_neo
from patcomp_models.language.recurrences import (
    delta_rule,
    griffin,
    lightning,
    linear_recurrence,
    mamba,
    mamba2,
    matrix_memory,
    rwkv7,
    wkv,
)
from patcomp_models.language.rotary import rotary_forms
from patcomp_models.language.sparse import chosen_blocks, chosen_tokens, indexers_of

_FORMS: ContextVar[Mapping[str, Callable[..., Any]]] = ContextVar("forms of recurrences")
"""The functions that take the place of transformers' in this thread, by name: `function` or `Class.method`."""
_LOCK = threading.Lock()
_PLACES: Counter[tuple[Any, str]] = Counter()
"""How many calls use the functions of `_chosen` in a module, by module and name."""


@contextmanager
def open_lengths(
    model: nn.Module, cache: AskedCache | None = None, further: Mapping[str, Callable[..., Any]] | None = None
) -> Iterator[None]:
    """Exchange the functions of recurrences, and of rotary embeddings that write to the model, in the Python modules of
    the model's parts.

        with open_lengths(model):
            exported = torch.export.export(model, (tokens,), dynamic_shapes=shapes)

    The program then has a composite for each recurrence, also of a fixed number of tokens, where transformers' own code
    is unrolled; the model is not changed. Only this thread sees the exchange: for other threads, the functions in the
    modules call transformers' own.

    Args:
        model: of transformers.
        cache: that the model is called with; None for a model that is called without, from its first token on.
        further: functions by name, before all others; by default what `rotary_forms` makes of the model, which must not
            be called inside of a trace.
    """
    turns = iter(() if cache is None else cache.layers)  # of layers that do not know their number
    forms: dict[str, Callable[..., Any]] = {
        "torch_chunk_gated_delta_rule": delta_rule,
        "chunk_kimi_delta_attention": delta_rule,
        "mamba2_chunk_scan": mamba2,
        "mamba_selective_scan": partial(mamba, lambda: None if cache is None else cache.asked()),
        "rwkv_linear_attention": wkv,
        "rwkv7_recurrence": rwkv7,
        "MiniMaxLightningAttention.forward": lightning,
        **dict.fromkeys(indexers_of(model), chosen_tokens),
        "Qwen4ExpTextQSAIndexer.forward": chosen_blocks,
        "DeepseekV4HCACompressor.forward": compressed.heavily,
        "DeepseekV4CSACompressor.forward": compressed.sparsely,
        "DeepseekV4Indexer.forward": compressed.chosen_entries,
        f"GPTNeoSelfAttention.{ATTENTION}": gpt_neo,
        f"Attention.{ATTENTION}": partial(gpt, turns),
        "RecurrentGemmaRecurrentBlock.forward": partial(griffin, turns),
        "RecurrentGemmaRglru._rnn_scan": linear_recurrence,
        "xLSTMBackend.forward": matrix_memory,
        "_has_cached_cross_attention_states": lambda cache, layer: False,  # no image is in a text
        "DbrxExperts.forward": experts.dbrx,
        "LongcatFlashExperts.forward": experts.longcat_flash,
        **(rotary_forms(model) if further is None else further),
    }
    modules = {sys.modules[each.__module__] for part in model.modules() for each in type(part).__mro__}
    places = [(module, name) for module in modules for name in forms if _has(module, name)]
    with _LOCK:
        for module, name in places:
            if not _PLACES[module, name]:
                owner, own = _owner(module, name)
                setattr(owner, own.__name__, _chosen(name, own))
            _PLACES[module, name] += 1
    token = _FORMS.set(forms)
    try:
        yield
    finally:
        _FORMS.reset(token)
        with _LOCK:
            for module, name in places:
                _PLACES[module, name] -= 1
                if not _PLACES[module, name]:
                    owner, chosen = _owner(module, name)
                    setattr(owner, chosen.__name__, chosen.__wrapped__)


def _has(module: Any, name: str) -> bool:
    """Whether a module has a function, or a class of its own with the function."""
    holder, _, method = name.rpartition(".")
    return method in vars(getattr(module, holder, None) or object) if holder else hasattr(module, name)


def _owner(module: Any, name: str) -> tuple[Any, Any]:
    """A module or class, and the function of a name in it."""
    holder, _, method = name.rpartition(".")
    owner = getattr(module, holder) if holder else module
    return owner, vars(owner)[method]


def _chosen(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls the form of this thread, or transformers' own."""

    @wraps(own)
    def function(*arguments: Any, **options: Any) -> Any:
        return _FORMS.get({}).get(name, own)(*arguments, **options)

    function.__wrapped__ = own  # type: ignore[attr-defined]
    return function

"""Rotary embeddings whose frequencies change with the number of tokens: longrope and dynamic NTK.

transformers writes the frequencies of a call into a buffer of the model. Here they are a function of the positions, so
that a program has no state for them.

*longrope* (Phi-3.5, Phi-4, MiniCPM3) has two sets of frequencies: one up to the length of the first training, and one
for all tokens of a longer text. Keys in a cache are of the set of their call, so a text that becomes longer than the
first length is read again from its start, as `generate` of Phi-3 in transformers does.

*Dynamic NTK* has other frequencies for each length behind `max_position_embeddings`, and one set up to there. A bundle
takes no more tokens than that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from patcomp.language.errors import LanguageModelError

LONGROPE = "longrope"


@dataclass(frozen=True)
class _Frequencies:
    """Of a rotary embedding, or of its layers of one type."""

    buffer: str
    """The name of the buffer with those of a call."""
    own: Tensor
    """(width / 2,) of float32, up to the first length."""
    longer: Tensor | None
    """The same for longer texts; None for dynamic NTK, which has none up to the most tokens of a bundle."""
    first_length: int

    def of(self, positions: Tensor) -> Tensor:
        """Those of a call whose new tokens have the positions."""
        if self.longer is None:
            return self.own
        return torch.where(positions.max() + 1 > self.first_length, self.longer, self.own)


def first_length(model: nn.Module) -> int | None:
    """The most tokens that a model reads with its first set of frequencies; None if it has one set for all lengths."""
    lengths = [found.first_length for _, _, found in _changing(model) if found.longer is not None]
    return min(lengths, default=None)


def check_one_set(model: nn.Module, context: int, what: str) -> None:
    """Check that a bundle needs one set of frequencies only.

    Args:
        model: of transformers.
        context: the most tokens of the bundle.
        what: it is that needs one set, in an error's words.

    Raises:
        LanguageModelError: it needs two.
    """
    length = first_length(model)
    if length is not None and context > length:
        raise LanguageModelError(
            f"the rotary embedding of {type(model).__name__} ({LONGROPE}) takes other factors behind {length} tokens, "
            f"and a longer text is then read again from its start, which goes with no {what}; pass "
            f"max_context={length} (--max-context) or less"
        )


def note_on_engines(model: nn.Module, context: int) -> str:
    """What Apple's engines do wrong with a bundle of two sets of frequencies; empty if it needs one."""
    length = first_length(model)
    if length is None or context <= length:
        return ""
    return (
        f"the rotary embedding ({LONGROPE}) takes other factors behind {length} tokens, where Bundle.generate reads "
        f"the text again from its start; Apple's engines go on with keys of the first factors, so pass "
        f"max_context={length} (--max-context) for them"
    )


def rotary_forms(model: nn.Module) -> dict[str, Callable[..., Any]]:
    """The functions that take the place of those of transformers, by name, `Class.forward`.

    It is called before a model is traced, so that the frequencies are constants of the program.
    """
    found: dict[str, _Frequencies] = {}
    names: set[str] = set()
    for part, layers, frequencies in _changing(model):
        found[_settings(part, layers)] = frequencies
        owner = next(each for each in type(part).__mro__ if "forward" in vars(each))
        names.add(f"{owner.__name__}.forward")

    def forward(self: Any, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        """Cosines and sines, (1, q, width)."""
        own = inspect.unwrap(type(self).forward)  # without the function that writes the buffer
        options = {} if layer_type is None else {"layer_type": layer_type}
        if not _changes(_kind(self, layer_type)):
            return own(self, x, position_ids, **options)
        frequencies = found[_settings(self, layer_type)]
        if type(self).__name__ == "PhimoeRotaryEmbedding":
            return _with_two_scales(self, x, position_ids, frequencies)
        return own(With(self, frequencies.buffer, frequencies.of(position_ids)), x, position_ids, **options)

    return dict.fromkeys(names, forward)


def _with_two_scales(part: Any, x: Tensor, positions: Tensor, frequencies: _Frequencies) -> tuple[Tensor, Tensor]:
    """The forward of Phi-3.5-MoE, which decides in Python: longer texts have another scale, and the same frequencies.

    Returns:
        Cosines and sines, (1, q, width), with the element type of x.
    """
    settings = part.config.rope_parameters
    is_longer = positions.max() + 1 > frequencies.first_length
    scale = torch.where(is_longer, float(settings["long_mscale"]), float(settings["short_mscale"]))
    angles = positions[..., None].float() * frequencies.own
    angles = torch.cat((angles, angles), -1)
    return (angles.cos() * scale).to(x.dtype), (angles.sin() * scale).to(x.dtype)


class With:
    """An object with another value of one attribute."""

    def __init__(self, own: Any, name: str, value: Any):
        self.own = own
        setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def _kind(part: Any, layers: str | None) -> Any:
    """The kind of a rotary embedding, or of its layers of one type; None for another module."""
    kinds = getattr(part, "rope_type", None)
    return kinds.get(layers) if isinstance(kinds, dict) else kinds


def _changes(kind: Any) -> bool:
    """Whether transformers computes the frequencies of a kind again in a call."""
    return isinstance(kind, str) and (kind == LONGROPE or "dynamic" in kind)


def _parameters(part: Any, layers: str | None) -> dict[str, Any]:
    found: dict[str, Any] = part.config.rope_parameters
    return found if layers is None else found[layers]


def _settings(part: Any, layers: str | None) -> str:
    """What the frequencies follow from. A trace has another object in the place of a module, so that it is no key."""
    width = getattr(part, f"{_prefix(layers)}inv_freq").shape[-1]
    return f"{layers} {width} {part.original_max_seq_len} {sorted(_parameters(part, layers).items())}"


def _prefix(layers: str | None) -> str:
    return "" if layers is None else f"{layers}_"


def _changing(model: nn.Module) -> Iterator[tuple[Any, str | None, _Frequencies]]:
    """The rotary embeddings whose frequencies change, with a type of layers if there are several, and how they do."""
    for part in model.modules():
        held: Any = part
        kinds = getattr(part, "rope_type", None)
        for layers in kinds if isinstance(kinds, dict) else (None,):
            if not _changes(kind := _kind(part, layers)):
                continue
            name = f"{_prefix(layers)}inv_freq"
            own = getattr(held, f"{_prefix(layers)}original_inv_freq")
            if kind != LONGROPE:
                yield part, layers, _Frequencies(name, own, None, held.original_max_seq_len)
                continue
            length = int(_parameters(part, layers)["original_max_position_embeddings"])
            options = {} if layers is None else {"layer_type": layers}
            longer, _ = ROPE_INIT_FUNCTIONS[kind](held.config, own.device, seq_len=length + 1, **options)
            yield part, layers, _Frequencies(name, own, longer, length)

"""Weights of a checkpoint that its model has no place for, though that is no mistake of the checkpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patcomp_models.checkpoints.quantized.formats.base import Format
from patcomp_models.checkpoints.untrusted import tensors_in

_FORESEEING = re.compile(r"(?:^|\.)mtp[._]")
_LAYER = re.compile(r"^(.*\blayers\.\d+\.)(?:enorm|eh_proj)\.")
"""Finds a layer that is a head: only these have a norm of embeddings and a projection of two tensors."""
_COMPUTED = re.compile(r"(rotary_emb\.inv_freq|attention\.(masked_)?bias|\.attn\.(masked_)?bias|position_ids)$")
"""Finds buffers that old checkpoints have, and that models compute."""


def is_computed(name: str) -> bool:
    """Whether a weight of a checkpoint is a buffer that models compute."""
    return _COMPUTED.search(name) is not None


def foreseeing(names: Iterable[str]) -> list[str]:
    """The weights of heads that foresee several tokens (MTP), of the weights of a checkpoint.

    Qwen and others name them `mtp.*`; DeepSeek and GLM have them in layers behind the last.
    """
    every = list(names)
    layers = tuple({match[1] for name in every if (match := _LAYER.match(name)) is not None})
    return sorted(name for name in every if _FORESEEING.search(name) or (layers and name.startswith(layers)))


@dataclass(frozen=True)
class _Place:
    """Where a weight of a head is."""

    layer: int | None
    """The number in its name; None if it is the weight of all heads."""
    rest: str
    """What is behind the number, or behind `mtp.`."""

    @property
    def is_in_layer(self) -> bool:
        return self.layer is not None


_PLACE = re.compile(r"^(?:.*\.)?(?:layers\.(\d+)|mtp)\.(?!layers\.)")


def head_place(name: str) -> _Place | None:
    """Where a weight of a head is; None if the form of the name is not known."""
    match = _PLACE.match(name)
    return None if match is None else _Place(int(match[1]) if match[1] else None, name[match.end() :])


def heads_in(names: Iterable[str]) -> list[list[str]]:
    """The weights of each head that foresees tokens, in order, including those that all heads share."""
    every = foreseeing(names)
    layers = {name: place.layer for name in every if (place := head_place(name)) is not None}
    numbers: list[int | None] = [*sorted({layer for layer in layers.values() if layer is not None})]
    if every and not numbers:
        numbers = [None]
    return [[name for name in every if layers.get(name) in (None, number)] for number in numbers]


def names_in(files: Sequence[Path], form: Format | None) -> list[str]:
    """The names of the weights in files.

    Args:
        files: of a checkpoint.
        form: how weights are stored, if they are in few bits.
    """
    if form is not None:
        return list(form.weights(files))
    found: list[str] = []
    for file in files:
        with tensors_in(file) as weights:
            found += weights.keys()
    return found


def notes_on_weights(model: Any, names: Sequence[str], *, taken: int | None) -> list[str]:
    """What a user must know of a checkpoint's weights that the model does not have.

    Args:
        model: of transformers, as it was loaded.
        names: of the checkpoint's weights.
        taken: how many of the heads that foresee tokens are converted; None for all.
    """
    heads = foreseeing(names)
    patterns = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or []
    own = set(model.state_dict(keep_vars=True))
    others = [
        name for name in names
        if any(re.search(pattern, name) for pattern in patterns)
        and name not in own and name not in heads and not is_computed(name)
    ]  # fmt: skip
    notes = []
    further = sorted({*heads} - {name for head in heads_in(heads)[:taken] for name in head})
    if taken != 0 and further:
        notes.append(f"heads that foresee several tokens (MTP) are left out behind the first: {_counted(further)}")
    elif heads and taken == 0:
        notes.append(
            f"heads that foresee several tokens (MTP) are left out: {_counted(heads)}; draft='mtp' (--draft mtp) makes "
            "functions of them"
        )
    if others:
        notes.append(f"weights that {type(model).__name__} has no place for are left out: {_counted(others)}")
    return notes


def _counted(names: Iterable[str], shown: int = 5) -> str:
    """The parts of a model that have the weights, and how many these are: `model.layers.61 (12 weights)`."""
    counts = Counter(re.match(r"(?:.*?\blayers\.\d+|[^.]*(?:\.[^.]*)?)", name)[0] for name in names)  # type: ignore[index]
    listed = [f"{part} ({count} weights)" for part, count in sorted(counts.items())]
    return ", ".join(listed[:shown]) + (f" and {len(listed) - shown} more parts" if len(listed) > shown else "")

"""The numbers of a configuration: a file of a few bytes can ask for years of work, which its weights never pay for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from patcomp_models.errors import BundleError

_LAYERS = re.compile(r"(\w+_)?(layers?|blocks?|depths?)(_per_\w+)?|num_hidden_groups")
"""The keys of how many layers a model has; code makes each of them before weights are read."""
_MOST_LAYERS = 1024
_HEADS = re.compile(r"(num|n)_(\w+_)?(heads?|experts?)|\w+_(heads|experts)")
"""The keys of the parts of a layer."""
_MOST_HEADS = 1 << 16
_TOKEN = re.compile(r"\w+_token_(id|index)|\w+_token_ids")
MOST_TOKENS = 1 << 24
"""More than any vocabulary has. Saving a tokenizer takes memory for each number up to the largest id."""
_EPSILON = re.compile(r"(\w+_)?(eps|epsilon)")
_ANY_SIZE = re.compile(r"\w*(theta|base|seed|params|parameters|flops|bytes|total_size)\w*|model_max_length")
"""The keys whose numbers nothing is counted by. A tokenizer without a longest text says 10^30."""
_WIDEST = 1 << 31


def check_numbers(file: Path, config: Mapping[str, Any], error: type[BundleError]) -> None:
    """Check the numbers of a `config.json`, also in its parts.

    Raises:
        BundleError: a number of things is beyond what a model has, or the epsilon of a norm is not from 0 to 1.
    """
    for key, value in leaves(config):
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        limit = (
            _MOST_LAYERS if _LAYERS.fullmatch(key) else _MOST_HEADS if _HEADS.fullmatch(key) else
            MOST_TOKENS if _TOKEN.fullmatch(key) else _WIDEST
        )  # fmt: skip
        if isinstance(value, int) and abs(value) >= limit and not _ANY_SIZE.fullmatch(key):
            raise error(f"{key} of {str(file)!r} is {_shown(value)}, and must be below {limit}")
        if _EPSILON.fullmatch(key) and not 0 <= value <= 1:
            raise error(f"{key} of {str(file)!r} is {_shown(value)}, and must be from 0 to 1")


def leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a configuration holds that is no object and no list, with the keys; what is in a list has the list's key."""
    waiting: list[tuple[str, Any]] = [*config.items()]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += [(key, each) for each in value]
        else:
            yield key, value


def _shown(value: int | float) -> str:
    """A number, which may have thousands of digits."""
    return str(value) if isinstance(value, float) or abs(value) < 1 << 64 else f"about 2^{value.bit_length()}"

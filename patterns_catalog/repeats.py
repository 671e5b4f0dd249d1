"""The patterns of tensors that hold every value twice."""

from __future__ import annotations

from typing import Any

from patcomp.authoring import AtenSource
from patcomp.patterns import (
    ANY,
    LAST,
)


def twice_in_halves(a: AtenSource, x: Any) -> Any:
    """The pattern of `cat([x, x], -1)`, which may also be used elsewhere."""
    return a.escaping(a.cat([x, x], dim=LAST))


def twice_in_pairs(a: AtenSource, x: Any) -> Any:
    """The pattern of `repeat_interleave(x, 2, -1)`, which may also be used elsewhere; `pairs_in_one_op` spells
    `stack([x, x], -1).flatten(-2)` so."""
    return a.escaping(a.op("repeat_interleave.self_int", x, repeats=2, dim=LAST, output_size=ANY))

"""Run an asset with hardware constraints on a system without support for their tensor layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from patcomp.emit.asset import Asset, asset_of_text, generic_text

_CONSTRAINTS = re.compile(r", #coreaix\.hw_constraints<[^>]*>")
_COPY = re.compile(r'"coreaix\.copy_(?:with|discarding)_constraints"')


def is_constrained(asset: Asset) -> bool:
    """Whether tensors of an asset have hardware constraints."""
    return _CONSTRAINTS.search(generic_text(asset, weights=False)) is not None


@contextmanager
def unconstrained(asset: Asset) -> Iterator[Asset]:
    """The asset, or a copy of it in a temporary folder without its hardware constraints, if it has any.

    The copy computes the same. The text of the program with all its weights is in memory meanwhile.
    """
    if not is_constrained(asset):
        yield asset
        return
    text = _CONSTRAINTS.sub("", generic_text(asset, weights=True))
    with asset_of_text(_COPY.sub('"coreai.cast"', text)) as copy:  # between equal types, a cast is the copy
        yield copy

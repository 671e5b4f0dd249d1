"""A budget of bytes: give each weight the scheme that loses the least signal for each byte that it saves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from patcomp.compression.compress import floats, stored_as
from patcomp.compression.config import CompressionConfig
from patcomp.compression.measures import OutputSignal, loss_of, relative_error
from patcomp.compression.scheme import Scheme
from patcomp.compression.weights import Weight, weights_of
from patcomp.ir.module import IRModule
from patcomp.ir.types import storage_bytes
from patcomp.targets import Target

BUDGET_SCHEMES = (
    "w8",
    "pal6",
    "w4_block32",
    "pal4_group16",
    "pal4",
    "w3_block32",
    "pal3_group16",
    "pal3",
    "w2_block32",
    "pal2",
    "pal1",
)
"""The schemes among which a budget chooses, unless the config names another for a weight."""

_PROBE = Scheme.parse("pal4")
"""The scheme in which each weight alone is tried, to see how much the outputs lose."""

_LEAST_SHARE = 0.1
"""How much a weight counts at least, of the mean: examples may not reach all experts or rows of a lookup."""


@dataclass(frozen=True)
class _Candidate:
    scheme: Scheme | None
    size: int
    loss: float


def within(
    module: IRModule,
    budget: str | int | None,
    config: CompressionConfig,
    *,
    bits: float | None = None,
    signal: OutputSignal | None = None,
    target: Target | None = None,
) -> Mapping[str, Scheme | None]:
    """The scheme of each weight such that all weights that can be compressed fit into a budget.

    All weights begin with the first scheme. Then the weight is made smaller that loses the least for each byte that it
    saves, until the budget is met. The loss of a weight is the relative error of its channels (`measures`), times the
    loss of the outputs for such an error, if that is measured. The same program gives the same schemes.

    Args:
        module: the program.
        budget: bytes, or a share of the bytes before, such as `"60%"`.
        config: its names, kinds and threshold say which weights are left alone, or have a scheme of their own.
        bits: bits for each element, instead of the budget.
        signal: measures what the outputs lose, once for each weight; without it, an error counts the same in all.
        target: chooses among the schemes that it takes.

    Raises:
        ValueError: the budget is not a number of bytes or a share, is not smaller than the weights are, or is too
            small for the smallest schemes.
    """
    weights = list(weights_of(module))
    config.check(weights)
    before = {weight.name: storage_bytes(weight.shape, weight.type.element_type) for weight in weights}
    elements = sum(weight.count for weight in weights)
    limit = int(bits * elements / 8) if bits is not None else bytes_of(budget, sum(before.values()))
    if limit >= (present := sum(before.values())):
        raise ValueError(f"the budget is {limit:,} bytes, and the weights have {present:,} already")
    schemes = [Scheme.parse(name) for name in BUDGET_SCHEMES if target is None or target.stores(name)]
    candidates: dict[str, Sequence[_Candidate]] = {}
    prices: dict[str, float] = {}
    for weight in weights:
        candidates[weight.name], price = _tried(weight, before[weight.name], config, module, schemes, signal)
        if price is not None:
            prices[weight.name] = price
    mean = sum(prices.values()) / max(len(prices), 1) or 1.0
    for name, price in prices.items():
        factor = max(price, _LEAST_SHARE * mean)
        candidates[name] = [replace(each, loss=each.loss * factor) for each in candidates[name]]
    chosen = dict.fromkeys(candidates, 0)
    total = sum(options[0].size for options in candidates.values())
    while total > limit:
        moves = [move for move in _moves(candidates, chosen) if move.saved > 0]
        if not moves:
            raise ValueError(f"the budget of {limit:,} bytes cannot be met; the smallest schemes need {total:,}")
        move = min(moves, key=lambda each: (each.lost / each.saved, each.name, each.position))
        chosen[move.name], total = move.position, total - move.saved
    while True:  # a large weight may have saved more than was needed
        moves = [move for move in _moves(candidates, chosen) if move.lost < 0 and total - move.saved <= limit]
        if not moves:
            return {name: options[chosen[name]].scheme for name, options in candidates.items()}
        move = min(moves, key=lambda each: (each.lost, each.name, each.position))
        chosen[move.name], total = move.position, total - move.saved


@dataclass(frozen=True)
class _Move:
    """Another scheme for a weight: the bytes that it saves, and the signal that it loses."""

    name: str
    position: int
    saved: int
    lost: float


def _moves(candidates: Mapping[str, Sequence[_Candidate]], chosen: Mapping[str, int]) -> Iterator[_Move]:
    for name, options in candidates.items():
        now = options[chosen[name]]
        for position, option in enumerate(options):
            if position != chosen[name]:
                yield _Move(name, position, now.size - option.size, option.loss - now.loss)


def bytes_of(budget: str | int | None, before: int) -> int:
    """The bytes of a budget, for weights that have `before` bytes.

    Raises:
        ValueError: it is neither a number of bytes nor a share.
    """
    if type(budget) is int and budget > 0:
        return budget
    share = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", str(budget))
    if share is None:
        raise ValueError(f"a budget is a number of bytes or a share such as '60%', not {budget!r}")
    return int(before * float(share[1]) / 100)


def _tried(
    weight: Weight,
    size: int,
    config: CompressionConfig,
    module: IRModule,
    schemes: Sequence[Scheme],
    signal: OutputSignal | None,
) -> tuple[Sequence[_Candidate], float | None]:
    """The choices of a weight, from large to small, and the loss of the outputs for its error, if it is measured."""
    own = config.scheme_of(weight)
    if own is None:
        return [_Candidate(None, size, 0.0)], None
    values, is_pinned, price = floats(weight, module.blobs), config.pins(weight), None
    found = []
    fitting = dict.fromkeys(scheme.fitting(weight.shape, weight.layout) for scheme in schemes)
    for scheme in [own] if is_pinned else fitting:
        stored = stored_as(scheme, weight, values)
        error = relative_error(values, stored, weight.layout)
        found.append(_Candidate(scheme, stored.size, error))
        if signal is not None and scheme == _PROBE and not is_pinned and (lost := signal(weight, stored)) is not None:
            price = loss_of(lost) / error if error else 0.0
    return sorted(found, key=lambda each: (-each.size, each.loss)), price

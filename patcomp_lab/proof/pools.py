"""What averages over windows mean on symbols."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from patcomp_lab.proof.reductions import folded
from patcomp_lab.proof.scalars import meaning_of
from patcomp_lab.proof.symbols import MEANINGS, Symbols, UnreachedError
from patcomp_lab.proof.worlds import CodeKind, World

Window = tuple[int, int, int]
"""The first and the last but one position of an axis in a window, and how many positions its average counts."""


def _averages(world: World, x: Symbols, windows: Sequence[Sequence[Window]], divisor: int | None) -> Symbols:
    """The average over each product of windows of the last axes."""
    if world.kind is CodeKind.BITS:
        raise UnreachedError("an average over windows, to the bit")
    rank = len(windows)
    sums, counts = [], []
    for places in itertools.product(*windows):
        part = x.codes
        for axis, (first, last, _) in enumerate(places, x.dim() - rank):
            part = part.narrow(axis, first, last - first)
        sums.append(folded(world, "sum", part.reshape(*x.shape[:-rank], -1), "add"))
        counts.append(float(divisor or math.prod(count for _, _, count in places)))
    shape = (*x.shape[:-rank], *map(len, windows))
    codes = torch.stack(sums, -1).reshape(shape)
    divisors = torch.tensor(counts).reshape([len(each) for each in windows])
    return meaning_of("div")(world, Symbols(codes, x.dtype, world), divisors)


def _pool(rank: int) -> Callable[..., Any]:
    def compute(
        world: World, x: Symbols, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        sizes, steps, pads = _listed(kernel, rank), _listed(stride or kernel, rank), _listed(padding, rank)
        windows = []
        for length, size, step, pad in zip(x.shape[-rank:], sizes, steps, pads, strict=True):
            room = length + 2 * pad - size
            count = (-(-room // step) if ceil_mode else room // step) + 1
            count -= ceil_mode and (count - 1) * step >= length + pad
            of_axis = []
            for first in range(-pad, -pad + count * step, step):
                last = min(first + size, length + pad)
                inside = max(first, 0), min(last, length)
                of_axis.append((*inside, last - first if count_include_pad else inside[1] - inside[0]))
            windows.append(of_axis)
        return _averages(world, x, windows, divisor_override)

    return compute


def _adaptive_pool(rank: int) -> Callable[..., Any]:
    def compute(world: World, x: Symbols, output_size: Sequence[int]) -> Any:
        windows = []
        for length, count in zip(x.shape[-rank:], output_size, strict=True):
            bounds = [(place * length // count, -(-(place + 1) * length // count)) for place in range(count)]
            windows.append([(first, last, last - first) for first, last in bounds])
        return _averages(world, x, windows, None)

    return compute


def _listed(value: Any, rank: int) -> list[int]:
    given = list(value) if isinstance(value, list | tuple) else [value]
    return given * rank if len(given) == 1 else given


for _rank in (1, 2, 3):
    MEANINGS[f"avg_pool{_rank}d"] = _pool(_rank)
    MEANINGS[f"_adaptive_avg_pool{_rank}d"] = MEANINGS[f"adaptive_avg_pool{_rank}d"] = _adaptive_pool(_rank)

"""Reductions of segments, which follow each other along an axis."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from patcomp.patterns import Rejected, decomposition, example

_REDUCTIONS = {"sum": ("sum", 0), "mean": ("sum", 0), "max": ("amax", -math.inf), "min": ("amin", math.inf),
               "prod": ("prod", 1)}  # fmt: skip
"""The reduction of `scatter_reduce`, and the result of a segment without elements; NaN for a mean."""

_LENGTHS = torch.tensor([2, 0, 4])


@decomposition("aten.segment_reduce", unspecified={"sizes": "eager reads beyond a short axis"}, examples=[
    example("6x2xf32", "sum", lengths=_LENGTHS), example("6xf32", "mean", lengths=_LENGTHS, initial=3.0),
    example("7x2xf32", "max", offsets=torch.tensor([1, 3, 3, 6])), example("6x2xf32", "prod", lengths=_LENGTHS),
    example("2x6x3xf32", "min", lengths=torch.tensor([[2, 0, 4], [1, 2, 3]]), axis=1, initial=0.5),
    example("6x2xf32", "mean", lengths=_LENGTHS, unsafe=True),
])  # fmt: skip
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """The number of an element's segment counts the segments that end before it; elements in no segment go to an extra
    one."""
    given = lengths if lengths is not None else offsets
    if given is None or indices is not None or (lengths is not None and offsets is not None):
        raise Rejected("segment_reduce needs either lengths or offsets")
    if reduce not in _REDUCTIONS or given.dim() != axis + 1:
        raise Rejected("segment_reduce needs a known reduction, and lengths with all axes up to that of the segments")
    ends = lengths.cumsum(-1) if lengths is not None else given[..., 1:]
    starts = ends - lengths if lengths is not None else given[..., :-1]
    place = torch.arange(data.shape[axis], device=data.device).unsqueeze(-1)
    number = (ends.unsqueeze(-2) <= place).sum(-1)
    count = ends.shape[-1]
    number = torch.where(place.squeeze(-1) < starts[..., :1], count, number)
    how, empty = _REDUCTIONS[reduce]
    shape = [*data.shape[:axis], count + 1, *data.shape[axis + 1 :]]
    first = torch.full(shape, empty if initial is None else initial, dtype=data.dtype, device=data.device)
    tail = [1] * (data.dim() - axis - 1)
    index = number.reshape([*number.shape, *tail]).expand(data.shape)
    made = first.scatter_reduce(axis, index, data, how, include_self=True).narrow(axis, 0, count)
    if reduce != "mean":
        return made
    length = (ends - starts).reshape([*ends.shape, *tail])
    return torch.where((length > 0) | (initial is None), made / length, made)

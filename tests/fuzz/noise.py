"""How far rounding can move the results of a program.

A value that a program computes in float64 has noise where a run with small random changes of every inexact result
moves it. The changes are a few times as large as what rounding in the program's own type does. Exact results, such as
sums and products of small multiples of 1/8, are not changed: comparing them is no matter of luck.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

SINGLE, HALF = 2.0**-20, 2.0**-9
"""Relative size of the changes, for programs in float32 and for those with float16."""
EXACT = {SINGLE: (1024.0, 2.0**12), HALF: (64.0, 32.0)}
"""Which numbers count as exact: the multiples of 1 / the first number, up to the second one."""
aten = torch.ops.aten
SUMS = {
    aten.addmm, aten.baddbmm, aten.bmm, aten.convolution, aten.cumsum, aten.dot, aten.linear, aten.mean, aten.mm,
    aten.mv, aten.sum,
}  # fmt: skip
"""Operators whose partial sums are rounded too: they may be larger than the result."""
ROUNDED = {
    aten._native_batch_norm_legit, aten._native_batch_norm_legit_no_training, aten.native_batch_norm,
    aten.native_group_norm, aten.native_layer_norm, aten._upsample_bicubic2d_aa, aten._upsample_bilinear2d_aa,
    aten.upsample_bicubic2d, aten.upsample_bilinear2d, aten.upsample_linear1d, aten.upsample_trilinear3d,
}  # fmt: skip
"""Operators with inexact numbers inside, whose results are inexact even where they look exact."""


class Noise(TorchDispatchMode):
    """Changes every inexact float64 result of an operator at random, by a relative `size`: `SINGLE` or `HALF`.

    A run with `direction` -1 changes them the other way, so that of two equal numbers each is the larger one once.
    """

    def __init__(self, size: float, direction: int):
        super().__init__()
        self.size, self.direction = size, direction
        self.generator = torch.Generator().manual_seed(1)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        returns = func._schema.returns
        writes = any(out.alias_info is not None and out.alias_info.is_write for out in returns)
        if not writes and any(out.alias_info is not None for out in returns):
            return result  # a view has the numbers of what it views
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64 and tensor.numel():
                if func.overloadpacket in ROUNDED:
                    largest = tensor.nan_to_num(0, 0, 0).abs().max()
                    self._change(tensor, tensor.abs().clamp(min=largest), looks_exact=False)
                else:
                    self._change(tensor, _partial_sums(func, args, kwargs or {}, tensor))
        return result

    def _change(self, tensor: torch.Tensor, partial: torch.Tensor, *, looks_exact: bool = True) -> None:
        grid, largest = EXACT[self.size]
        exact = ~tensor.isfinite()
        if looks_exact:
            exact |= ((tensor * grid).frac() == 0) & (partial <= largest)
        if exact.all():
            return
        sign = torch.randint(0, 2, tensor.shape, generator=self.generator).double() * 2 - 1
        change = sign * (0.5 + torch.rand(tensor.shape, generator=self.generator, dtype=torch.float64) / 2)
        rounded = tensor.abs()
        rounded = torch.where(partial > largest, rounded.clamp(min=largest), rounded) if looks_exact else partial
        tensor.copy_(torch.where(exact, tensor, tensor + self.direction * self.size * change * rounded))


def _partial_sums(func: Any, args: Any, kwargs: Any, result: torch.Tensor) -> torch.Tensor:
    """How large the partial sums of a result may be."""
    if func.overloadpacket not in SUMS:
        return result.abs()
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.abs, (args, kwargs))
    return func(*args, **kwargs)


@contextmanager
def in_double() -> Iterator[None]:
    """The default floating-point type is float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def distance(result: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest difference of two tensors, infinite where they differ in shape, integers or in what is finite."""
    if result.shape != truth.shape or result.is_floating_point() != truth.is_floating_point():
        return float("inf")
    if not truth.is_floating_point():
        return 0.0 if torch.equal(result.long(), truth.long()) else float("inf")
    ours, theirs = result.double(), truth.double()
    both = ours.isfinite() & theirs.isfinite()
    if not torch.equal(ours[~both].nan_to_num(1e300), theirs[~both].nan_to_num(1e300)):
        return float("inf")
    return float((ours - theirs)[both].abs().max()) if both.any() else 0.0


def scale(truth: torch.Tensor) -> float:
    """The largest finite number of a tensor, 1 at least."""
    if not truth.is_floating_point():
        return 1.0
    finite = truth[truth.isfinite()]
    return max(1.0, float(finite.abs().max())) if finite.numel() else 1.0

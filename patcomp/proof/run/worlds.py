"""The worlds in which parts of networks are run: large constants are fast, and some ops are not looked into.

They differ from the worlds of rules (`proof.worlds`) in three points:

- The code of a constant is computed for all elements at once. In a world of reals it is the number itself, a fraction
  of a power of two; only constants of few different elements are taken for decimals and roots that were rounded.
- A convolution may be one function of all its operands, which is not looked into: `opaque`.
- Integers may be symbols. A lookup by such an index is a function of the index and of all elements that it chooses from.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp.proof import orders, pools, reductions
from patcomp.proof.scalars import computed, dtype_of
from patcomp.proof.symbols import FLOATS, INTEGERS, MEANINGS, Symbols, UnreachedError, codes_of
from patcomp.proof.worlds import SIGN, Kind, P, World

_ = orders, pools, reductions  # imported for the meanings that they register

_FEW = 64
"""The most different elements of a constant that are taken for decimals and roots, and whose order is known."""


class RunWorld(World):
    """A world for parts of networks."""

    def numbers(self, values: Tensor) -> Tensor:
        flat = values.reshape(-1).to(torch.float64)
        different, places = torch.unique(flat.view(torch.int64), return_inverse=True)
        if len(different) <= _FEW:
            made = torch.tensor([self.number_of(value) for value in different.view(torch.float64).tolist()] or [0])
            codes = made[places] if len(places) else torch.zeros(0, dtype=torch.int64)
        elif not bool(flat.isfinite().all()):
            raise UnreachedError("a large constant with infinities or NaN")
        else:
            codes = _bits(flat) if self.kind is Kind.BITS else _fractions(flat)
        return codes.reshape(values.shape)

    def _bits_of(self, value: float) -> int:
        return int(_bits(torch.tensor([value], dtype=torch.float64))[0])


def _bits(values: Tensor) -> Tensor:
    """A code for each number, with the sign as one bit of it."""
    bits = values.abs().view(torch.int64).numpy().astype(np.uint64)
    with np.errstate(over="ignore"):
        for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
            bits = (bits ^ (bits >> np.uint64(29)) ^ np.uint64(0x5851F42D4C957F2D)) * np.uint64(factor)
    size = torch.from_numpy((bits >> np.uint64(1)).astype(np.int64)) & ~SIGN
    return torch.where(values.signbit(), size | SIGN, size)


def _fractions(values: Tensor) -> Tensor:
    """The numbers themselves, each a whole number times a power of two, as elements of the field."""
    mantissa, exponent = np.frexp(values.numpy())
    whole = torch.from_numpy((mantissa * 2.0**53).astype(np.int64)) % P
    low, high = int(exponent.min()) - 53, int(exponent.max()) - 53
    powers = torch.tensor([pow(2, each, P) for each in range(low, high + 1)])
    return whole * powers[torch.from_numpy(exponent.astype(np.int64)) - 53 - low] % P


# ---- convolutions --------------------------------------------------------------------------------------


def _opaque_convolution(
    world: World, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    """A convolution as one function of its operands. Over the reals, padding is zeros around the input, and the bias is
    added to the result."""
    a, w, rank = codes_of(x, world), codes_of(weight, world), x.dim() - 2
    stride, padding, dilation, output_padding = (
        [*each] * rank if len(each) == 1 else [*each] for each in (stride, padding, dilation, output_padding)
    )
    if world.kind is Kind.REALS and not transposed:
        a = torch.nn.functional.pad(a, [size for each in reversed(padding) for size in (each, each)])
        padding = [0] * rank
    shape = torch.ops.aten.convolution(
        a.to("meta", torch.float32), w.to("meta", torch.float32), None, stride, padding, dilation, transposed,
        output_padding, groups,
    ).shape  # fmt: skip
    parts = [a, w, *([codes_of(bias, world)] if bias is not None and world.kind is Kind.BITS else [])]
    content = hashlib.blake2b()
    for part in parts:
        content.update(repr(tuple(part.shape)).encode() + part.contiguous().numpy().tobytes())
    options = (*stride, *padding, *dilation, transposed, *(output_padding if transposed else ()), groups)
    places = torch.arange(math.prod(shape)).reshape(shape)
    made = computed(world, world.oracle(("convolution", options, content.hexdigest()), places), dtype_of(x, weight))
    if bias is None or world.kind is Kind.BITS:
        return made
    return MEANINGS["add"](world, made, bias.reshape(-1, *[1] * rank))


# ---- pools -----------------------------------------------------------------------------------------


def _max_pool(
    world: World, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """The largest element of each window. The indices are not looked into."""
    rank = len(kernel)

    def listed(value: Any) -> list[int]:
        return [value] * rank if isinstance(value, int) else [*value] * (rank if len(value) == 1 else 1)

    sizes, steps, pads, apart = listed(kernel), listed(stride or kernel), listed(padding), listed(dilation)
    if ceil_mode:
        raise UnreachedError("a pool with ceil_mode")
    lowest = world.number_of(-math.inf)
    codes = torch.nn.functional.pad(x.codes, [p for each in reversed(pads) for p in (each, each)], value=lowest)
    first = x.dim() - rank
    for axis in range(rank):
        codes = codes.unfold(first + axis, (sizes[axis] - 1) * apart[axis] + 1, steps[axis])[..., :: apart[axis]]
    windows = Symbols(codes, x.dtype, world)
    largest = MEANINGS["amax"](world, windows, list(range(x.dim(), codes.dim())))
    return largest, Symbols(world.oracle("indices of a pool", largest.codes), torch.int64, world)


# ---- lookups ---------------------------------------------------------------------------------------


def looked_up(world: World, table: Any, indices: Symbols) -> Symbols:
    """The rows of a table at symbolic indices: a function of the index and of each column."""
    codes = codes_of(table, world)
    columns = world.oracle(("column", len(codes)), *codes.unbind(0)) if len(codes) else codes.new_zeros(codes.shape[1:])
    at = indices.codes.reshape(*indices.shape, *[1] * columns.dim())
    made = world.oracle("lookup", at, columns)
    if table.dtype in FLOATS and world.kind is Kind.BITS:
        made = computed(world, made, table.dtype).codes
    if table.dtype not in FLOATS and table.dtype not in INTEGERS:
        raise UnreachedError("a lookup in a table of booleans")
    return Symbols(made, table.dtype, world)


def _embedding(world: World, weight: Any, indices: Any, *rest: Any) -> Any:
    if isinstance(indices, Symbols):
        return looked_up(world, weight, indices)
    return Symbols(codes_of(weight, world)[indices], weight.dtype, world)


def lookup_of_op(name: str, world: World, operands: list[Any], attributes: Any) -> Any | None:
    """The result of a gather of Core AI by symbolic indices; None for other ops.

    Raises:
        UnreachedError: it is another kind of lookup.
    """
    if name == "coreai.gather_nd" and isinstance(operands[1], Symbols):
        table, indices = operands
        if indices.shape[-1] != 1:
            raise UnreachedError("a lookup by several symbolic indices")
        return looked_up(world, table, Symbols(indices.codes.squeeze(-1), indices.dtype, world))
    return None


Meanings = Mapping[str, Callable[..., Any]]

LOOKUPS: Meanings = {"embedding": _embedding, "max_pool2d_with_indices": _max_pool}
OPAQUE: Meanings = {**LOOKUPS, "convolution": _opaque_convolution}

"""What sums, products of matrices and convolutions mean on symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from patcomp_lab.proof.scalars import cast_of, common_dtype, meaning_of, rounded_codes
from patcomp_lab.proof.symbols import INTEGERS, MEANINGS, Symbols, UnreachedError, codes_of, meaning
from patcomp_lab.proof.worlds import CodeKind, P, World

# ---- sums and products -------------------------------------------------------------------------------


def _moved_to_the_end(x: Tensor, axes: Any) -> tuple[Tensor, list[int]]:
    rank = x.dim()
    given = list(range(rank)) if axes is None or axes == [] else [axes] if isinstance(axes, int) else list(axes)
    given = [axis % rank for axis in given] if rank else []
    rest = [axis for axis in range(rank) if axis not in given]
    return x.permute([*rest, *sorted(given)]).reshape([*(x.shape[axis] for axis in rest), -1]), given


def _kept(codes: Tensor, shape: Sequence[int], axes: Sequence[int], keepdim: bool) -> Tensor:
    return codes.reshape([1 if axis in axes else size for axis, size in enumerate(shape)]) if keepdim else codes


def folded(world: World, name: str, columns: Tensor, arithmetic: str | None) -> Tensor:
    """A code of the last axis; in `REALS` by arithmetic, else by an oracle of all elements in their order."""
    count = columns.shape[-1]
    if world.kind is CodeKind.REALS and arithmetic is not None:
        if arithmetic == "add" and bool((columns < P).all()):
            return columns.sum(-1) % P  # of up to 2^32 numbers of the field
        made = torch.full(columns.shape[:-1], 0 if arithmetic == "add" else 1, dtype=torch.int64)
        for index in range(count):
            made = world.arithmetic(arithmetic, made, columns[..., index])
        return made
    if count == 0:
        return codes_of(0.0 if arithmetic == "add" else 1.0, world).expand(columns.shape[:-1]).clone()
    return world.oracle((name, count), *(columns[..., index] for index in range(count)))


def _reduced(name: str, arithmetic: str) -> Callable[..., Any]:
    def compute(world: World, x: Symbols, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        if dtype is None and x.dtype in INTEGERS:
            dtype = torch.int64
        if dtype is not None and dtype != x.dtype:
            x = cast_of(world, x, dtype)
        columns, axes = _moved_to_the_end(x.codes, dim)
        codes = folded(world, "sum" if name == "mean" else name, columns, arithmetic)
        made = (
            rounded_codes(world, codes, x.dtype)
            if columns.shape[-1] > 1 or world.kind is CodeKind.REALS
            else Symbols(columns[..., 0] if columns.shape[-1] else codes, x.dtype, world)
        )
        made = Symbols(_kept(made.codes, x.shape, axes, keepdim), x.dtype, world)
        return meaning_of("div")(world, made, columns.shape[-1]) if name == "mean" else made

    return compute


MEANINGS["sum"], MEANINGS["mean"] = _reduced("sum", "add"), _reduced("mean", "add")
MEANINGS["prod"] = _reduced("prod", "mul")


def _extreme(name: str) -> Callable[..., Any]:
    def compute(world: World, x: Symbols, dim: Any = None, keepdim: bool = False) -> Any:
        columns, axes = _moved_to_the_end(x.codes, dim)
        keys = world.keys(columns)
        at = getattr(torch, "argmax" if name == "amax" else "argmin")(keys, -1, keepdim=True)
        tied = (keys == keys.gather(-1, at)) | (keys.isnan() & keys.gather(-1, at).isnan())
        codes = torch.where(tied, columns, torch.full_like(columns, 2**62)).amin(-1)  # the same one for each order
        return Symbols(_kept(codes, x.shape, axes, keepdim), x.dtype, world)

    return compute


MEANINGS["amax"], MEANINGS["amin"] = _extreme("amax"), _extreme("amin")


@meaning("var")
def _variance(world: World, x: Symbols, dim: Any = None, correction: Any = 1, keepdim: bool = False, **_: Any) -> Any:
    mul, mean = meaning_of("mul"), MEANINGS["mean"]
    correction = 1 if correction is None else int(correction)
    apart = meaning_of("sub")(world, x, mean(world, x, dim, True))
    count = _moved_to_the_end(x.codes, dim)[0].shape[-1]
    if count == correction:
        raise UnreachedError("a variance of one element")
    return meaning_of("div")(world, MEANINGS["sum"](world, mul(world, apart, apart), dim, keepdim), count - correction)


@meaning("_softmax", "softmax")
def _softmax(world: World, x: Symbols, dim: int, *rest: Any, **options: Any) -> Any:
    if world.kind is CodeKind.REALS:
        powers = meaning_of("exp")(world, x)
        return meaning_of("div")(world, powers, MEANINGS["sum"](world, powers, [dim], True))
    return _along(world, "softmax", x, dim)


@meaning("_log_softmax", "log_softmax")
def _log_softmax(world: World, x: Symbols, dim: int, *rest: Any, **options: Any) -> Any:
    if world.kind is CodeKind.REALS:
        total = MEANINGS["sum"](world, meaning_of("exp")(world, x), [dim], True)
        return meaning_of("sub")(world, x, meaning_of("log")(world, total))
    return _along(world, "log_softmax", x, dim)


def _along(world: World, name: str, x: Symbols, dim: int) -> Symbols:
    """An oracle for each place of an axis, of all elements of the axis."""
    if x.dim() == 0:
        return rounded_codes(world, world.oracle((name, 0), x.codes), x.dtype)
    columns = x.codes.movedim(dim, -1)
    count = columns.shape[-1]
    parts = [columns[..., index] for index in range(count)]
    made = [world.oracle((name, count, index), *parts) for index in range(count)]
    codes = torch.stack(made, -1).movedim(-1, dim).contiguous() if made else x.codes.clone()
    return rounded_codes(world, codes, x.dtype)


@meaning("cumsum")
def _cumsum(world: World, x: Symbols, dim: int, *, dtype: Any = None) -> Any:
    if x.dim() == 0:
        return x
    columns = x.codes.movedim(dim, -1)
    ends = [folded(world, "cumulated", columns[..., : end + 1], "add") for end in range(columns.shape[-1])]
    return rounded_codes(world, torch.stack(ends, -1).movedim(-1, dim).contiguous(), x.dtype)


MEANINGS["cumprod"] = lambda world, x, dim, *, dtype=None: _along(world, "cumprod", x, dim)


@meaning("mm", "bmm", "matmul")
def _matmul(world: World, x: Any, y: Any) -> Symbols:
    a, b = codes_of(x, world), codes_of(y, world)
    dtype = common_dtype(x, y)
    count = a.shape[-1]
    left, right = a.unsqueeze(-2), b.transpose(-1, -2).unsqueeze(-3)  # [..., m, 1, k] and [..., 1, n, k]
    if world.kind is CodeKind.REALS:
        return Symbols(folded(world, "dot", world.arithmetic("mul", left, right), "add"), dtype, world)
    left, right = torch.broadcast_tensors(left, right)
    columns = torch.cat([left, right], -1)
    made = world.oracle(("dot", count), *(columns[..., index] for index in range(2 * count)))
    return rounded_codes(world, made, dtype)


@meaning("addmm", "baddbmm")
def _addmm(world: World, bias: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = _matmul(world, x, y)
    mul = MEANINGS["mul"]
    product = product if alpha == 1 else mul(world, product, alpha)
    return MEANINGS["add"](world, product, bias if beta == 1 else mul(world, bias, beta))


@meaning("dot", "mv")
def _mv(world: World, x: Any, y: Any) -> Any:
    made = _matmul(world, x if x.dim() > 1 else x.unsqueeze(0), y.unsqueeze(-1)).squeeze(-1)
    return made if x.dim() > 1 else made.squeeze(0)


@meaning("convolution")
def _convolution(
    world: World, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    """Sums of products over windows, channels and places of the kernel; each place is one part of a sum."""
    if world.kind is CodeKind.BITS or transposed:
        raise UnreachedError("a convolution to the bit" if world.kind is CodeKind.BITS else "a transposed convolution")
    a, w, rank = codes_of(x, world), codes_of(weight, world), x.dim() - 2
    stride, padding, dilation = ([*v] * rank if len(v) == 1 else [*v] for v in (stride, padding, dilation))
    a = torch.nn.functional.pad(a, [p for size in reversed(padding) for p in (size, size)])
    for axis in range(rank):
        length = (w.shape[2 + axis] - 1) * dilation[axis] + 1
        a = a.unfold(2 + axis, length, stride[axis])
    for axis in range(rank):
        a = a[(..., slice(None, None, dilation[axis]), *[slice(None)] * (rank - 1 - axis))]  # type: ignore[index]
    batch, out = a.shape[0], w.shape[0]
    spatial = a.shape[2 : 2 + rank]
    a = a.reshape(batch, groups, -1, *spatial, *w.shape[2:])
    a = a.permute(0, 1, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank)).reshape(
        batch, groups, 1, spatial.numel(), -1
    )
    w = w.reshape(groups, out // groups, 1, -1)
    made = folded(world, "convolution", world.arithmetic("mul", a, w), "add").reshape(batch, out, *spatial)
    result = Symbols(made.contiguous(), common_dtype(x, weight), world)
    return result if bias is None else MEANINGS["add"](world, result, bias.reshape(-1, *[1] * rank))

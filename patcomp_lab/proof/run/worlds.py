"""The worlds in which parts of networks are run: large constants are fast, and some ops are not looked into.

They differ from the worlds of rules (`proof.worlds`) in four points:

- The code of a constant is computed for all elements at once. In a world of reals it is the number itself, a fraction
  of a power of two; only constants of few different elements are taken for decimals and roots that were rounded.
- A convolution may be one function of all its operands, which is not looked into: `opaque`.
- Symbols are smaller and larger than every constant, so that a bound that a program has, such as that of a clamp, is
  reached.
- Integers may be symbols. A lookup by such an index is a function of the index and of what it chooses from.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from patcomp.evaluate.eager import overload_of
from patcomp.pytorch import pytree, tree_map_only
from patcomp_lab.proof import orders, pools, reductions
from patcomp_lab.proof.run.formulas import FORMULAS
from patcomp_lab.proof.scalars import rounded_codes
from patcomp_lab.proof.symbols import FLOAT_DTYPES, INTEGERS, MEANINGS, Symbols, UnreachedError, codes_of
from patcomp_lab.proof.worlds import SIGN, CodeKind, P, World

_ = orders, pools, reductions  # imported for the meanings that they register

_FEW = 64
"""The most different elements of a constant that are taken for decimals and roots, and whose order is known."""


@dataclass
class RunWorld(World):
    """A world for parts of networks."""

    of_64_bits: bool = False
    """Whether there are floats of 64 bits. Otherwise PyTorch's kernels round a Python number to 32 bits."""

    def number_of(self, value: float) -> int:
        if self.kind is CodeKind.BITS and not self.of_64_bits:
            value = float(np.float32(value))
        return super().number_of(value)

    def numbers(self, values: Tensor) -> Tensor:
        flat = values.reshape(-1).to(torch.float64)
        few = len(torch.unique(flat[:4096])) <= _FEW
        bits = flat.view(torch.int64) if few else flat[:0].view(torch.int64)
        different, places = torch.unique(bits, return_inverse=True)
        if few and len(different) <= _FEW:
            made = torch.tensor(
                [super(RunWorld, self).number_of(value) for value in different.view(torch.float64).tolist()] or [0]
            )
            codes = made[places] if len(places) else torch.zeros(0, dtype=torch.int64)
        elif not bool(flat.isfinite().all()):
            raise UnreachedError("a large constant with infinities or NaN")
        else:
            codes = _bits(flat) if self.kind is CodeKind.BITS else _fractions(flat)
        return codes.reshape(values.shape)

    def keys(self, codes: Tensor) -> Tensor:
        """Numbers that are ordered as the codes are, as in other worlds, but half of them of any magnitude."""
        keys = super().keys(codes)
        is_bits = self.kind is CodeKind.BITS
        size = codes & ~SIGN if is_bits else torch.minimum(codes, (P - codes) % P)
        drawn = self.oracle("magnitude", size)
        exponents = torch.where(drawn % 2 == 0, 0, drawn // 2 % 256 - 128)
        known = torch.tensor([code & ~SIGN if is_bits else min(code, (P - code) % P) for code in self.constants])
        has_value = torch.isin(size, known.to(torch.int64)) | (codes >= P if not is_bits else keys.isinf())
        return torch.where(has_value, keys, torch.ldexp(keys, exponents))

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


# ---- ops that are not looked into ----------------------------------------------------------------------


def opaque(world: World, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The results of an op of PyTorch as a function of all its operands, of which nothing else is known."""
    content = hashlib.blake2b(repr((op, [*map(_shown, args)], {k: _shown(v) for k, v in kwargs.items()})).encode())
    for value in pytree.tree_leaves((args, kwargs)):
        if isinstance(value, Tensor):
            if isinstance(value, Symbols):
                codes = value.codes
            else:  # numbers are themselves; those of 16 bits have other bits in 32
                codes = value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
            content.update(codes.contiguous().numpy().tobytes())
    known = content.hexdigest()

    def plain(value: Tensor) -> Tensor:
        return torch.empty(value.shape, dtype=value.dtype, device="meta")

    def symbolic(position: int, made: Tensor) -> Any:
        if made.dtype not in FLOAT_DTYPES:
            raise UnreachedError(f"{op} gives {made.dtype}")
        places = torch.arange(made.numel()).reshape(made.shape)
        return rounded_codes(world, world.oracle((op, position, known), places), made.dtype)

    results = overload_of(op)(*tree_map_only(Tensor, plain, list(args)), **tree_map_only(Tensor, plain, dict(kwargs)))
    if isinstance(results, Tensor):
        return symbolic(0, results)
    return tuple(symbolic(position, made) for position, made in enumerate(results))


def _shown(value: Any) -> str:
    leaves, tree = pytree.tree_flatten(value)
    return repr(([f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else repr(x) for x in leaves], str(tree)))


def _opaque_convolution(
    world: World, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    """A convolution that is not looked into. Over the reals, padding is zeros around the input, and the bias is added
    to the result."""
    rank = x.dim() - 2
    stride, padding, dilation, output_padding = (
        [*each] * rank if len(each) == 1 else [*each] for each in (stride, padding, dilation, output_padding)
    )
    if world.kind is CodeKind.BITS:
        given = (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
        return opaque(world, "aten.convolution", given, {})
    if not transposed:
        zeros = torch.nn.functional.pad(codes_of(x, world), [p for each in reversed(padding) for p in (each, each)])
        x, padding = Symbols(zeros, x.dtype, world), [0] * rank
    given = (x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    made = opaque(world, "aten.convolution", given, {})
    return made if bias is None else MEANINGS["add"](world, made, bias.reshape(-1, *[1] * rank))


def _formula(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The meaning of an op by its formula over the reals. The kernel's rounding is not looked into."""

    def compute(world: World, *args: Any, **kwargs: Any) -> Any:
        return opaque(world, op, args, kwargs) if world.kind is CodeKind.BITS else function(world, *args, **kwargs)

    return compute


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
    if table.dtype in FLOAT_DTYPES and world.kind is CodeKind.BITS:
        made = rounded_codes(world, made, table.dtype).codes
    if table.dtype not in FLOAT_DTYPES and table.dtype not in INTEGERS:
        raise UnreachedError("a lookup in a table of booleans")
    return Symbols(made, table.dtype, world)


def _embedding(world: World, weight: Any, indices: Any, *rest: Any) -> Any:
    if isinstance(indices, Symbols):
        return looked_up(world, weight, indices)
    return Symbols(codes_of(weight, world)[indices], weight.dtype, world)


def lookup_of_op(name: str, world: World, operands: list[Any]) -> Any | None:
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


LOOKED_INTO: Mapping[str, Callable[..., Any]] = {
    "embedding": _embedding, "max_pool2d_with_indices": _max_pool, "max_pool2d": lambda *a, **k: _max_pool(*a, **k)[0],
    **{op.split(".")[1]: _formula(op, function) for op, function in FORMULAS.items()},
}  # fmt: skip
"""What ops mean in parts of networks, where rules need no meaning or another one."""

OPAQUE: Mapping[str, Callable[..., Any]] = {**LOOKED_INTO, "convolution": _opaque_convolution}
"""The same, with convolutions that are not looked into."""

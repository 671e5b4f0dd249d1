"""Tensors of symbols, on which PyTorch's ops, the reference evaluator and decompositions run unchanged.

`Symbols` is a tensor of floats without floats: it has a dtype, a shape and strides, and a code for each element
(`proof.worlds`). PyTorch hands each op on such tensors to `__torch_dispatch__`:

- an op that moves data runs on the codes, as it is;
- arithmetic is the world's; a function that is not looked into is an oracle of its name;
- an order (`max`, `sort`, `>`) is that of the world, and gives ordinary indices and booleans;
- every other op is decomposed by PyTorch, and what is left is `UnreachedError`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from patcomp.ir.aten import overloads_with
from patcomp.ir.aten_facts import operators_where
from patcomp.ir.traits import Movement
from patcomp.pytorch import (
    decomposition_of,
    overload_name,
    pytree,
    schema_of_overload,
    tensor_without_data,
    tree_map,
)
from patcomp_lab.proof.worlds import CodeKind, World


class UnreachedError(Exception):
    """A proof does not reach what is computed; the text says why."""


class Symbols(Tensor):
    """A float tensor whose elements are codes of a world."""

    codes: Tensor
    world: World

    @staticmethod
    def __new__(cls, codes: Tensor, dtype: torch.dtype, world: World) -> Symbols:
        made: Any = tensor_without_data(cls, codes, dtype)
        made.codes, made.world = codes, world
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Symbols({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _dispatched(func, args, kwargs or {})


FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
"""The integers that may be symbols: of a program without floats, to the bit."""


def codes_of(value: Any, world: World) -> Tensor:
    """The codes of symbols, of a tensor of constants, or of a number."""
    if isinstance(value, Symbols):
        return value.codes
    if isinstance(value, Tensor):
        if value.is_complex():
            raise UnreachedError("complex numbers")
        return world.numbers(value)
    return torch.tensor(world.number_of(value), dtype=torch.int64)


def _dispatched(func: Any, args: Any, kwargs: Any) -> Any:
    flat = pytree.tree_leaves((args, kwargs))
    world = next(item.world for item in flat if isinstance(item, Symbols))
    name = schema_of_overload(func).name.split("::")[1]
    overload = overload_name(func)
    if overload == "dtype" and name == "view":
        if args[1] != args[0].dtype:
            raise UnreachedError("the bits of floats are read")
        return Symbols(args[0].codes, args[0].dtype, world)
    if name.endswith("_") and not name.startswith("_") and not isinstance(args[0], Symbols):
        raise UnreachedError("symbols are written into a tensor of numbers")
    if (own := world.meanings.get(name)) is not None:
        return own(world, *args, **kwargs)
    if _moves(func):
        return _moved(func, name, args, kwargs, world)
    if name.endswith("_") and not name.startswith("_") and name.rstrip("_") in MEANINGS:
        made = MEANINGS[name.rstrip("_")](world, *args, **kwargs)
        args[0].codes.copy_(made.codes)
        return args[0]
    if overload in ("out", "dimname"):
        raise UnreachedError(f"{func}")
    if (computed := MEANINGS.get(name)) is not None:
        return computed(world, *args, **kwargs)
    return _decomposed(func, args, kwargs)


def _decomposed(func: Any, args: Any, kwargs: Any) -> Any:
    made = decomposition_of(func)(*args, **kwargs)
    if made is NotImplemented:
        raise UnreachedError(f"the meaning of {func} is not known")
    return made


# ---- ops that move data ----------------------------------------------------------------------------


def _moves(func: Any) -> bool:
    """Whether an op, or the same op in place, only moves data."""
    name = schema_of_overload(func).name.replace("::", ".")
    plain = name.removesuffix("_") if not name.endswith("__") else name
    overload = overload_name(func)
    return (plain if overload == "default" else f"{plain}.{overload}") in overloads_with(Movement)


def _moved(func: Any, name: str, args: Any, kwargs: Any, world: World) -> Any:
    dtype = _result_dtype(func, args, kwargs)
    numbers = {
        argument.name for argument in schema_of_overload(func).arguments if argument.name in ("value", "fill_value")
    }
    zero_is_a_number = world.kind is CodeKind.REALS or name.removesuffix("_") not in operators_where("zeros")

    def lowered(value: Any, is_number: bool) -> Any:
        if isinstance(value, Symbols):
            return value.codes
        if isinstance(value, Tensor) and (value.dtype in FLOAT_DTYPES or (is_number and value.dtype in INTEGERS)):
            return codes_of(value, world)
        if is_number and isinstance(value, int | float) and not isinstance(value, bool):
            return world.number_of(value)
        return value

    if not zero_is_a_number:
        raise UnreachedError(f"{name} writes zeros")
    names = [argument.name for argument in schema_of_overload(func).arguments]
    if {**dict(zip(names, args, strict=False)), **kwargs}.get("accumulate"):
        raise UnreachedError(f"{name} adds numbers")
    are_integers = dtype in INTEGERS  # and so are the other tensors that data comes from
    if are_integers or name == "where":
        numbers |= {"self", "other", "tensors", "src", "source", "values", "input", "tensor"}
    given = [tree_map(partial(lowered, is_number=n in numbers), value) for n, value in zip(names, args, strict=False)]
    named = {n: tree_map(partial(lowered, is_number=n in numbers), value) for n, value in kwargs.items()}
    if name == "constant_pad_nd" and len(args) < 3 and "value" not in kwargs:
        named["value"] = world.number_of(0.0)
    if name == "zero_":
        args[0].codes.fill_(world.number_of(0.0))
        return args[0]
    named.pop("dtype", None)
    if name == "im2col" or name.startswith(("reflection_pad", "replication_pad")):
        given[0] = given[0].double() if int(given[0].max()) < 2**52 else _refuse(name)
    made = func(*given, **named)
    if name.endswith("_") and not name.startswith("_"):
        return args[0]
    return tree_map(
        lambda item: Symbols(item.to(torch.int64), dtype, world) if isinstance(item, Tensor) else item, made
    )


def _refuse(name: str) -> Any:
    raise UnreachedError(f"{name} has no kernel for codes")


def _result_dtype(func: Any, args: Any, kwargs: Any) -> torch.dtype:
    flat = pytree.tree_leaves((args, kwargs))
    tensors = [
        item for item in flat if isinstance(item, Symbols) or (isinstance(item, Tensor) and item.dtype in FLOAT_DTYPES)
    ]
    dtype = tensors[0].dtype
    for other in tensors[1:]:
        dtype = torch.promote_types(dtype, other.dtype)
    return dtype


# ---- ops that compute: `proof.scalars` and `proof.reductions` ------------------------------------------

MEANINGS: dict[str, Callable[..., Any]] = {}
"""How symbols compute each op that is neither moved nor decomposed, by its name in PyTorch."""


def meaning(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            MEANINGS[name] = function
        return function

    return register


def same_codes(expected: Any, actual: Any, world: World) -> bool:
    """Whether two results are the same elements: symbols, constants, integers or booleans."""
    if tuple(expected.shape) != tuple(actual.shape):
        return False
    if isinstance(expected, Symbols) or isinstance(actual, Symbols):
        return torch.equal(codes_of(expected, world), codes_of(actual, world))
    if expected.dtype in FLOAT_DTYPES and world.kind is CodeKind.REALS:
        return torch.allclose(expected, actual.to(expected.dtype), equal_nan=True)
    both = torch.promote_types(expected.dtype, actual.dtype)  # integers of 64 bits become those of 32 bits
    return torch.allclose(expected.to(both), actual.to(both), 0, 0, equal_nan=True)
